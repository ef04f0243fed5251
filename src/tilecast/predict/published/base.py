"""What the published laws share: kernel classes, checked arrays, and a whole prediction.

A published law gives the time of the kernels of one class on one GPU. The bound, the interval (from
GPUs that were left out of the fit) and the domain are the same for all of them, and so is a plain
roofline for what a law has no fit for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tilecast.errors import InputError
from tilecast.hardware.gpu import GPU
from tilecast.kernels.table import FAMILY_CODE, REDUCTION_KINDS, Floats, KernelTable
from tilecast.precision import PRECISION_CODE
from tilecast.predict.bound import bound_s, peak_flops
from tilecast.predict.interval import domain_of, interval
from tilecast.predict.law import Prediction
from tilecast.predict.parameters import QUANTILES, Spread

#: Classes of kernels that the published laws fit apart. `other` has no fit.
CLASSES: Final = ("bmm", "linear", "conv", "vec1", "vec2", "softmax", "norm", "other")
#: Classes that a law may fit.
FITTED: Final = CLASSES[:-1]
MATRIX_CLASSES: Final = ("bmm", "linear", "conv")
#: Prefix of a clock's host times in a weights file.
PROTOCOL: Final = "protocol/"
#: Time of an empty kernel, for kernels without a fit.
LAUNCH_S: Final = 3e-6
#: Rows priced at a time.
CHUNK: Final = 4096
#: Interval of a kernel without a fit: from half to twice the forecast at level 0.8.
_UNFITTED: Final = Spread(
    np.interp(QUANTILES, [0, 0.1, 0.9, 1], [-1.4, -0.7, 0.7, 1.4]),
    np.full(2, 99.0), np.full(2, -99.0),
)  # fmt: skip
_CLASS_OF_KIND: Final = np.array([
    CLASSES.index("softmax" if "softmax" in kind else "norm" if "norm" in kind else "other")
    for kind in REDUCTION_KINDS
])  # fmt: skip


def classes_of(table: KernelTable) -> NDArray[np.int64]:
    """Codes into `CLASSES` (n,): batched and single products, convolutions, elementwise kernels of
    one operand and of more, softmax, norms, and all else."""
    made = np.full(len(table), CLASSES.index("other"), dtype=np.int64)
    family = table.family
    gemm = family == FAMILY_CODE["gemm"]
    batched = table.dim("gemm", "batch") > 1
    made[gemm] = np.where(batched[gemm], CLASSES.index("bmm"), CLASSES.index("linear"))
    made[family == FAMILY_CODE["conv"]] = CLASSES.index("conv")
    vector = family == FAMILY_CODE["elementwise"]
    pair = table.dim("elementwise", "inputs") > 1
    made[vector] = np.where(pair[vector], CLASSES.index("vec2"), CLASSES.index("vec1"))
    reduction = family == FAMILY_CODE["reduction"]
    kind = np.clip(table.dim("reduction", "kind"), 0, len(_CLASS_OF_KIND) - 1)
    made[reduction] = _CLASS_OF_KIND[kind[reduction]]
    return made


def figures_of(gpu: GPU) -> Floats:
    """Memory (GB), bandwidth (GB/s), SMs, fp32 rate (GFLOP/s) and L2 (MB) of a GPU (5,)."""
    return np.array([
        gpu.memory_bytes / 1e9, gpu.memory_bandwidth_bytes_per_s / 1e9, float(gpu.sms),
        gpu.vector_peak("fp32") / 1e9, gpu.l2_bytes / 1e6,
    ])  # fmt: skip


def features_of(table: KernelTable) -> Floats:
    """Natural logs of FLOPs and unique bytes (2, n), for the domain."""
    logs: Floats = np.log(np.maximum([table.flops, table.footprint], 1.0))
    return logs


@dataclass(frozen=True, slots=True)
class Priced:
    """n kernels of one class on one GPU.

    Attributes:
        latency_s: (n,).
        waves: (n,) rounds of tiles, 0 where a law has none.
        tile: (n, 3) tile M, N, K, zeros where a law has none.
    """

    latency_s: Floats
    waves: Floats
    tile: NDArray[np.int64]

    @staticmethod
    def plain(latency_s: Floats) -> Priced:
        """Times of a law without tiles."""
        rows = len(latency_s)
        return Priced(latency_s, np.zeros(rows), np.zeros((rows, 3), dtype=np.int64))


def roofline_s(table: KernelTable, gpu: GPU) -> Floats:
    """max(FLOPs / peak, bytes / bandwidth) + launch (n,), caches empty."""
    compute = table.flops / peak_flops(table, gpu)
    memory = table.footprint / gpu.memory_bandwidth_bytes_per_s
    return np.maximum(compute, memory) + LAUNCH_S


def spread_tensors(name: str, spread: Spread) -> dict[str, Floats]:
    """Arrays of one class's spread for a weights file."""
    return {
        f"spread/{name}/log_error": spread.log_error,
        f"spread/{name}/feature_low": spread.feature_low,
        f"spread/{name}/feature_high": spread.feature_high,
    }


