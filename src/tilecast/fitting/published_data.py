"""Measured kernels for the published laws: rows by GPU, with the tile that each kernel ran.

The data carry the name of the kernel that ran and its grid. Tiles of products are in the name
(`sgemm_128x64`, `tilesize64x64`, `MT64x32`), rows first as the library writes them; the tile of an
elementwise kernel is the power of two at or above the elements of a block.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tilecast.errors import InputError, TilecastError
from tilecast.fitting.fit import measured_files, overheads_of
from tilecast.fitting.protocols import may_train
from tilecast.fitting.readers import (
    MEASURED,
    Columns,
    is_kernel_layout,
    kernel_rows,
    measured_seconds,
    numbers,
    read_columns,
)
from tilecast.hardware import GPU
from tilecast.hardware import gpu as find_gpu
from tilecast.kernels.table import Floats, KernelTable
from tilecast.predict.published.base import CLASSES, classes_of

_TILE: Final = re.compile(r"(?:sgemm_|tilesize|_mt)(\d+)x(\d+)", re.IGNORECASE)
#: A row counts where its time is this multiple of what the host alone takes.
SEEN: Final = 1.2


@dataclass(frozen=True, slots=True)
class Rows:
    """Measured kernels of one GPU.

    Attributes:
        gpu: as resolved.
        table: kernels (n rows), warm.
        op: operator of each row (n,).
        measured_s: (n,) as the protocol's clock showed.
        dispatch_s, tail_s: (n,) host times of the machine that measured it.
        tile: (n, 2) tile of the kernel that ran: its two numbers, or elements of a block and 0;
            zeros where the data do not tell.
    """

    gpu: GPU
    table: KernelTable
    op: NDArray[Any]
    measured_s: Floats
    dispatch_s: Floats
    tail_s: Floats
    tile: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.op)

    def take(self, rows: NDArray[Any]) -> Rows:
        """Some rows."""
        return Rows(
            self.gpu, self.table.take(rows), self.op[rows], self.measured_s[rows],
            self.dispatch_s[rows], self.tail_s[rows], self.tile[rows],
        )  # fmt: skip

    def of_class(self, kind: str) -> Rows:
        """Rows of one class of `tilecast.predict.published.base.CLASSES`."""
        return self.take(np.flatnonzero(classes_of(self.table) == CLASSES.index(kind)))

    def kernel_s(self) -> Floats:
        """(n,) time of the kernel itself; at most 0 where the host hides it."""
        return self.measured_s - self.dispatch_s

    def seen(self) -> Rows:
        """Rows whose kernel takes longer than what the host does meanwhile."""
        return self.take(np.flatnonzero(self.measured_s > SEEN * (self.dispatch_s + self.tail_s)))

    def as_measured(self) -> Rows:
        """The same with the host's part counted as the kernel's."""
        none = np.zeros(len(self))
        return Rows(self.gpu, self.table, self.op, self.measured_s, none, none, self.tile)


def load_rows(
    data: Sequence[str | Path], protocol: str, excluded: set[str]
) -> tuple[list[Rows], dict[str, dict[str, float]]]:
    """Rows that a protocol may see by GPU, and each machine's floor by operator.

    Raises:
        InputError: no file of the layout, or no usable row.
    """
    pieces: dict[str, list[tuple[KernelTable, NDArray[Any], Floats, NDArray[np.int64]]]] = {}
    gpus: dict[str, GPU] = {}
    found = False
    for file in measured_files(data):
        columns = read_columns(file)
        if not is_kernel_layout(columns):
            continue
        found = True
        seconds = measured_seconds(columns.pop(MEASURED))
        asked = kernel_rows(str(file), columns)
        tile = tiles_of(columns, asked.rows)
        device = np.array([str(d) for d in asked.identity["device"]], dtype=object)[asked.rows]
        op = np.array([str(o) for o in asked.identity["op"]], dtype=object)[asked.rows]
        split = asked.identity.get("split", ["train"] * len(asked))
        allowed = may_train(protocol, asked.identity["device"], split)[asked.rows]
        allowed &= np.isfinite(seconds[asked.rows])
        for name in sorted(set(device[allowed].tolist())):
            try:
                place = find_gpu(name)
            except TilecastError:
                continue  # rows of a GPU without a description cannot be fitted on
            if place.name in excluded:
                continue
            gpus[place.name] = place
            rows = np.flatnonzero(allowed & (device == name))
            pieces.setdefault(place.name, []).append(
                (asked.table.take(rows), op[rows], seconds[asked.rows[rows]], tile[rows])
            )
    if not found:
        raise InputError(f"--data {', '.join(map(str, data))}: no table of measured kernels")
    if not pieces:
        raise InputError(
            f"--data {', '.join(map(str, data))}: no row that protocol {protocol} may fit on"
        )
    made, floors = [], {}
    for name, own in pieces.items():
        op, measured, tile = (np.concatenate([piece[i] for piece in own]) for i in (1, 2, 3))
        floors[name] = {
            one: float(np.percentile(measured[op == one], 1)) for one in sorted(set(op.tolist()))
        }
        dispatch, tail = overheads_of(floors[name]).of(op.tolist())
        table = KernelTable.concatenate([piece[0] for piece in own])
        made.append(Rows(gpus[name], table, op, measured, dispatch, tail, tile))
    return made, floors


def tiles_of(columns: Columns, rows: NDArray[np.intp]) -> NDArray[np.int64]:
    """Tiles (n, 2) of the rows asked for, as in `Rows.tile`."""
    tile = np.zeros((len(rows), 2), dtype=np.int64)
    if {"B", "H", "grid_x"} <= columns.keys():
        elements = (numbers(columns["B"]) * numbers(columns["H"]))[rows]
        grid = np.maximum(np.nan_to_num(numbers(columns["grid_x"])[rows], nan=0.0), 0.0)
        known = grid > 0
        tile[known, 0] = block_elements(elements[known], grid[known])
    elif "kernel" in columns:
        names = [str(columns["kernel"][row]) for row in rows.tolist()]
        known_names = {name: tile_in(name) for name in set(names)}
        tile = np.array([known_names[name] for name in names], dtype=np.int64).reshape(-1, 2)
    return tile


def tile_in(name: str) -> tuple[int, int]:
    """The two numbers of a tile in a kernel's name; zeros where there are none."""
    found = _TILE.search(name)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def block_elements(elements: Floats, grid: Floats) -> NDArray[np.int64]:
    """2^ceil(log2(ceil(elements / grid))): elements that one block of a grid covers (n,)."""
    each = np.maximum(np.ceil(elements / grid), 1.0)
    power: NDArray[np.int64] = (2.0 ** np.ceil(np.log2(each))).astype(np.int64)
    return power
