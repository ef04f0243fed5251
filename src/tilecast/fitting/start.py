"""Where a fit starts, which parameters it may move, and between which limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tilecast.kernels.table import Floats
from tilecast.precision import PRECISIONS
from tilecast.predict.parameters import (
    FEATURES,
    GEMM_KINDS,
    MATRIX_GROUPS,
    QUANTILES,
    REDUCTION_CLASSES,
    TILES,
    Gemm,
    Parameters,
    Spread,
    Stream,
    Sustained,
)

#: Energy of a FLOP over that of fp32, by precision: the ratio of peaks at equal board power on
#: GPUs with matrix cores. Not fitted: the training data are fp32.
ENERGY_RATIO: Final[dict[str, float]] = {
    "fp64": 2.0, "fp32": 1.0, "tf32": 0.3, "fp16": 0.15, "bf16": 0.15, "fp8": 0.08,
    "fp8-block": 0.08, "mxfp8": 0.08, "nvfp4": 0.05, "mxfp4": 0.05, "int8": 0.08, "int4": 0.05,
    "int32": 1.0,
}  # fmt: skip
#: Time of an empty kernel on the device. Not fitted: the protocol's host time hides it.
LAUNCH_S: Final = 3e-6

#: Passes over the data beyond the first, in footprints of one read and one write: a layer norm,
#: and a softmax of rows that a warp cannot hold, read their rows twice. Not fitted.
REREAD: Final = tuple(0.5 * (name in ("norm", "softmax_long")) for name in REDUCTION_CLASSES)


def _stream(classes: int) -> Stream:
    return Stream(
        dram_efficiency=np.tile([0.78, 0.85], (classes, 1)),
        l2_efficiency=np.full(classes, 0.4),
        vector_efficiency=np.full(classes, 0.3),
        l2_share=np.full(classes, 0.6),
        reread=np.array(REREAD) if classes > 1 else np.zeros(classes),
        row_overhead=np.full(classes, 4.0),
        launch_s=np.full(classes, LAUNCH_S),
    )


def _gemm(energy_share: float) -> Gemm:
    efficiency = [0.90, 0.90, 0.92, 0.88, 0.88, 0.80, 0.75, 0.75, 0.50]
    return Gemm(
        tile_efficiency=np.tile(efficiency, (len(GEMM_KINDS), 1)),
        tail=np.full(len(TILES), 0.4),
        split_k=1000.0,
        quantised=0.7,
        k_overhead=24.0,
        dram_efficiency=np.array([0.78, 0.85]),
        l2_efficiency=0.5,
        reread=0.1,
        l2_share=0.6,
        energy_share=energy_share,
        launch_s=LAUNCH_S,
    )


def _spread(features: int) -> Spread:
    return Spread(
        np.interp(QUANTILES, [0, 0.1, 0.5, 0.9, 1], [-0.6, -0.25, 0, 0.25, 0.6]),
        np.full(features, -100.0), np.full(features, 100.0),
    )  # fmt: skip


#: Starting values. The process exponent is set, not fitted, since too few power-limited GPUs are
#: in the training rows: boards of one maker and class went from 22 to 5.4 W per TFLOP/s of fp32
#: between 16 nm and 5 nm (250 W / 11.3 TFLOP/s to 450 W / 82.6 TFLOP/s), exponent 1.2.
START: Final = Parameters(
    sustained=Sustained(
        idle_w=15.0,
        energy_j=6.7e-12,
        process_exponent=1.2,
        voltage_exponent=1.2,
        energy_ratio=np.array([ENERGY_RATIO[precision] for precision in PRECISIONS]),
    ),
    gemm={("gemm", "fp32"): _gemm(1.0), ("conv", "fp32"): _gemm(0.6)},
    stream={
        ("elementwise", "fp32"): _stream(1),
        ("reduction", "fp32"): _stream(len(REDUCTION_CLASSES)),
    },
    spread={(group, "fp32"): _spread(len(names)) for group, names in FEATURES.items()},
)


@dataclass(frozen=True, slots=True)
class Free:
    """A field that a fit may move.

    Attributes:
        record: `sustained`, or a group with a record in fp32.
        field: of it.
        low, high: limits.
        prior: how far from its start it may go before that costs as much as a poor fit does, in
            natural logs (or its own unit where not `log`).
        log: whether the fit moves its logarithm.
    """

    record: str
    field: str
    low: float
    high: float
    prior: float = 0.5
    log: bool = True

    def size(self, law: Parameters) -> int:
        """Number of values."""
        return int(np.size(getattr(record_of(law, self.record), self.field)))


_FREE: Final[dict[str, tuple[Free, ...]]] = {
    "sustained": (
        Free("sustained", "energy_j", 1e-12, 4e-11),
        Free("sustained", "voltage_exponent", 1.0, 3.0, log=False),
    ),
    "matrix": (
        Free("", "tile_efficiency", 0.02, 0.99),
        Free("", "tail", 0.0, 3.0, log=False),
        Free("", "split_k", 64.0, 1e5, prior=1.0),
        Free("", "quantised", 0.0, 1.0, log=False),
        Free("", "k_overhead", 1.0, 400.0, prior=1.0),
        Free("", "dram_efficiency", 0.3, 0.98, prior=0.2),
        Free("", "l2_efficiency", 0.05, 1.0),
        Free("", "reread", 1e-3, 1.0, prior=1.0),
        Free("", "l2_share", 0.1, 1.0),
    ),
    "stream": (
        Free("", "dram_efficiency", 0.3, 0.99, prior=0.2),
        Free("", "l2_efficiency", 0.02, 1.0),
        Free("", "vector_efficiency", 0.01, 1.0),
        Free("", "l2_share", 0.1, 1.0),
        Free("", "row_overhead", 0.1, 2000.0, prior=2.0),
    ),
}


def free_fields(group: str) -> list[Free]:
    """Fields that the fit of a group moves."""
    kind = "matrix" if group in MATRIX_GROUPS else "stream"
    own = [replace(free, record=group) for free in _FREE[kind]]
    # the power limit is learned where products are plain; convolutions may run fewer FLOPs
    if group == "gemm":
        return [*_FREE["sustained"], *own]
    return [*own, Free("conv", "energy_share", 0.05, 1.0)] if group == "conv" else own


def record_of(law: Parameters, record: str) -> Any:
    """The record that a `Free` names."""
    if record == "sustained":
        return law.sustained
    fits: Any = law.gemm if record in MATRIX_GROUPS else law.stream
    return fits[record, "fp32"]


def pack(law: Parameters, free: Sequence[Free]) -> tuple[Floats, Floats, Floats]:
    """Values, lower and upper limits of the free fields as one vector each."""
    values, low, high = [], [], []
    for one in free:
        own = np.ravel(np.asarray(getattr(record_of(law, one.record), one.field), np.float64))
        own = np.clip(own, one.low, one.high)
        ends = np.array([one.low, one.high])
        if one.log:
            own, ends = np.log(own), np.log(ends)
        margin = 1e-6 * (ends[1] - ends[0])  # the solver wants to start inside
        values.append(np.clip(own, ends[0] + margin, ends[1] - margin))
        low.append(np.full(own.shape, ends[0]))
        high.append(np.full(own.shape, ends[1]))
    return np.concatenate(values), np.concatenate(low), np.concatenate(high)


def unpack(law: Parameters, free: Sequence[Free], values: Floats) -> Parameters:
    """The law with its free fields set from a vector of `pack`'s order."""
    at = 0
    for one in free:
        old = getattr(record_of(law, one.record), one.field)
        size = int(np.size(old))
        new = values[at : at + size]
        at += size
        new = np.clip(np.exp(new) if one.log else new, one.low, one.high)
        value = new.reshape(np.shape(old)) if np.ndim(old) else float(new[0])
        record = replace(record_of(law, one.record), **{one.field: value})
        if one.record == "sustained":
            law = replace(law, sustained=record)
        elif one.record in MATRIX_GROUPS:
            law = replace(law, gemm={**law.gemm, (one.record, "fp32"): record})
        else:
            law = replace(law, stream={**law.stream, (one.record, "fp32"): record})
    return law
