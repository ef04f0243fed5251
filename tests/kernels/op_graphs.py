"""Graphs of one operator, from shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilecast.kernels import Kernel, Launches, lower
from tilecast.kernels.table import DIM_NAMES
from tilecast.workload.graph import Graph, Tensor

Spec = Tensor | tuple[int, ...]


def tensor(spec: Spec, dtype: str = "float32") -> Tensor:
    """A contiguous tensor of a shape, or the tensor itself."""
    return spec if isinstance(spec, Tensor) else Tensor(spec, dtype)


def one_op(
    name: str,
    inputs: Sequence[Spec],
    outputs: Sequence[Spec],
    dtype: str = "float32",
    meta: dict[str, Any] | None = None,
    **attrs: Any,
) -> Graph:
    """A graph of one ATen operator."""
    graph = Graph("one", meta=dict(meta or {}))
    ids = [graph.add_tensor(tensor(spec, dtype)) for spec in (*inputs, *outputs)]
    graph.add_op(f"aten.{name}", ids[: len(inputs)], ids[len(inputs) :], attrs)
    return graph


def rows(launches: Launches) -> list[dict[str, Any]]:
    """Each launch with its figures and named dimensions."""
    table = launches.table
    found = []
    for row in launches.kernel.tolist():
        family = table.family_of(row)
        dims = dict(zip(DIM_NAMES[family], table.dims[row].tolist(), strict=False))
        found.append(
            {
                "name": table.name_of(row),
                "family": family,
                "precision": table.precision_names[row],
                "flops": float(table.flops[row]),
                "read": float(table.bytes_read[row]),
                "written": float(table.bytes_written[row]),
                "itemsize": float(table.itemsize[row]),
                "estimated": bool(table.estimated[row]),
                **dims,
            }
        )
    return found


def lowered(
    name: str, inputs: Sequence[Spec], outputs: Sequence[Spec], *args: Any, **attrs: Any
) -> list[dict[str, Any]]:
    """What one operator launches."""
    return rows(lower(one_op(name, inputs, outputs, *args, **attrs)))


def total_flops(launches: Launches, families: Sequence[str] = ("gemm", "conv", "attention")) -> int:
    """FLOPs of all launches of some families."""
    table = launches.table
    chosen = np.array([table.family_of(row) in families for row in range(len(table))], dtype=bool)
    return round(float(np.sum((table.flops * chosen)[launches.kernel])))


def agrees(kernel: Kernel, table: Any, row: int = 0) -> bool:
    """Whether one row of a table is the same work as a kernel."""
    dims = table.dims[row, : len(kernel.dims)].tolist()
    return (
        table.family_of(row) == kernel.family
        and table.precision_names[row] == kernel.precision
        and dims == list(kernel.dims)
        and bool(np.isclose(table.flops[row], kernel.flops, rtol=1e-12))
        and bool(np.isclose(table.bytes_read[row], kernel.bytes_read, rtol=1e-12))
        and bool(np.isclose(table.bytes_written[row], kernel.bytes_written, rtol=1e-12))
        and float(table.itemsize[row]) == kernel.itemsize
    )
