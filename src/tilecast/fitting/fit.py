"""Fit the tile law: a few shares of what the datasheet says, by bounded robust least squares.

Residuals are log(forecast / measured) with the protocol's clock in the forecast, in a soft-L1 loss
(rows that another library version or a hot card spoilt pull little). Rows are drawn evenly over
devices, operators and sizes. What is fitted is judged by leaving a GPU out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tilecast.errors import InputError, MissingExtraError, TilecastError
from tilecast.fitting.overhead import Overheads
from tilecast.fitting.protocols import check_protocol, may_train, measures
from tilecast.fitting.readers import (
    MEASURED,
    is_kernel_layout,
    kernel_rows,
    measured_seconds,
    read_columns,
)
from tilecast.fitting.start import START, Free, free_fields, pack, unpack
from tilecast.hardware import GPU
from tilecast.hardware import gpu as find_gpu
from tilecast.kernels.table import FAMILIES, Floats, KernelTable
from tilecast.predict import weights as weights_file
from tilecast.predict.law import Prediction
from tilecast.predict.parameters import QUANTILES, Parameters, Spread
from tilecast.predict.tile import GROUP, TileLaw

#: Rows of one device and operator that a fit takes.
ROWS_EACH: Final = 700
SEED: Final = 20251
DATA: Final = "fp32 kernels of sitar-lab/NeuSight (MIT)"
STACK: Final = "PyTorch 2.1 / CUDA 12.1, PyTorch 2.4 / ROCm"
#: Part of the shortest time of a machine's quickest operator that follows the launch (`overhead`):
#: what the intercept of large kernels' times leaves of it.
TAIL_SHARE: Final = 0.45
GROUPS: Final = ("elementwise", "reduction", "gemm", "conv")

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Samples:
    """Measured kernels of one GPU in one fitted group.

    Attributes:
        gpu: as resolved.
        table: kernels (n rows), warm.
        op: operator of each row.
        measured_s: (n,) as the protocol's clock showed.
        dispatch_s, tail_s: (n,) of the machine that measured it.
    """

    gpu: GPU
    table: KernelTable
    op: NDArray[Any]
    measured_s: Floats
    dispatch_s: Floats
    tail_s: Floats

    def take(self, rows: NDArray[Any]) -> Samples:
        """Some rows."""
        return Samples(
            self.gpu, self.table.take(rows), self.op[rows], self.measured_s[rows],
            self.dispatch_s[rows], self.tail_s[rows],
        )  # fmt: skip


def fit(
    data: Sequence[str | Path],
    protocol: str = "a",
    leave_out: Sequence[str] = (),
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Fit the tile law and write its weights.

    Args:
        data: folders (or files) in the layout of `tilecast.fitting.readers`.
        protocol: `a`, `b` or `ship` (`tilecast.fitting.protocols`).
        leave_out: GPUs whose rows are not used.
        out: weights file; written whole or not at all. None writes nothing.
        progress: called with (steps done, steps in all).

    Returns:
        `out, protocol, rows, devices`, and `left_out`: for each training GPU and group the error
        of a fit that did not see that GPU (`device, group, rows, mean_ape, median_ape, ...`).

    Raises:
        InputError: no usable data, an unknown protocol or GPU, or `out` cannot be written.
        MissingExtraError: SciPy is not installed.
    """
    check_protocol(protocol)
    excluded = {find_gpu(name).name for name in leave_out}
    samples, floors = load(data, protocol, excluded)
    devices = list(dict.fromkeys(one.gpu.name for group in samples.values() for one in group))
    steps = len(GROUPS) * (1 + len(devices))
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, steps)

    residuals: dict[str, list[tuple[Floats, int]]] = {group: [] for group in GROUPS}
    report = []
    if len(devices) > 1:
        for device in devices:
            others = {
                group: [one for one in own if one.gpu.name != device]
                for group, own in samples.items()
            }
            law = fit_parameters(others, step)
            overheads = typical_overheads({k: v for k, v in floors.items() if k != device})
            for group in GROUPS:
                for one in samples[group]:
                    if one.gpu.name != device:
                        continue
                    made = TileLaw(law).predict(one.table, one.gpu)
                    latency = overheads.measured(one.op.tolist(), made.latency_s)
                    residuals[group].append((kernel_log_error(one, made), len(one.table)))
                    report.append({
                        "device": device, "group": group, "rows": len(one.table),
                        **measures(one.measured_s, latency),
                    })  # fmt: skip
    law = fit_parameters(samples, step)
    law = replace(law, spread=spreads(law, samples, residuals))
    overheads = typical_overheads(floors)
    answer: dict[str, Any] = {
        "out": None if out is None else str(out),
        "protocol": protocol,
        "rows": sum(len(one.table) for own in samples.values() for one in own),
        "devices": devices,
        "left_out": report,
    }
    if out is not None:
        weights_file.write(
            out,
            {**law.to_tensors(), **overheads.to_tensors()},
            data=DATA, stack=STACK, protocol=protocol, rows=answer["rows"],
            left_out_mean_ape={
                group: round(sum(errors) / len(errors), 2)
                for group in GROUPS
                if (errors := [
                    float(row["mean_ape"])
                    for row in report
                    if row["group"] == group and row["mean_ape"] is not None
                ])
            },
        )  # fmt: skip
    return answer


