"""NeuSight: the utilisation of a tile, learned, over the roofline.

Seonho Lee, Amar Phanishayee and Divya Mahajan, "NeuSight: Forecasting GPU Performance for Deep
Learning Training and Inference" (ASPLOS 2025, arXiv 2407.13853). For a kernel cut into tiles

    blocks   = B * ceil(M / tm) * ceil(N / tn)     products, with K whole in a tile
             = ceil(elements / tile)               elementwise
             = rows                                softmax and norms, a row a tile
    waves    = ceil(blocks / SMs)
    roofline = min(FLOP/s, blocks * FLOPs of a tile / unique bytes * bandwidth)
    util     = sigmoid(gamma) - sigmoid(alpha) / waves
    time     = waves * FLOPs of a tile * SMs / (roofline * util)

alpha and gamma are a perceptron's (one each for batched products, products, elementwise, softmax
and norms) on the log2 of: a tile's FLOPs over an SM's share of the peak, its bytes over an SM's
share of the bandwidth, and bytes of all waves over an SM's share of the memory and of the L2. The
tile is that of the nearest kernel of the same class in the data of the fit. FLOPs of an element are
1, of a softmax 5, of a norm 6, as the authors count them.

Differences from the authors' code: nets are 4 x 64 (theirs 8 x 512) on standardised inputs; the
look-up holds a sample of the data; elementwise kernels are cut over all their elements, and looked
up by them, not by rows and columns; operators of one class share its look-up. Kernels without a
class (convolutions, fused attention, gathers) take the roofline with a launch. By default
distances in the look-up are between logarithms, the utilisation is held above the least of the
data, a backward pass is priced by its own bytes, and the host's part is off the times
(`tilecast.fitting.published`). A faithful fit keeps theirs: distances
of plain sizes and figures, the backward of a norm priced as a multiplication and that of a softmax
as a multiplication and a softmax, times as measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tilecast.hardware.gpu import GPU
from tilecast.kernels import elementwise, reduction
from tilecast.kernels.table import REDUCTION_KINDS, Floats, KernelTable
from tilecast.predict.bound import peak_flops
from tilecast.predict.published.base import Priced, PublishedLaw, figures_of
from tilecast.predict.published.net import Net

#: Net of each class.
NETS: Final[dict[str, str]] = {
    "bmm": "bmm", "linear": "linear", "vec1": "vec", "vec2": "vec", "softmax": "softmax",
    "norm": "norm",
}  # fmt: skip
#: Sizes of a kernel by which its tile is looked up; none where the tile is a row.
LOOKED_UP: Final[dict[str, int]] = {"bmm": 4, "linear": 4, "vec1": 1, "vec2": 1}
OPS_OF_AN_ELEMENT: Final = {"softmax": 5.0, "norm": 6.0}
INPUTS: Final = 4
#: Least utilisation that a fit starts from.
UTILISATION_LEAST: Final = 1e-6
#: Rows of a distance matrix at a time.
CHUNK: Final = 256


@dataclass(frozen=True, slots=True)
class Tiled:
    """n kernels of one class as tiles on a GPU, each (n,).

    Attributes:
        tile_flops, tile_bytes: of one tile.
        blocks: tiles.
        waves: rounds of them that fill the SMs, whole.
        roofline: FLOP/s that the kernel could reach.
        inputs: (n, 4) of the net.
    """

    tile_flops: Floats
    tile_bytes: Floats
    blocks: Floats
    waves: Floats
    roofline: Floats
    inputs: Floats

    def work_s(self, sms: int) -> Floats:
        """Time (n,) at a utilisation of 1."""
        made: Floats = self.waves * self.tile_flops * sms / self.roofline
        return made


def sizes_of(table: KernelTable, kind: str) -> Floats:
    """Sizes (n, LOOKED_UP[kind]): batch, M, N, K of products; elements of elementwise kernels."""
    sizes: Floats = np.maximum(table.dims[:, : LOOKED_UP[kind]], 1).astype(np.float64)
    return sizes


def tiled(table: KernelTable, kind: str, tile: Floats, gpu: GPU) -> Tiled:
    """Kernels of one class cut into tiles (see the module).

    Args:
        tile: (n, 2): columns and rows of the result for products (the order in the names of
            kernels of column-major libraries), elements and 0 for elementwise kernels; not read
            for softmax and norms.
    """
    itemsize = table.itemsize
    unique = np.maximum(table.footprint, 1.0)
    if kind in ("bmm", "linear"):
        batch, m, n, k = sizes_of(table, kind).T
        tile_n, tile_m = tile.T
        flops = 2.0 * tile_m * tile_n * k
        size = itemsize * (tile_m * k + k * tile_n + tile_m * tile_n)
        blocks = batch * np.ceil(m / tile_m) * np.ceil(n / tile_n)
    elif kind in ("vec1", "vec2"):
        elements = sizes_of(table, kind)[:, 0]
        flops, size = tile[:, 0], tile[:, 0] * unique / elements
        blocks = np.ceil(elements / tile[:, 0])
    else:
        blocks = np.maximum(table.dim("reduction", "rows"), 1).astype(np.float64)
        columns = np.maximum(table.dim("reduction", "columns"), 1)
        flops, size = OPS_OF_AN_ELEMENT[kind] * columns, unique / blocks
    waves = np.ceil(blocks / gpu.sms)
    peak = peak_flops(table, gpu)
    bandwidth = gpu.memory_bandwidth_bytes_per_s
    inputs = np.log2(np.stack([
        flops * gpu.sms / peak, size * gpu.sms / bandwidth,
        waves * size * gpu.sms / gpu.memory_bytes, waves * size * gpu.sms / gpu.l2_bytes,
    ], axis=1))  # fmt: skip
    roofline = np.minimum(peak, blocks * flops / unique * bandwidth)
    return Tiled(flops, size, blocks, waves, roofline, inputs)


def utilisation(outputs: Floats, waves: Floats, least: float = UTILISATION_LEAST) -> Floats:
    """sigmoid(gamma) - sigmoid(alpha) / waves (n,) of outputs (n, 2: alpha, gamma).

    Held between `least` and 1: the formula can fall to 0 and below with few waves.
    """
    alpha, gamma = sigmoid(outputs).T
    value: Floats = np.clip(gamma - alpha / waves, least, 1.0)
    return value


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + exp(-x))."""
    value: Floats = 1.0 / (1.0 + np.exp(-np.clip(x, -60.0, 60.0)))
    return value


