"""Reductions: every kernel that combines the elements of a row, and the norms and scans.

A tensor of `rows * columns` elements is reduced along `columns`; `inner` is the stride between the
elements of a row (1: contiguous rows). What a kind reads, writes and computes is in `KINDS`:

    FLOPs   per_element * rows * columns
    read    (inputs * rows * columns + per_column * columns) * itemsize + row_reads * rows * 4
    written outputs * rows * columns * itemsize + row_results * rows * row_bytes

Counts of operations are those of the textbook formula, an exponential or a division counting as
one: a stream of this kind is bound by its bytes, and finer counts would not show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from tilecast.kernels.formula import Size, element_bytes, vector_precision
from tilecast.kernels.formula import columns as as_columns
from tilecast.kernels.table import REDUCTION_KINDS, Kernel, KernelTable

#: Bytes of a statistic kept for each row (mean, reciprocal deviation): fp32.
STATISTIC_BYTES: Final = 4.0
#: Bytes of an index that a search returns: int64.
INDEX_BYTES: Final = 8.0


@dataclass(frozen=True, slots=True)
class Kind:
    """What one kind of reduction touches and computes.

    Attributes:
        per_element: floating-point operations for each element.
        inputs, outputs: tensors of the full shape read and written.
        per_column: vectors of length `columns` read (weights of a norm).
        row_reads: fp32 statistics read for each row.
        row_results: values written for each row.
        row_bytes: bytes of one of those; 0 means an element of the tensor's own dtype.
    """

    per_element: float
    inputs: int = 1
    outputs: int = 0
    per_column: int = 0
    row_reads: int = 0
    row_results: int = 0
    row_bytes: float = 0.0


_S = STATISTIC_BYTES
KINDS: Final[dict[str, Kind]] = {
    "sum": Kind(1, row_results=1),
    # maximum, subtract, exponential, add, divide
    "softmax": Kind(5, outputs=1),
    # maximum, subtract, exponential, add, subtract
    "log_softmax": Kind(5, outputs=1),
    # mean: 1; variance: subtract, square, add; normalise: 2; weight and bias: 2
    "layer_norm": Kind(8, outputs=1, per_column=2, row_results=2, row_bytes=_S),
    # square, add, scale, weight
    "rms_norm": Kind(4, outputs=1, per_column=1, row_results=1, row_bytes=_S),
    "batch_norm": Kind(8, outputs=1, row_reads=4, row_results=4, row_bytes=_S),
    "group_norm": Kind(8, outputs=1, row_results=2, row_bytes=_S),
    # g * y, add, subtract, multiply
    "softmax_backward": Kind(4, inputs=2, outputs=1),
    # add, exponential, multiply, subtract
    "log_softmax_backward": Kind(4, inputs=2, outputs=1),
    # normalise: 2; weight: 1; two sums: 3; gradient: 4
    "layer_norm_backward": Kind(10, inputs=2, outputs=1, per_column=1, row_reads=2),
    # normalise: 1; weight: 1; one sum: 2; gradient: 3
    "rms_norm_backward": Kind(7, inputs=2, outputs=1, per_column=1, row_reads=1),
    "batch_norm_backward": Kind(
        10, inputs=2, outputs=1, row_reads=3, row_results=2, row_bytes=_S
    ),
    "group_norm_backward": Kind(10, inputs=2, outputs=1, row_reads=2),
    "nll_loss": Kind(1, row_results=1),
    "argmax": Kind(1, row_results=1, row_bytes=INDEX_BYTES),
    # radix select: four passes of eight bits over the keys
    "topk": Kind(4),
    # merge sort: see `operations`
    "sort": Kind(1, outputs=1),
    "cumsum": Kind(1, outputs=1),
    # mean: 1; deviation: subtract, square, add
    "variance": Kind(4, row_results=1),
    # multiply, add (a norm is the product of a row with itself)
    "dot": Kind(2, row_results=1),
}  # fmt: skip


def operations(kind: str, rows: Size, columns: Size) -> Size:
    """Floating-point operations of reducing `rows` rows of `columns` elements."""
    work = KINDS[kind].per_element * rows * columns
    if kind == "sort":  # comparisons
        return work * _log2(columns)
    return work


def _log2(value: Size) -> Size:
    if isinstance(value, np.ndarray):
        return np.log2(np.maximum(value, 2.0))
    return float(np.log2(max(value, 2.0)))


def bytes_read(kind: str, rows: Size, columns: Size, itemsize: float) -> Size:
    """Unique bytes read."""
    of = KINDS[kind]
    elements = of.inputs * rows * columns + of.per_column * columns
    return elements * itemsize + of.row_reads * rows * STATISTIC_BYTES


def bytes_written(kind: str, rows: Size, columns: Size, itemsize: float) -> Size:
    """Unique bytes written."""
    of = KINDS[kind]
    each = of.row_bytes or itemsize
    return of.outputs * rows * columns * itemsize + of.row_results * rows * each


def kernel(
    rows: int,
    columns: int,
    kind: str,
    *,
    inner: int = 1,
    precision: str = "fp32",
    itemsize: float | None = None,
    read: float | None = None,
    written: float | None = None,
    name: str = "",
) -> Kernel:
    """One reduction of `rows` rows of `columns` elements.

    Args:
        rows, columns: sizes in elements.
        kind: one of `REDUCTION_KINDS`.
        inner: stride between the elements of a row.
        precision: of the tensors (halves are computed on as fp32).
        itemsize: bytes of an element; by default what the precision implies.
        read, written: unique bytes where the tensors are known; by default the formulas above.
        name: of the kernel; the kind's by default.
    """
    size = element_bytes(precision) if itemsize is None else itemsize
    return Kernel(
        name or kind,
        "reduction",
        vector_precision(precision),
        (rows, columns, REDUCTION_KINDS.index(kind), inner),
        float(operations(kind, rows, columns)),
        float(bytes_read(kind, rows, columns, size)) if read is None else read,
        float(bytes_written(kind, rows, columns, size)) if written is None else written,
        size,
    )


def table(
    rows: ArrayLike,
    columns: ArrayLike,
    kind: str = "sum",
    *,
    inner: ArrayLike = 1,
    precision: str = "fp32",
) -> KernelTable:
    """Reductions of one kind from columns of sizes; arguments as in `kernel`."""
    lines, length, step = as_columns(rows, columns, inner)
    size = element_bytes(precision)
    return KernelTable.from_columns(
        "reduction",
        kind,
        {"rows": lines, "columns": length, "kind": REDUCTION_KINDS.index(kind), "inner": step},
        flops=operations(kind, lines, length),
        bytes_read=bytes_read(kind, lines, length, size),
        bytes_written=bytes_written(kind, lines, length, size),
        precision=vector_precision(precision),
        itemsize=size,
    )