def load(
    data: Sequence[str | Path], protocol: str, excluded: set[str]
) -> tuple[dict[str, list[Samples]], dict[str, dict[str, float]]]:
    """Rows that a protocol may see, by group and GPU, and each machine's floor by operator.

    Raises:
        InputError: no file of the layout, or no usable row.
    """
    parts: dict[tuple[str, str], list[tuple[KernelTable, NDArray[Any], Floats]]] = {}
    gpus: dict[str, GPU] = {}
    found = False
    for file in measured_files(data):
        columns = read_columns(file)
        if not is_kernel_layout(columns):
            continue
        found = True
        seconds = measured_seconds(columns.pop(MEASURED))
        asked = kernel_rows(str(file), columns)
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
            mine = allowed & (device == name)
            families = [FAMILIES[code] for code in asked.table.family.tolist()]
            fitted = np.array([GROUP[f] if f in GROUPS else "" for f in families], dtype=object)
            for group in GROUPS:
                rows = np.flatnonzero(mine & (fitted == group))
                if len(rows):
                    parts.setdefault((group, place.name), []).append(
                        (asked.table.take(rows), op[rows], seconds[asked.rows[rows]])
                    )
    if not found:
        raise InputError(f"--data {', '.join(map(str, data))}: no table of measured kernels")
    floors: dict[str, dict[str, float]] = {}
    for (_, name), pieces in parts.items():
        op = np.concatenate([piece[1] for piece in pieces])
        measured = np.concatenate([piece[2] for piece in pieces])
        for one in sorted(set(op.tolist())):
            lowest = float(np.percentile(measured[op == one], 1))
            floors.setdefault(name, {})[one] = lowest
    samples: dict[str, list[Samples]] = {group: [] for group in GROUPS}
    for (group, name), pieces in parts.items():
        host = overheads_of(floors[name])
        op = np.concatenate([piece[1] for piece in pieces])
        dispatch, tail = host.of(op.tolist())
        samples[group].append(
            Samples(
                gpus[name],
                KernelTable.concatenate([piece[0] for piece in pieces]),
                op,
                np.concatenate([piece[2] for piece in pieces]),
                dispatch,
                tail,
            )
        )
    if not any(samples.values()):
        raise InputError(
            f"--data {', '.join(map(str, data))}: no row that protocol {protocol} may fit on"
        )
    return samples, floors


def measured_files(data: Sequence[str | Path]) -> list[Path]:
    """Parquet and CSV files of folders, and files as given.

    Raises:
        InputError: one of them does not exist.
    """
    files: list[Path] = []
    for place in map(Path, data):
        if place.is_dir():
            files += sorted(p for p in place.iterdir() if p.suffix in (".parquet", ".csv"))
        elif place.is_file():
            files.append(place)
        else:
            raise InputError(f"--data {place}: no such file or folder")
    return files


def overheads_of(floor: dict[str, float]) -> Overheads:
    """Host times of a machine from its shortest times by operator.

    What follows the launch (recording an event) is the same for every operator.
    """
    tail = TAIL_SHARE * min(floor.values(), default=0.0)
    return Overheads({op: own - tail for op, own in floor.items()}, dict.fromkeys(floor, tail))


def typical_overheads(floors: dict[str, dict[str, float]]) -> Overheads:
    """Host times of the median machine, by operator."""
    ops = sorted({op for own in floors.values() for op in own})
    return overheads_of(
        {op: float(np.median([own[op] for own in floors.values() if op in own])) for op in ops}
    )


def kernel_log_error(samples: Samples, made: Prediction) -> Floats:
    """log(measured / forecast) of the kernels themselves, where the host does not hide them."""
    kernel = samples.measured_s - samples.dispatch_s
    seen = (kernel > 1.3 * samples.tail_s) & (made.latency_s > 1.3 * samples.tail_s)
    return np.log(kernel[seen] / made.latency_s[seen])


def spreads(
    law: Parameters,
    samples: dict[str, list[Samples]],
    residuals: dict[str, list[tuple[Floats, int]]],
) -> dict[tuple[str, str], Spread]:
    """Error quantiles of left-out GPUs (each GPU weighs the same), and the feature range."""
    spread = dict(law.spread)
    for group in GROUPS:
        if not samples[group]:
            continue
        errors = [error for error, _ in residuals[group] if len(error)]
        start = law.spread[group, "fp32"]
        quantiles = start.log_error
        if errors:
            values = np.concatenate(errors)
            weight = np.concatenate([np.full(len(error), 1.0 / len(error)) for error in errors])
            order = np.argsort(values)
            position = np.cumsum(weight[order]) - 0.5 * weight[order]
            quantiles = np.interp(QUANTILES * weight.sum(), position, values[order])
        features = np.concatenate(
            [TileLaw(law).features(one.table, one.gpu) for one in samples[group]], axis=1
        )
        spread[group, "fp32"] = Spread(
            np.clip(quantiles, -19.0, 19.0), features.min(axis=1), features.max(axis=1)
        )
    return spread


def fit_parameters(
    samples: dict[str, list[Samples]], step: Callable[[], None] | None = None
) -> Parameters:
    """Parameters of the law from samples; groups without any keep their starting values."""
    law = START
    for group in GROUPS:
        drawn = [draw(one) for one in samples[group]]
        if drawn:
            law = _fit_group(law, group, drawn)
        if step is not None:
            step()
    return law


def draw(samples: Samples) -> Samples:
    """Rows drawn evenly over operators and sizes, with a fixed seed; few where the host hides."""
    generator = np.random.default_rng(SEED)
    size = np.log2(np.maximum(samples.table.footprint, 1.0))
    chosen = []
    for op in sorted(set(samples.op.tolist())):
        floor = samples.dispatch_s + samples.tail_s
        rows = np.flatnonzero((samples.op == op) & (samples.measured_s > 1.2 * floor))
        if len(rows) > ROWS_EACH:
            bins = np.floor(size[rows]).astype(int)
            common = np.bincount(bins)[bins].astype(np.float64)
            rows = generator.choice(
                rows, ROWS_EACH, replace=False, p=(1 / common) / (1 / common).sum()
            )
        chosen.append(np.sort(rows))
    return samples.take(np.concatenate(chosen))


def _fit_group(law: Parameters, group: str, drawn: list[Samples]) -> Parameters:
    try:
        from scipy.optimize import least_squares
    except ImportError as error:
        raise MissingExtraError("Fitting", "fit") from error
    free: list[Free] = free_fields(group)
    begin, low, high = pack(law, free)
    total = sum(len(one.table) for one in drawn)
    scales = [np.sqrt(total / len(drawn) / max(len(one.table), 1)) for one in drawn]
    prior = (
        np.array([1.0 / f.prior for f in free for _ in range(f.size(law))]) * np.sqrt(total) * 0.02
    )

    def residual(values: Floats) -> Floats:
        trial = TileLaw(unpack(law, free, values))
        parts = []
        for one, scale in zip(drawn, scales, strict=True):
            kernel = trial.predict(one.table, one.gpu).latency_s
            clock = one.dispatch_s + np.maximum(kernel, one.tail_s)
            error = np.log(clock / one.measured_s)
            # soft L1 at 0.15 by hand, so that the prior below stays quadratic
            soft = np.sign(error) * 0.15 * np.sqrt(2 * (np.sqrt(1 + (error / 0.15) ** 2) - 1))
            parts.append(scale * soft)
        parts.append(prior * (values - begin))
        return np.concatenate(parts)

    found = least_squares(
        residual,
        begin,
        bounds=(low, high),
        method="trf",
        diff_step=1e-3,
        max_nfev=25,
        xtol=1e-4,
        ftol=1e-4,
    )
    return unpack(law, free, found.x)
