"""Price a prepared graph on a GPU: kernels, host, phases, what bounds it, an interval."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilecast.forecast.host import NO_HOST, PHASES, HostModel
from tilecast.forecast.prepared import Prepared
from tilecast.forecast.result import Forecast, KernelShare, ModuleShare
from tilecast.forecast.timeline import Timeline, simulate
from tilecast.hardware.gpu import GPU
from tilecast.kernels.table import DIM_NAMES, FAMILIES, KernelTable
from tilecast.predict.law import BOUNDS, DOMAINS, Law, Prediction

#: Where the default host costs come from, for `sources`.
HOST_DATA = "set by hand beside python -m bench.host"

Floats = NDArray[np.float64]


def price(
    prepared: Prepared,
    gpu: GPU,
    law: Law,
    *,
    host: HostModel | None = None,
    level: float = 0.8,
    top: int = 10,
    cuda_graphs: bool = False,
    repeats: int = 1,
) -> Forecast:
    """Forecast a prepared graph on a GPU.

    Args:
        prepared: the graph, from `prepare`.
        gpu: where it would run.
        law: what prices the kernels.
        host: eager host costs; None takes the defaults.
        level: of the interval, in (0, 1).
        top: kernels and modules to list.
        cuda_graphs: the whole sequence was recorded, the host costs nothing.
        repeats: forward and backward passes before the optimizer's step (gradient
            accumulation).

    Returns:
        The forecast. The interval moves every kernel of the run to its low or high end
        together, since a law's error on one GPU is mostly one factor, and the host likewise.
    """
    model = NO_HOST if cuda_graphs else (host or HostModel())
    table, row = prepared.distinct_on(gpu)
    prediction = law.predict(table, gpu, level)
    host_s = prepared.host.seconds(model)
    line = _play(prepared, prediction.latency_s[row], host_s)
    low = _play(prepared, prediction.low_s[row], host_s / model.spread)
    high = _play(prepared, prediction.high_s[row], host_s * model.spread)
    phases = _phases(prepared, line)
    repeated = {name: s * (repeats if name != "optimizer" else 1) for name, s in phases.items()}
    latency = sum(repeated.values())
    stretch = latency / line.end if line.end > 0 else 1.0
    graph = prepared.graph
    meta = graph.meta
    dtype = str(meta.get("dtype", "fp32"))
    flops = prepared.flops * repeats
    peak = gpu.matrix_peak(dtype.removeprefix("amp-"))
    durations = prediction.latency_s[row]
    busy = float(durations.sum())
    return Forecast(
        model=graph.name,
        gpu=gpu.name,
        mode=str(meta.get("mode", "inference")),
        dtype=dtype,
        batch=int(meta.get("batch", 1)),
        seq=meta.get("seq"),
        context=int(meta.get("context", 0) or 0),
        latency_s=latency,
        interval_s=(low.end * stretch, high.end * stretch),
        level=level,
        phases_s=repeated,
        host_s=float(host_s.sum()) * stretch,
        gpu_busy_s=busy * stretch,
        launches=len(row),
        parameters=prepared.parameters,
        flops=flops,
        bytes=prepared.bytes * repeats,
        mfu=flops / (latency * peak) if latency > 0 else 0.0,
        bound_by=_bound_by(prediction, row, durations, line),
        families_s=_families(table, row, durations),
        kernels=_kernels(table, prediction, row, durations, top),
        modules=_modules(prepared, durations, top),
        estimated_ops=_estimated(prepared, table, row, durations),
        sources=_sources(table, prediction, law, model),
        options={k: v for k, v in meta.items() if isinstance(v, str | int | float | bool | None)},
    )


def _play(prepared: Prepared, duration_s: Floats, host_s: Floats) -> Timeline:
    return simulate(
        duration_s, host_s, prepared.launches.op, prepared.host.waits, prepared.stream,
        prepared.cross_stream,
    )  # fmt: skip


def _phases(prepared: Prepared, line: Timeline) -> dict[str, float]:
    """Time between the ends of the phases; the last one ends when all is done."""
    ends: dict[str, float] = {}
    begin = 0.0
    present = [code for code in range(len(PHASES)) if np.any(prepared.phase == code)]
    for code in present:
        end = line.end
        if code != present[-1]:
            end = float(line.end_s[prepared.phase == code].max())
        ends[PHASES[code].value] = max(0.0, end - begin)
        begin = max(begin, end)
    return ends or {PHASES[0].value: line.end}


def _bound_by(
    prediction: Prediction, row: NDArray[np.int32], durations: Floats, line: Timeline
) -> str:
    time = np.bincount(prediction.bound_by[row], weights=durations, minlength=len(BOUNDS))
    shares = dict(zip(BOUNDS, time.tolist(), strict=True))
    shares["host"] = max(0.0, line.end - float(durations.sum()))
    return max(shares, key=lambda name: shares[name])


def _families(table: KernelTable, row: NDArray[np.int32], durations: Floats) -> dict[str, float]:
    time = np.bincount(table.family[row], weights=durations, minlength=len(FAMILIES))
    order = np.argsort(-time, kind="stable").tolist()
    return {FAMILIES[code]: float(time[code]) for code in order if time[code] > 0}


def shape_text(table: KernelTable, row: int) -> str:
    """Dimensions of a kernel by name, those that are set."""
    names = DIM_NAMES[table.family_of(row)]
    values = table.dims[row, : len(names)].tolist()
    return " ".join(f"{name}={value}" for name, value in zip(names, values, strict=True) if value)


def _kernels(
    table: KernelTable, prediction: Prediction, row: NDArray[np.int32], durations: Floats, top: int
) -> tuple[KernelShare, ...]:
    count = np.bincount(row, minlength=len(table))
    time = count * prediction.latency_s
    busy = max(float(durations.sum()), 1e-300)
    order = np.argsort(-time, kind="stable")[:top].tolist()
    return tuple(
        KernelShare(
            name=table.name_of(i),
            family=table.family_of(i),
            shape=shape_text(table, i),
            count=int(count[i]),
            latency_s=float(time[i]),
            share=float(time[i]) / busy,
            bound_by=BOUNDS[int(prediction.bound_by[i])],
            roofline_share=float(prediction.utilisation[i]),
        )
        for i in order
    )


def _modules(prepared: Prepared, durations: Floats, top: int) -> tuple[ModuleShare, ...]:
    groups = len(prepared.modules)
    time = np.bincount(prepared.module, weights=durations, minlength=groups)
    count = np.bincount(prepared.module, minlength=groups)
    busy = max(float(durations.sum()), 1e-300)
    order = np.argsort(-time, kind="stable")[:top].tolist()
    return tuple(
        ModuleShare(prepared.modules[i], int(count[i]), float(time[i]), float(time[i]) / busy)
        for i in order
        if count[i]
    )


def _estimated(
    prepared: Prepared, table: KernelTable, row: NDArray[np.int32], durations: Floats
) -> tuple[dict[str, Any], ...]:
    guessed = np.flatnonzero(table.estimated[row])
    if not len(guessed):
        return ()
    totals: dict[str, list[float]] = {}
    for launch in guessed.tolist():
        name = prepared.graph.ops[int(prepared.launches.op[launch])].name
        entry = totals.setdefault(name, [0, 0.0])
        entry[0] += 1
        entry[1] += float(durations[launch])
    busy = max(float(durations.sum()), 1e-300)
    return tuple(
        {"op": name, "count": int(count), "share": time / busy}
        for name, (count, time) in sorted(totals.items(), key=lambda item: -item[1][1])
    )


def _sources(
    table: KernelTable, prediction: Prediction, law: Law, host: HostModel
) -> tuple[dict[str, str], ...]:
    """One entry for each family present, at the worst domain of its rows, and the host's."""
    entries = []
    for code in np.unique(table.family).tolist():
        worst = int(prediction.domain[table.family == code].max())
        entries.append(
            {"what": FAMILIES[code], "law": law.name, "data": law.data, "stack": law.stack,
             "domain": DOMAINS[worst]}
        )  # fmt: skip
    if host is not NO_HOST:
        entries.append(
            {"what": "host", "law": "eager", "data": HOST_DATA, "stack": "PyTorch eager",
             "domain": "edge"}
        )  # fmt: skip
    return tuple(entries)