def nearest(query: Floats, known: Floats) -> NDArray[np.intp]:
    """Row of `known` (m, d) at the least Euclidean distance from each row of `query` (n, d)."""
    square = np.einsum("md,md->m", known, known)
    made = np.empty(len(query), dtype=np.intp)
    for begin in range(0, len(query), CHUNK):
        part = query[begin : begin + CHUNK]
        made[begin : begin + CHUNK] = np.argmin(square - 2.0 * (part @ known.T), axis=1)
    return made


class NeuSightLaw(PublishedLaw):
    """NeuSight; see the module.

    Arrays: `figures` (GPUs, 5); a net for each of `NETS`; for each class of `LOOKED_UP` its
    `tiles` (rows, sizes + 3): sizes, row of `figures`, tile; `least` utilisation of each net (1,);
    `faithful` (1,).
    """

    name = "neusight"

    def prepare(self) -> None:
        """Check and unpack the arrays."""
        self.figures = np.maximum(self.get("figures", -1, 5), 1e-9)
        self.faithful = bool(self.get("faithful", 1)[0])
        self.nets = {
            net: Net.from_tensors(self.tensors, self.get, f"net/{net}", INPUTS, 2)
            for net in dict.fromkeys(NETS.values())
            if any(key.startswith(f"net/{net}/") for key in self.tensors)
        }
        self.least = {
            net: float(np.clip(self.get(f"least/{net}", 1)[0], UTILISATION_LEAST, 1.0))
            for net in self.nets
        }
        self.known: dict[str, tuple[Floats, Floats]] = {}
        for kind, sizes in LOOKED_UP.items():
            if f"tiles/{kind}" not in self.tensors:
                continue
            rows = np.maximum(self.get(f"tiles/{kind}", -1, sizes + 3), 0.0)
            place = np.minimum(rows[:, sizes].astype(np.intp), len(self.figures) - 1)
            features = self._features(rows[:, :sizes], self.figures[place])
            self.known[kind] = (features, np.maximum(rows[:, sizes + 1 :], 1.0))

    def _features(self, sizes: Floats, figures: Floats) -> Floats:
        """What distances of the look-up are between (n, sizes + 5)."""
        both = np.concatenate([sizes, np.broadcast_to(figures, (len(sizes), 5))], axis=1)
        return both if self.faithful else np.log2(np.maximum(both, 1e-9))

    def tiles(self, table: KernelTable, kind: str, gpu: GPU) -> Floats:
        """Tiles (n, 2) of kernels of a class, from the nearest known kernel."""
        if kind not in LOOKED_UP:
            return np.zeros((len(table), 2))
        features, tile = self.known[kind]
        query = self._features(sizes_of(table, kind), figures_of(gpu))
        centre = features.mean(axis=0)  # squares of large figures would drown small differences
        return tile[nearest(query - centre, features - centre)]

    def price(self, table: KernelTable, kind: str, gpu: GPU) -> Priced | None:
        """Kernels of one class on a GPU; None where the law has no fit for the class."""
        if NETS.get(kind) not in self.nets or (kind in LOOKED_UP and kind not in self.known):
            return None
        if self.faithful and kind in OPS_OF_AN_ELEMENT and "vec2" in self.known:
            backward = _BACKWARD[np.clip(table.dim("reduction", "kind"), 0, len(_BACKWARD) - 1)]
            if backward.any():
                return self._with_backward(table, kind, gpu, backward)
        tile = self.tiles(table, kind, gpu)
        made = tiled(table, kind, tile, gpu)
        net = NETS[kind]
        share = utilisation(self.nets[net](made.inputs), made.waves, self.least[net])
        shown = np.zeros((len(table), 3), dtype=np.int64)
        if kind in ("bmm", "linear"):
            shown[:, 0], shown[:, 1], shown[:, 2] = tile[:, 1], tile[:, 0], table.dims[:, 3]
        return Priced(made.work_s(gpu.sms) / share, made.waves, shown)

    def _with_backward(
        self, table: KernelTable, kind: str, gpu: GPU, backward: NDArray[np.bool_]
    ) -> Priced:
        """Backward passes as the authors price them: a multiplication, and a softmax of one."""
        rows, columns = table.dim("reduction", "rows"), table.dim("reduction", "columns")
        name = "softmax" if kind == "softmax" else "layer_norm"
        forward = self.price(reduction.table(rows, columns, name), kind, gpu)
        own = self.price(table.take(np.flatnonzero(~backward)), kind, gpu)
        product = self.price(elementwise.table(rows * columns, 2), "vec2", gpu)
        assert forward is not None
        assert own is not None
        assert product is not None
        latency = product.latency_s + (forward.latency_s if kind == "softmax" else 0.0)
        latency[~backward] = own.latency_s
        return Priced(latency, forward.waves, forward.tile)


_BACKWARD: Final = np.array([kind.endswith("_backward") for kind in REDUCTION_KINDS])
