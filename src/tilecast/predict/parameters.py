"""What the tile law learned: named arrays, their shapes and their limits.

A parameter's name is `<group>/<precision>/<field>`: the group is a kernel family with a fit of its
own, the precision what its arithmetic ran in. Every efficiency is a share of what the datasheet
says, in (0, 1], so that no weights file can push a forecast under the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from tilecast.errors import InputError
from tilecast.kernels.table import REDUCTION_KINDS, Floats
from tilecast.precision import PRECISIONS

Tensors = Mapping[str, NDArray[np.float64]]

#: Tiles (rows M, columns N) that a GEMM may be cut into: the sizes that cuBLAS and rocBLAS
#: kernels carry in their names, and their transposes.
TILES: Final[tuple[tuple[int, int], ...]] = (
    (256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128),
    (32, 32),
)  # fmt: skip
#: How a product is launched: libraries choose tiles for single products with more care than for
#: batched ones, so that a tile's standing differs.
GEMM_KINDS: Final[tuple[str, ...]] = ("single", "batched")
#: Memory technologies with an efficiency of their own: `other` is GDDR and everything else.
MEMORY_CLASSES: Final[tuple[str, ...]] = ("other", "stacked")
#: Classes of reduction with an efficiency of their own. Rows of a softmax that are longer than
#: `SOFTMAX_HELD` do not fit in a warp's registers and are read again from memory.
REDUCTION_CLASSES: Final[tuple[str, ...]] = ("sum", "softmax", "norm", "search", "softmax_long")
SOFTMAX_HELD: Final = 1024
REDUCTION_CLASS: Final[dict[str, str]] = {
    kind: "softmax" if "softmax" in kind
    else "norm" if "norm" in kind
    else "search" if kind in ("argmax", "topk", "sort", "cumsum")
    else "sum"
    for kind in REDUCTION_KINDS
}  # fmt: skip
#: Probabilities at which the quantiles of the log error are kept.
QUANTILES: Final[Floats] = np.concatenate([[0.005, 0.01, 0.025], np.arange(1, 20) / 20,
                                           [0.975, 0.99, 0.995]])  # fmt: skip
#: Features whose training range decides the domain, by group.
FEATURES: Final[dict[str, tuple[str, ...]]] = {
    "gemm": ("log_flops", "log_rounds", "log_intensity_over_ridge", "log_bytes_over_l2"),
    "conv": ("log_flops", "log_rounds", "log_intensity_over_ridge", "log_bytes_over_l2"),
    "elementwise": ("log_bytes", "log_bytes_over_l2"),
    "reduction": ("log_bytes", "log_bytes_over_l2", "log_columns"),
}


@dataclass(frozen=True, slots=True)
class Sustained:
    """Clock that the power limit allows (`tilecast.predict.clock`).

    Attributes:
        idle_w: power that is not arithmetic, W.
        energy_j: J per fp32 FLOP at 7 nm.
        process_exponent: energy goes with process size to this power.
        voltage_exponent: at least 1; how steeply power rises with the clock.
        energy_ratio: (precisions,) energy of a FLOP over that of fp32.
    """

    idle_w: float
    energy_j: float
    process_exponent: float
    voltage_exponent: float
    energy_ratio: Floats


@dataclass(frozen=True, slots=True)
class Gemm:
    """Tiled matrix products (`tilecast.predict.tiled`).

    Attributes:
        tile_efficiency: (kinds, tiles) share of its peak that a full SM reaches in each tile; low
            where the library does not choose the tile although it would be fast.
        tail: (tiles,) rounds lost to filling and draining the SMs, and to SMs that hold too few
            blocks of the tile to hide latency.
        split_k: depth of K under which single products are not split over blocks.
        quantised: 0 to 1, how much a part-filled last round costs of a full one.
        k_overhead: prologue and epilogue of a tile, as additional length of K.
        dram_efficiency: (memory classes,) share of the memory bandwidth.
        l2_efficiency: share of the L2 bandwidth.
        reread: share of the re-reads of operands that miss an L2 much smaller than they.
        l2_share: part of the L2 that a working set must fit in to be found there whole.
        energy_share: arithmetic that draws power, of the FLOPs counted: less than 1 where a library
            computes the same result with fewer (Winograd convolutions).
        launch_s: time of an empty kernel.
    """

    tile_efficiency: Floats
    tail: Floats
    split_k: float
    quantised: float
    k_overhead: float
    dram_efficiency: Floats
    l2_efficiency: float
    reread: float
    l2_share: float
    energy_share: float
    launch_s: float


@dataclass(frozen=True, slots=True)
class Stream:
    """Kernels that stream their operands once (`tilecast.predict.stream`).

    Attributes:
        dram_efficiency: (classes, memory classes) share of the memory bandwidth.
        l2_efficiency: (classes,) share of the L2 bandwidth.
        vector_efficiency: (classes,) share of the vector FLOP rate.
        l2_share: (classes,) part of the L2 that a working set must fit in to be found there whole.
        reread: (classes,) passes over the data beyond the first, where rows in flight miss the L2.
        row_overhead: (classes,) start and end of a row, as additional elements of it.
        launch_s: (classes,) time of an empty kernel.
    """

    dram_efficiency: Floats
    l2_efficiency: Floats
    vector_efficiency: Floats
    l2_share: Floats
    reread: Floats
    row_overhead: Floats
    launch_s: Floats


@dataclass(frozen=True, slots=True)
class Spread:
    """How far off forecasts of left-out GPUs were, and where the fit was.

    Attributes:
        log_error: (quantiles,) quantiles of log(measured / forecast) at `QUANTILES`.
        feature_low, feature_high: (features,) range of the training rows.
    """

    log_error: Floats
    feature_low: Floats
    feature_high: Floats


#: Groups that are matrix products; the others stream.
MATRIX_GROUPS: Final[tuple[str, ...]] = ("gemm", "conv")
#: Limits of each field: (low, high).
LIMITS: Final[dict[str, tuple[float, float]]] = {
    "idle_w": (0.0, 1e3), "energy_j": (1e-16, 1e-8), "process_exponent": (0.0, 4.0),
    "voltage_exponent": (1.0, 4.0), "energy_ratio": (1e-4, 10.0),
    "tile_efficiency": (1e-3, 1.0), "tail": (0.0, 10.0), "split_k": (1.0, 1e9),
    "quantised": (0.0, 1.0),
    "k_overhead": (0.0, 1e4), "dram_efficiency": (1e-3, 1.0), "l2_efficiency": (1e-3, 1.0),
    "vector_efficiency": (1e-3, 1.0), "reread": (0.0, 1.0), "launch_s": (0.0, 1e-3),
    "l2_share": (1e-2, 1.0), "energy_share": (1e-2, 1.0), "row_overhead": (0.0, 1e4),
    "log_error": (-20.0, 20.0), "feature_low": (-100.0, 100.0), "feature_high": (-100.0, 100.0),
}  # fmt: skip


def _shapes(group: str) -> dict[str, tuple[int, ...]]:
    memory = len(MEMORY_CLASSES)
    classes = {"elementwise": 1, "reduction": len(REDUCTION_CLASSES)}.get(group, 0)
    if group == "sustained":
        return {"energy_ratio": (len(PRECISIONS),)}
    if group in MATRIX_GROUPS:
        return {"tile_efficiency": (len(GEMM_KINDS), len(TILES)), "tail": (len(TILES),),
            "dram_efficiency": (memory,),
        }  # fmt: skip
    return {
        "dram_efficiency": (classes, memory), "l2_efficiency": (classes,),
        "vector_efficiency": (classes,), "l2_share": (classes,),
        "reread": (classes,), "row_overhead": (classes,), "launch_s": (classes,),
    }  # fmt: skip


Record = TypeVar("Record", Sustained, Gemm, Stream, Spread)


def _read(
    record: type[Record],
    tensors: Tensors,
    prefix: str,
    shapes: Mapping[str, tuple[int, ...]],
    source: str,
) -> Record:
    values: dict[str, Any] = {}
    for field in fields(record):
        key = f"{prefix}/{field.name}"
        if key not in tensors:
            raise InputError(f"{source}: {key} is missing, not a weights file of the tile law")
        value = np.asarray(tensors[key], dtype=np.float64)
        shape = shapes.get(field.name, ())
        if value.shape != shape:
            raise InputError(f"{source}: {key} has shape {value.shape}, expected {shape}")
        low, high = LIMITS[field.name]
        if not np.all((value >= low) & (value <= high)):  # NaN fails as well
            raise InputError(f"{source}: {key} is not within {low:g} to {high:g}")
        values[field.name] = value if shape else float(value)
    return record(**values)


@dataclass(frozen=True, slots=True)
class Parameters:
    """All that the tile law learned.

    Attributes:
        sustained: the clock under a power limit.
        gemm: by (group, precision), groups `gemm` and `conv`.
        stream: by (group, precision), groups `elementwise` and `reduction`.
        spread: by (group, precision).
    """

    sustained: Sustained
    gemm: dict[tuple[str, str], Gemm]
    stream: dict[tuple[str, str], Stream]
    spread: dict[tuple[str, str], Spread]

    @staticmethod
    def from_tensors(tensors: Tensors, source: str = "weights") -> Parameters:
        """Read and check every array.

        Raises:
            InputError: one is missing, misshapen, not finite or out of its limits; names it and
                `source`.
        """
        precisions = sorted(
            {key.split("/")[1] for key in tensors if key.split("/")[0] in FEATURES and "/" in key}
            | {"fp32"}
        )
        gemm: dict[tuple[str, str], Gemm] = {}
        stream: dict[tuple[str, str], Stream] = {}
        spread: dict[tuple[str, str], Spread] = {}
        for precision in precisions:
            if precision not in PRECISIONS:
                raise InputError(f"{source}: unknown precision {precision!r}")
            for group, features in FEATURES.items():
                prefix = f"{group}/{precision}"
                if precision != "fp32" and not any(k.startswith(prefix + "/") for k in tensors):
                    continue
                if group in MATRIX_GROUPS:
                    gemm[group, precision] = _read(Gemm, tensors, prefix, _shapes(group), source)
                else:
                    stream[group, precision] = _read(
                        Stream, tensors, prefix, _shapes(group), source
                    )
                sizes = {"log_error": (len(QUANTILES),), "feature_low": (len(features),),
                         "feature_high": (len(features),)}  # fmt: skip
                spread[group, precision] = _read(Spread, tensors, prefix, sizes, source)
        sustained = _read(Sustained, tensors, "sustained", _shapes("sustained"), source)
        return Parameters(sustained, gemm, stream, spread)

    def to_tensors(self) -> dict[str, NDArray[np.float64]]:
        """The same as named arrays; `from_tensors` reads them back."""
        tensors: dict[str, NDArray[np.float64]] = {}

        def write(prefix: str, record: Sustained | Gemm | Stream | Spread) -> None:
            for field in fields(record):
                value = np.asarray(getattr(record, field.name), dtype=np.float64)
                tensors[f"{prefix}/{field.name}"] = value

        write("sustained", self.sustained)
        for (group, precision), record in self.gemm.items():
            write(f"{group}/{precision}", record)
        for (group, precision), streamed in self.stream.items():
            write(f"{group}/{precision}", streamed)
        for (group, precision), spread in self.spread.items():
            write(f"{group}/{precision}", spread)
        return tensors