class PublishedLaw:
    """A published law over named arrays; a subclass prices one class of kernels.

    Attributes:
        tensors: what was learned.
        metadata: of the weights file.
        protocol: host times of the clock that the data were taken with, if the fit took them off.
    """

    name: str = ""

    def __init__(
        self,
        tensors: Mapping[str, NDArray[Any]],
        metadata: Mapping[str, str] | None = None,
        source: str = "weights",
    ) -> None:
        """Raises:
        InputError: an array is missing, misshapen or not finite.
        """
        self.source = source
        self.tensors = {key: np.asarray(value, dtype=np.float64) for key, value in tensors.items()}
        for key, value in self.tensors.items():
            if not np.isfinite(value).all():
                raise InputError(f"{source}: {key} is not finite")
        self.metadata = dict(metadata or {})
        self.data = self.metadata.get("data", "")
        self.stack = self.metadata.get("stack", "")
        self.protocol = {k: v for k, v in self.tensors.items() if k.startswith(PROTOCOL)}
        self.spread = {
            name: Spread(
                self.get(f"spread/{name}/log_error", len(QUANTILES)),
                self.get(f"spread/{name}/feature_low", 2),
                self.get(f"spread/{name}/feature_high", 2),
            )
            for name in CLASSES
            if f"spread/{name}/log_error" in self.tensors
        }
        self.prepare()

    def prepare(self) -> None:
        """Check and unpack the arrays."""

    def get(self, key: str, *shape: int) -> Floats:
        """An array by name; `shape` is checked where given, -1 standing for any length.

        Raises:
            InputError: it is missing or has another shape.
        """
        if key not in self.tensors:
            raise InputError(f"{self.source}: {key} is missing, not weights of the {self.name} law")
        value = self.tensors[key]
        fits = len(value.shape) == len(shape) and all(
            want in (-1, have) for want, have in zip(shape, value.shape, strict=True)
        )
        if not fits:
            raise InputError(f"{self.source}: {key} has shape {value.shape}, expected {shape}")
        return value

    def price(self, table: KernelTable, kind: str, gpu: GPU) -> Priced | None:
        """Kernels of one class on a GPU; None where the law has no fit for the class."""
        raise NotImplementedError

    def predict(self, table: KernelTable, gpu: GPU, level: float = 0.8) -> Prediction:
        """Forecast every row of `table` on `gpu`, with an interval that should hold `level`."""
        rows = len(table)
        compute, dram, cache = bound_s(table, gpu)
        memory = np.maximum(dram, cache)
        bound = np.maximum(compute, memory)
        latency, waves = np.empty(rows), np.zeros(rows)
        low, high = np.empty(rows), np.empty(rows)
        tile = np.zeros((rows, 3), dtype=np.int32)
        domain = np.full(rows, 2, dtype=np.int8)
        classes = classes_of(table)
        for code in np.unique(classes).tolist():
            chosen = np.flatnonzero(classes == code)
            for begin in range(0, len(chosen), CHUNK):
                part = chosen[begin : begin + CHUNK]
                own = table.take(part)
                priced = self.price(own, CLASSES[code], gpu)
                spread = self.spread.get(CLASSES[code], _UNFITTED)
                if priced is None:
                    priced, spread = Priced.plain(roofline_s(own, gpu)), _UNFITTED
                made = np.maximum(priced.latency_s, np.maximum(bound[part], 1e-9))
                where = domain_of(features_of(own), spread)
                where[own.precision != PRECISION_CODE["fp32"]] = 2
                bottom, top = interval(made, spread, where, level)
                latency[part], waves[part], domain[part] = made, priced.waves, where
                low[part], high[part] = np.maximum(bottom, np.minimum(bound[part], made)), top
                tile[part] = np.minimum(priced.tile, np.iinfo(np.int32).max)
        which = np.where(bound < 0.1 * latency, 2, np.where(compute >= memory, 0, 1))
        return Prediction(
            latency_s=latency, low_s=low, high_s=high, bound_s=bound,
            bound_by=which.astype(np.int8),
            utilisation=np.clip(bound / latency, np.finfo(np.float64).tiny, 1.0),
            tile=tile, waves=waves, domain=domain,
        )  # fmt: skip
