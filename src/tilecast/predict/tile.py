"""The tile law: learned shares of what the silicon offers, over tiles, waves and bytes.

Each family goes to one of two forms: tiled products (`tiled`: gemm, conv as implicit GEMM) or
streams (`stream`: everything that touches its operands once); attention is a tiled product that
keeps its scores on chip. Only shares of datasheet figures are learned, and every term falls as
bandwidth, FLOP/s, SMs or L2 grow, so a forecast is never under the bound and never slower on a
GPU that offers more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tilecast.hardware.gpu import GPU
from tilecast.kernels.table import DIM_NAMES, FAMILIES, REDUCTION_KINDS, Floats, KernelTable
from tilecast.precision import PRECISIONS
from tilecast.predict import weights as weights_file
from tilecast.predict.bound import bound_s
from tilecast.predict.clock import Rate, rate_of
from tilecast.predict.interval import domain_of, interval
from tilecast.predict.law import Prediction
from tilecast.predict.parameters import (
    MATRIX_GROUPS,
    MEMORY_CLASSES,
    REDUCTION_CLASS,
    REDUCTION_CLASSES,
    SOFTMAX_HELD,
    TILES,
    Gemm,
    Parameters,
    Stream,
)
from tilecast.predict.stream import stream_time
from tilecast.predict.tiled import Products, TiledTime, tiled_time

#: Rows priced at a time: the arrays of a chunk stay in a CPU's cache.
CHUNK: Final = 8192
#: Group whose fit prices each family.
GROUP: Final[dict[str, str]] = {
    "gemm": "gemm",
    "conv": "conv",
    "attention": "gemm",
    "reduction": "reduction",
} | dict.fromkeys(("elementwise", "pool", "embedding", "index", "copy", "other"), "elementwise")
#: Least domain code of a family that borrows another's fit: 1 edge, 2 outside.
LEAST_DOMAIN: Final[dict[str, int]] = {
    "gemm": 0, "elementwise": 0, "reduction": 0, "conv": 1, "pool": 1, "embedding": 1,
    "index": 1, "copy": 1, "other": 2, "attention": 2,
}  # fmt: skip
#: Depth in K of one step of a tile, by bytes of an element.
TILE_K_BYTES: Final = 32
#: Rows of a reduction that are worked on at once, of which a second pass may still be in the L2.
ROWS_IN_FLIGHT: Final = 512
#: Query rows that one thread block of a fused attention kernel works on.
ATTENTION_ROWS: Final = 128
_CLASS_OF_KIND: Final = np.array(
    [REDUCTION_CLASSES.index(REDUCTION_CLASS[kind]) for kind in REDUCTION_KINDS]
)

_SOFTMAX: Final = REDUCTION_CLASSES.index("softmax")
_SOFTMAX_LONG: Final = REDUCTION_CLASSES.index("softmax_long")


class TileLaw:
    """The learned law; see the module.

    Attributes:
        parameters: what was learned.
        metadata: of the weights file.
    """

    name = "tile"

    def __init__(
        self,
        parameters: Parameters,
        metadata: dict[str, str] | None = None,
        microbenchmark: bool = False,
    ) -> None:
        """Args:
        microbenchmark: use the published measurements that a GPU description carries (large
            GEMM rate, copy bandwidth, launch) in place of what the datasheet implies.
        """
        self.parameters = parameters
        self.metadata = dict(metadata or {})
        self.microbenchmark = microbenchmark
        self.data = self.metadata.get("data", "")
        self.stack = self.metadata.get("stack", "")

    @staticmethod
    def load(path: str | Path | None = None, microbenchmark: bool = False) -> TileLaw:
        """The law of a weights file (None: the shipped one).

        Raises:
            InputError: the file is missing, damaged or not one of this law.
        """
        tensors, metadata = weights_file.read(path)
        source = f"--weights {path or weights_file.SHIPPED.name}"
        return TileLaw(Parameters.from_tensors(tensors, source), metadata, microbenchmark)

    def predict(self, table: KernelTable, gpu: GPU, level: float = 0.8) -> Prediction:
        """Forecast every row of `table` on `gpu`, with an interval that should hold `level`."""
        rows = len(table)
        out = Prediction(
            latency_s=np.empty(rows), low_s=np.empty(rows), high_s=np.empty(rows),
            bound_s=np.empty(rows), bound_by=np.zeros(rows, dtype=np.int8),
            utilisation=np.empty(rows), tile=np.zeros((rows, 3), dtype=np.int32),
            waves=np.zeros(rows), domain=np.zeros(rows, dtype=np.int8),
        )  # fmt: skip
        keys = table.family.astype(np.int64) * len(PRECISIONS) + table.precision
        for key in np.unique(keys).tolist():
            chosen = np.flatnonzero(keys == key)
            family, precision = FAMILIES[key // len(PRECISIONS)], PRECISIONS[key % len(PRECISIONS)]
            for begin in range(0, len(chosen), CHUNK):
                part = chosen[begin : begin + CHUNK]
                self._predict_part(table.take(part), family, precision, gpu, level, out, part)
        return out

    def _predict_part(
        self,
        table: KernelTable,
        family: str,
        precision: str,
        gpu: GPU,
        level: float,
        out: Prediction,
        rows: NDArray[np.intp],
    ) -> None:
        group = GROUP[family]
        compute, dram, cache = bound_s(table, gpu)
        bound = np.maximum(compute, np.maximum(dram, cache))
        if group in MATRIX_GROUPS:
            work, launch, compute, memory, features = self._matrix(
                table, family, precision, gpu, out, rows
            )
        else:
            work, launch, compute, memory, features = self._stream(table, family, precision, gpu)
        latency = np.maximum(work + launch, bound)
        fitted = (group, precision) in self.parameters.spread
        spread = self.parameters.spread[group, precision if fitted else "fp32"]
        domain = np.maximum(domain_of(features, spread), LEAST_DOMAIN[family])
        if not fitted:
            domain = np.maximum(domain, 2 if group in MATRIX_GROUPS else 1)
        domain = domain.astype(np.int8)
        low, high = interval(latency, spread, domain, level)
        out.latency_s[rows] = latency
        out.low_s[rows] = np.maximum(low, np.minimum(bound, latency))
        out.high_s[rows] = high
        out.bound_s[rows] = bound
        out.bound_by[rows] = np.where(work <= launch, 2, np.where(compute >= memory, 0, 1))
        out.utilisation[rows] = np.clip(bound / latency, np.finfo(np.float64).tiny, 1.0)
        out.domain[rows] = domain

    def _matrix(
        self,
        table: KernelTable,
        family: str,
        precision: str,
        gpu: GPU,
        out: Prediction,
        rows: NDArray[np.intp],
    ) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        law = self._law(GROUP[family], precision)
        rate = self._rate(gpu, law, precision)
        bandwidth = self._bandwidth(gpu, law.dram_efficiency)
        moved = missed_bytes(table, gpu.l2_bytes * law.l2_share)
        if family == "attention":
            work, compute, memory, waves = _attention_time(table, law, gpu, rate, bandwidth, moved)
            out.tile[rows] = (ATTENTION_ROWS, 0, 0)
        else:
            products = products_of(table, family, moved)
            time = tiled_time(
                products,
                law,
                sms=gpu.sms,
                rate=rate,
                dram_bytes_per_s=bandwidth,
                l2_bytes_per_s=gpu.l2_bandwidth * law.l2_efficiency,
                l2_bytes=gpu.l2_bytes,
            )
            work, compute, memory, waves = _of(time)
            out.tile[rows, :2] = np.array(TILES)[time.tile]
            out.tile[rows, 2] = np.maximum(1, TILE_K_BYTES / table.itemsize)
        out.waves[rows] = waves
        features = matrix_features(table, gpu, waves, rate)
        return work, np.full(len(table), self._launch(gpu, law.launch_s)), compute, memory, features

    def _stream(
        self, table: KernelTable, family: str, precision: str, gpu: GPU
    ) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        group = GROUP[family]
        fits = self.parameters.stream
        law: Stream = fits.get((group, precision), fits[group, "fp32"])
        kind = np.zeros(len(table), dtype=np.int64)
        if family == "reduction":
            kind = _CLASS_OF_KIND[
                np.clip(table.dim("reduction", "kind"), 0, len(_CLASS_OF_KIND) - 1)
            ]
        bandwidth = np.array([self._bandwidth(gpu, share) for share in law.dram_efficiency])
        longer, again = np.ones(len(table)), np.ones(len(table))
        if family == "reduction":
            columns = np.maximum(table.dim("reduction", "columns"), 1)
            kind = np.where((kind == _SOFTMAX) & (columns > SOFTMAX_HELD), _SOFTMAX_LONG, kind)
            longer += law.row_overhead[kind] / columns
            in_flight = np.minimum(ROWS_IN_FLIGHT * columns * table.itemsize, table.footprint)
            again += law.reread[kind] * in_flight / (in_flight + gpu.l2_bytes)
        work, memory, vector = stream_time(
            missed_bytes(table, gpu.l2_bytes * law.l2_share[kind]) * longer * again,
            table.footprint * longer,
            table.flops,
            dram_bytes_per_s=bandwidth[kind],
            l2_bytes_per_s=gpu.l2_bandwidth * law.l2_efficiency[kind],
            flops_per_s=gpu.vector_peak(precision) * law.vector_efficiency[kind],
        )
        launch = np.array([self._launch(gpu, own) for own in law.launch_s])[kind]
        return work, launch, vector, memory, stream_features(table, gpu, group)

    def features(self, table: KernelTable, gpu: GPU) -> Floats:
        """Features (features, n) of a table of one group, as `parameters.FEATURES` names them."""
        group = GROUP[table.family_of(0)] if len(table) else "elementwise"
        if group not in MATRIX_GROUPS:
            return stream_features(table, gpu, group)
        waves = self.predict(table, gpu).waves
        precision = table.precision_names[0]
        rate = self._rate(gpu, self._law(group, precision), precision)
        return matrix_features(table, gpu, waves, rate)

    def _law(self, group: str, precision: str) -> Gemm:
        fits = self.parameters.gemm
        return fits.get((group, precision), fits[group, "fp32"])

    def _rate(self, gpu: GPU, law: Gemm, precision: str) -> Rate:
        reached = float(law.tile_efficiency[0].max())
        return rate_of(gpu, precision, self.parameters.sustained, reached, self.microbenchmark)

    def _bandwidth(self, gpu: GPU, efficiency: Floats) -> float:
        published = gpu.microbenchmarks.copy_bandwidth_bytes_per_s
        if self.microbenchmark and published is not None:
            return min(published, gpu.memory_bandwidth_bytes_per_s)
        return gpu.memory_bandwidth_bytes_per_s * float(efficiency[memory_class_of(gpu)])

    def _launch(self, gpu: GPU, learned: float) -> float:
        published = gpu.microbenchmarks.launch_s
        return published if self.microbenchmark and published is not None else float(learned)


def memory_class_of(gpu: GPU) -> int:
    """Index in `MEMORY_CLASSES`: stacked memory (HBM) has a wide bus and its own efficiency."""
    return MEMORY_CLASSES.index("stacked" if gpu.memory_kind.upper().startswith("HBM") else "other")


def matrix_features(table: KernelTable, gpu: GPU, waves: Floats, rate: Rate) -> Floats:
    """Natural logs of FLOPs, waves, intensity over ridge and footprint over L2 (4, n)."""
    flops, size = np.maximum(table.flops, 1.0), np.maximum(table.footprint, 1.0)
    ridge = rate.sustained / gpu.memory_bandwidth_bytes_per_s
    features: Floats = np.log(
        np.array([flops, np.maximum(waves, 1e-9), flops / size / ridge, size / gpu.l2_bytes])
    )
    return features


def stream_features(table: KernelTable, gpu: GPU, group: str) -> Floats:
    """Natural logs of footprint, footprint over L2 and, for reductions, columns (2 or 3, n)."""
    size = np.maximum(table.footprint, 1.0)
    features = [size, size / gpu.l2_bytes]
    if group == "reduction":
        features.append(np.maximum(table.dim("reduction", "columns"), 1).astype(np.float64))
    logs: Floats = np.log(np.array(features))
    return logs


def missed_bytes(table: KernelTable, held_bytes: Floats | float) -> Floats:
    """Bytes that cross the memory bus (n,), where the L2 holds a set of `held_bytes` whole.

    A warm working set is found there up to that size; beyond it the oldest lines are the next ones
    needed, and at twice that size nothing is found. Never less than the bound's `dram_bytes`.
    """
    footprint = table.footprint
    found = table.warm * np.clip(2.0 - footprint / held_bytes, 0.0, 1.0)
    missed: Floats = footprint * (1.0 - found)
    return missed


def _of(time: TiledTime) -> tuple[Floats, Floats, Floats, Floats]:
    return time.time_s, time.compute_s, time.memory_s, time.waves


def products_of(table: KernelTable, family: str, dram: Floats) -> Products:
    """The matrix products that a table of gemm or conv rows runs.

    A convolution is an implicit GEMM for each group: forward M = N*P*Q, N = K/g, K = C/g*R*S; data
    gradient M = N*H*W, N = C/g, K = K/g*R*S*(P*Q)/(H*W), since with a stride not every tap reaches
    an input pixel; weight gradient M = K/g, N = C/g*R*S, K = N*P*Q.
    """
    dims = table.dims.astype(np.float64)
    if family == "gemm":
        batch, m, n, k = (np.maximum(dims[:, i], 1.0) for i in range(4))
    else:
        own = {name: dims[:, i] for i, name in enumerate(DIM_NAMES["conv"])}
        groups, stride = np.maximum(own["groups"], 1.0), np.maximum(own["stride"], 1.0)
        dilation = np.maximum(own["dilation"], 1.0)
        padded = 2 * own["padding"] - 1
        out_h, out_w = (
            np.floor((own[side] + padded - dilation * (own[kernel] - 1)) / stride) + 1
            for side, kernel in (("height", "kernel_h"), ("width", "kernel_w"))
        )  # fmt: skip
        pixels_out = own["batch"] * np.maximum(out_h, 1.0) * np.maximum(out_w, 1.0)
        pixels_in = own["batch"] * own["height"] * own["width"]
        taps = own["kernel_h"] * own["kernel_w"]
        channels_in, channels_out = own["in"] / groups, own["out"] / groups
        which = [own["pass"] == 1, own["pass"] == 2]
        m = np.select(which, [pixels_in, channels_out], pixels_out)
        n = np.select(which, [channels_in, channels_in * taps], channels_out)
        reaching = taps * pixels_out / np.maximum(pixels_in, 1.0)
        k = np.select(which, [channels_out * reaching, pixels_out], channels_in * taps)
        batch, m, n, k = (np.maximum(size, 1.0) for size in (groups, m, n, k))
    return Products(batch, m, n, k, table.itemsize, table.footprint, dram)


def _attention_time(
    table: KernelTable, law: Gemm, gpu: GPU, rate: Rate, bandwidth: float, moved: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    heads = table.dim("attention", "batch") * table.dim("attention", "heads")
    blocks = np.ceil(table.dim("attention", "q_len") / ATTENTION_ROWS)
    filled = np.maximum(heads * blocks, 1.0) / gpu.sms
    # FLOPs over the blocks that there are: a part-filled round costs as much of a full one as in
    # any tiled product
    rounds = np.ceil(filled) * law.quantised + np.maximum(filled, 1.0) * (1.0 - law.quantised)
    reached = rate.flops_per_s * float(law.tile_efficiency[0].max())
    compute = rate.limited(table.flops * (rounds + law.tail.min()) / filled / reached, table.flops)
    memory = np.maximum(moved / bandwidth, table.footprint / (gpu.l2_bandwidth * law.l2_efficiency))
    return np.cbrt(compute**3 + memory**3), compute, memory, filled
