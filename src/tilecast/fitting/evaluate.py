"""`evaluate kernels`: forecast every measured kernel, then look at what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilecast.errors import InputError, TilecastError
from tilecast.fitting.overhead import Overheads, interval_score
from tilecast.fitting.protocols import summarise
from tilecast.fitting.readers import (
    LAYOUT,
    MEASURED,
    KernelRows,
    is_kernel_layout,
    kernel_rows,
    measured_seconds,
    read_columns,
)
from tilecast.hardware import gpu as find_gpu
from tilecast.kernels.table import Floats
from tilecast.predict import Law, load_law
from tilecast.predict import weights as weights_file
from tilecast.predict.published import PublishedLaw


def evaluate_kernels(
    files: Sequence[str | Path],
    *,
    layout: str | None = None,
    weights: str | Path | None = None,
    law: str | Law = "tile",
    microbenchmark: bool = False,
    level: float = 0.8,
) -> dict[str, Any]:
    """Forecast every row of measured kernels, then compare.

    What is forecast is what the layout's clock showed: the kernel, and the host's part of an eager
    call (`tilecast.fitting.overhead`), for every law alike; only a published law that was fitted to
    times as measured has that part in its own forecast.

    Args:
        files: Parquet or CSV files in the layout of `tilecast.fitting.readers`.
        layout: name of the layout; None recognises it by its columns.
        law, weights, microbenchmark: as in `load_law`, or a law itself.
        level: of the intervals, in (0, 1).

    Returns:
        `rows` in file order (identifying columns, `measured_s, latency_s, interval_s, error`),
        `groups` by device and op, `total`.

    Raises:
        InputError: a file that is not in the layout, weights that cannot be used, a level that is
            not in (0, 1).
    """
    if layout not in (None, LAYOUT):
        raise InputError(f"--layout {layout}: expected {LAYOUT}")
    if not 0.0 < level < 1.0:
        raise InputError(f"--level {level}: expected a number between 0 and 1")
    chosen = load_law(law, weights, microbenchmark) if isinstance(law, str) else law
    # a published law carries the host times that its fit took off; other laws share the tile law's
    host = chosen.protocol if isinstance(chosen, PublishedLaw) else weights_file.read(weights)[0]
    overheads = Overheads.from_tensors(host)
    rows: list[dict[str, Any]] = []
    for file in files:
        columns = read_columns(file)
        if not is_kernel_layout(columns):
            raise InputError(
                f"{file}: not a {LAYOUT} table (device, op, {MEASURED} and B,M,N,K or B,H or conv "
                "sizes)"
            )
        measured = columns.pop(MEASURED)
        asked = kernel_rows(str(file), columns)
        latency, low, high, errors = forecast_rows(asked, chosen, overheads, level)
        # only now, with every forecast made, is the measured column looked at
        seconds = measured_seconds(measured)
        rows += _rows(asked, measured, seconds, latency, low, high, errors)
    return {"rows": rows, **summarise(rows, ("device", "op"))}


def forecast_rows(
    asked: KernelRows, law: Law, overheads: Overheads, level: float = 0.8
) -> tuple[Floats, Floats, Floats, list[str]]:
    """Forecast of every row: latency, low and high (n,), NaN where `errors` (n,) says why not."""
    latency, low, high = (np.full(len(asked), np.nan) for _ in range(3))
    errors = list(asked.errors)
    names = np.array([str(name) for name in asked.identity["device"]], dtype=object)
    ops = np.array([str(op) for op in asked.identity["op"]], dtype=object)
    score = interval_score(level)
    own = names[asked.rows]
    for name in sorted(set(own.tolist())):
        chosen = np.flatnonzero(own == name)
        rows = asked.rows[chosen]
        try:
            place = find_gpu(name)
        except TilecastError as error:
            for row in rows.tolist():
                errors[row] = str(error)
            continue
        made = law.predict(asked.table.take(chosen), place, level)
        of_rows = ops[rows].tolist()
        latency[rows] = overheads.measured(of_rows, made.latency_s)
        low[rows] = overheads.measured(of_rows, made.low_s, -score)
        high[rows] = overheads.measured(of_rows, made.high_s, score)
    return latency, low, high, errors


def _rows(
    asked: KernelRows,
    measured: Sequence[Any],
    seconds: Floats,
    latency: Floats,
    low: Floats,
    high: Floats,
    errors: list[str],
) -> list[dict[str, Any]]:
    identity = {name: [_plain(cell) for cell in cells] for name, cells in asked.identity.items()}
    names = list(identity)
    answers = []
    values = zip(
        zip(*identity.values(), strict=True), measured, seconds.tolist(), latency.tolist(),
        low.tolist(), high.tolist(), errors, strict=True,
    )  # fmt: skip
    for cells, cell, second, forecast, bottom, top, error in values:
        known = second == second
        if not error and not known:
            error = f"{MEASURED} {cell!r}: expected a time above 0 ms"
        made = forecast == forecast
        answers.append({
            **dict(zip(names, cells, strict=True)),
            "measured_s": second if known else None,
            "latency_s": forecast if made else None,
            "interval_s": [bottom, top] if made else None,
            "error": error or None,
        })  # fmt: skip
    return answers


def _plain(cell: Any) -> Any:
    """A cell as a JSON value: whole numbers as int, empty and NaN as None."""
    if cell is None or cell != cell or cell == "":
        return None
    if isinstance(cell, str):
        return int(cell) if cell.isdigit() else cell
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell
