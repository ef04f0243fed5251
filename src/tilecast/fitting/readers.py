"""Measured kernels from files, with what was measured kept apart from what was asked.

The layout is NeuSight's: one row a kernel, with `device`, `op`, its sizes and `latency_ms`:

- `bmm`, `linear`: B, M, N, K for B x [M,N] @ [N,K], so that *N is the reduced dimension*; a kernel
  table has [M,K] @ [K,N]. `linear` multiplies by a weight that is stored transposed, adds a bias.
- elementwise operators, `softmax`, `ln`: B rows of H columns.
- `conv`: B, Input_Channel, Output_Channel, Kernel_Size, Input_Size, Stride, Padding (forward).

All are fp32 with TF32 off, timed over the same tensors again and again, so warm in the L2 where
they fit.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tilecast.errors import InputError, MissingExtraError
from tilecast.kernels import conv, elementwise, gemm, reduction
from tilecast.kernels.table import Floats, KernelTable

LAYOUT: Final = "neusight-kernels"
MEASURED: Final = "latency_ms"
GEMM_SIZES: Final = ("B", "M", "N", "K")
ROW_SIZES: Final = ("B", "H")
CONV_SIZES: Final = (
    "B", "Input_Channel", "Output_Channel", "Kernel_Size", "Input_Size", "Stride", "Padding",
)  # fmt: skip
#: Elementwise operators: tensors read, floating-point operations an element.
ELEMENTWISE: Final[dict[str, tuple[int, int]]] = {
    "add": (2, 1), "mul": (2, 1), "div": (2, 1), "pow": (2, 1), "addu": (1, 1), "mulu": (1, 1),
    "divu": (1, 1), "powu": (1, 1), "relu": (1, 1), "gelu": (1, 1), "tanh": (1, 1),
}  # fmt: skip
REDUCTIONS: Final = {"softmax": "softmax", "ln": "layer_norm"}
#: Larger than any size of a tensor; a size above it is damage.
MAX_SIZE: Final = 1e12

Columns = dict[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class KernelRows:
    """What a file asks: everything but what was measured.

    Attributes:
        source: file, for messages.
        identity: identifying columns by name, each of length n (`device`, `op`, sizes, `split`).
        errors: (n,) why a row cannot be forecast, "" where it can.
        rows: (k,) positions of the rows that can.
        table: their kernels (k rows), warm.
    """

    source: str
    identity: dict[str, list[Any]]
    errors: list[str]
    rows: NDArray[np.intp]
    table: KernelTable

    def __len__(self) -> int:
        return len(self.errors)


def read_columns(path: str | Path) -> Columns:
    """Columns of a Parquet or CSV file by name.

    Raises:
        InputError: it cannot be read as its suffix says.
        MissingExtraError: Parquet without pyarrow.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    if file.suffix.lower() in (".parquet", ".pq"):
        return _read_parquet(file)
    if file.suffix.lower() != ".csv":
        raise InputError(f"{file}: expected a .parquet or .csv file")
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream)
            names = next(reader, [])
            lines = [line for line in reader if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{file}: cannot be read as CSV ({error})") from error
    if len(set(names)) != len(names):
        raise InputError(f"{file}: a column name appears twice")
    width = len(names)
    for number, line in enumerate(lines, start=2):
        if len(line) != width:
            raise InputError(f"{file}: line {number} has {len(line)} cells, expected {width}")
    return (
        {name: list(cells) for name, cells in zip(names, zip(*lines, strict=True), strict=True)}
        if lines
        else {name: [] for name in names}
    )


def _read_parquet(file: Path) -> Columns:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("Parquet", "fit") from error
    try:
        table = parquet.read_table(file)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{file}: cannot be read as Parquet ({reason})") from error
    return {name: table.column(name).to_pylist() for name in table.column_names}


def numbers(cells: Sequence[Any]) -> Floats:
    """Cells as floats (n,); NaN where a cell is not a number."""
    try:
        return np.array([np.nan if cell is None else cell for cell in cells], dtype=np.float64)
    except (TypeError, ValueError):
        return np.array([_number(cell) for cell in cells], dtype=np.float64)


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return float("nan")


def measured_seconds(cells: Sequence[Any]) -> Floats:
    """Measured milliseconds as seconds (n,); NaN where not a time above 0."""
    seconds = numbers(cells) * 1e-3
    return np.where(np.isfinite(seconds) & (seconds > 0), seconds, np.nan)


def is_kernel_layout(columns: Mapping[str, Any]) -> bool:
    """Whether these columns are the layout of this module."""
    has = columns.keys()
    sizes = (GEMM_SIZES, ROW_SIZES, CONV_SIZES)
    return {"device", "op", MEASURED} <= has and any(set(names) <= has for names in sizes)


def kernel_rows(source: str, columns: Mapping[str, Sequence[Any]]) -> KernelRows:
    """The kernels that a file asks for.

    Args:
        columns: of the file, *without* the measured one.

    Raises:
        InputError: a column is missing, or the measured one is present.
    """
    if MEASURED in columns:
        raise InputError(f"{source}: {MEASURED} must be kept apart before the forecast")
    for name in ("device", "op"):
        if name not in columns:
            raise InputError(f"{source}: column {name} is missing, not a {LAYOUT} table")
    ops = np.array([str(op) for op in columns["op"]], dtype=object)
    count = len(ops)
    errors = np.full(count, "", dtype=object)
    tables: list[KernelTable] = []
    places: list[NDArray[np.intp]] = []
    for op in sorted(set(ops.tolist())):
        where = np.flatnonzero(ops == op)
        sizes = _SIZES.get(op)
        if sizes is None:
            errors[where] = f"op {op!r}: not a kernel of the {LAYOUT} layout"
            continue
        missing = [name for name in sizes if name not in columns]
        if missing:
            raise InputError(f"{source}: column {missing[0]} is missing, needed by op {op}")
        values = {}
        good = np.ones(len(where), dtype=bool)
        for name in sizes:
            column = numbers([columns[name][row] for row in where.tolist()])
            least = 0 if name == "Padding" else 1
            fits = (column >= least) & (column <= MAX_SIZE) & (column == np.floor(column))
            bad = where[good & ~fits]
            errors[bad] = f"{name}: expected a whole number of at least {least}"
            good &= fits
            values[name] = column
        if op == "conv":
            fits = values["Kernel_Size"] <= values["Input_Size"] + 2 * values["Padding"]
            errors[where[good & ~fits]] = "Kernel_Size: larger than the padded input"
            good &= fits
        if good.any():
            own = {name: column[good].astype(np.int64) for name, column in values.items()}
            tables.append(_build(op, own))
            places.append(where[good])
    names = [n for n in ("device", "op", *dict.fromkeys((*GEMM_SIZES, *ROW_SIZES, *CONV_SIZES)),
                         "split") if n in columns]  # fmt: skip
    identity = {name: list(columns[name]) for name in names}
    rows = np.concatenate(places) if places else np.zeros(0, dtype=np.intp)
    table = KernelTable.concatenate(tables) if tables else gemm.table(1, 1, 1, 1).take(rows)
    order = np.argsort(rows, kind="stable")
    return KernelRows(
        source, identity, errors.tolist(), rows[order], table.take(order).with_warm(1.0)
    )


def _build(op: str, sizes: Mapping[str, NDArray[np.int64]]) -> KernelTable:
    if op in ("bmm", "linear"):
        layout = {"bmm": "nn", "linear": "nt"}[op]
        return gemm.table(
            sizes["B"], sizes["M"], sizes["K"], sizes["N"],
            layout=("nn", "nt").index(layout), epilogue=int(op == "linear"),
        )  # fmt: skip
    if op in ELEMENTWISE:
        inputs, per_element = ELEMENTWISE[op]
        return elementwise.table(sizes["B"] * sizes["H"], inputs, 1, per_element)
    if op in REDUCTIONS:
        return reduction.table(sizes["B"], sizes["H"], REDUCTIONS[op])
    side, taps = sizes["Input_Size"], sizes["Kernel_Size"]
    return conv.table(
        sizes["B"], sizes["Input_Channel"], sizes["Output_Channel"], side, side, taps, taps,
        stride=sizes["Stride"], padding=sizes["Padding"],
    )  # fmt: skip


_SIZES: Final[dict[str, tuple[str, ...]]] = {
    "bmm": GEMM_SIZES,
    "linear": GEMM_SIZES,
    **dict.fromkeys((*ELEMENTWISE, *REDUCTIONS), ROW_SIZES),
    "conv": CONV_SIZES,
}
