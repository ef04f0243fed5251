"""Habitat: kernels that are alike on every GPU are scaled, the others are learned.

Geoffrey X. Yu, Yubo Gao, Pavel Golikov and Gennady Pekhimenko, "Habitat: A Runtime-Based
Computational Performance Predictor for Deep Neural Network Training" (USENIX ATC 2021).

Kernels that run alike on every GPU (elementwise, softmax, norms) have the time on an origin GPU
moved by wave scaling, in the form for many waves:

    time = time_o * (D_o / D)^gamma * (C_o / C)^(1 - gamma) * (S_o / S)^(1 - gamma)
    gamma = 1 - 0.5 I / R   where the intensity I <= R, the ridge point (FLOP/s over bandwidth)
          = 0.5 R / I       above

with bandwidth D, clock C and SMs S; R is that of the GPU forecast for. Kernels whose code varies
with the GPU (products, convolutions) take a perceptron on their sizes and four figures of the GPU:
memory, bandwidth, SMs and peak.

Habitat measures the origin's time as the user's program runs. A law has no program to run, so here
the origin's time is a curve over bytes through the data of the fit, one for each class and GPU,
and the origin is the GPU of the fit nearest in its figures: a reconstruction in that. Nets are
4 x 64 (the authors' 8 x 512 or so), and a convolution's backward passes take the net of the forward
one. By default the net sees logarithms and gives that of a time; a faithful fit gives it plain
sizes and figures, standardised, and takes the time as its output, as the authors do, and times as
measured (`tilecast.fitting.published`). Attention and gathers take the roofline with a launch.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tilecast.hardware.gpu import GPU
from tilecast.kernels.table import DIM_NAMES, Floats, KernelTable
from tilecast.predict.bound import peak_flops
from tilecast.predict.published.base import Priced, PublishedLaw, figures_of
from tilecast.predict.published.net import Net

#: Classes whose time is moved from an origin GPU.
SCALED: Final = ("vec1", "vec2", "softmax", "norm")
#: Sizes that the net of each other class sees, by their names in `DIM_NAMES`.
SIZES: Final[dict[str, tuple[str, ...]]] = {
    "bmm": ("batch", "m", "n", "k"),
    "linear": ("m", "n", "k"),
    "conv": ("batch", "in", "out", "height", "kernel_h", "stride", "padding"),
}
#: Figures of a GPU that a net sees beside the sizes.
GPU_INPUTS: Final = 4


def gamma_of(intensity: Floats, ridge: float) -> Floats:
    """Exponent of the bandwidth (n,): 1 for no arithmetic, 0.5 at the ridge, then to 0."""
    below = 1.0 - 0.5 * intensity / ridge
    return np.where(intensity <= ridge, below, 0.5 * ridge / np.maximum(intensity, 1e-30))


def wave_scaling(
    origin_s: Floats, gamma: Floats, *, bandwidth: float, clock: float, sms: float
) -> Floats:
    """Time (n,) of kernels that took `origin_s` on another GPU.

    Args:
        origin_s, gamma: (n,).
        bandwidth, clock, sms: of the origin over those of the GPU forecast for.
    """
    made: Floats = origin_s * bandwidth**gamma * (clock * sms) ** (1.0 - gamma)
    return made


def curve_s(curve: Floats, size: Floats) -> Floats:
    """Time (n,) at a size in bytes, on knots (k, 2) of log size and log time.

    Constant under the first knot, and proportional to the size above the last.
    """
    at = np.log(np.maximum(size, 1.0))
    beyond = np.maximum(at - curve[-1, 0], 0.0)
    made: Floats = np.exp(np.interp(at, curve[:, 0], curve[:, 1]) + beyond)
    return made


def net_inputs(table: KernelTable, kind: str, gpu: GPU, plain: bool) -> Floats:
    """Inputs (n, sizes + 4): sizes, memory (GB), bandwidth (GB/s), SMs, peak (GFLOP/s).

    Args:
        plain: as they are; else log2 of each and 1 (paddings are 0).
    """
    family = "conv" if kind == "conv" else "gemm"
    columns = [DIM_NAMES[family].index(name) for name in SIZES[kind]]
    figures = np.tile(figures_of(gpu)[:GPU_INPUTS], (len(table), 1))
    figures[:, -1] = peak_flops(table, gpu) / 1e9
    both = np.concatenate([table.dims[:, columns].astype(np.float64), figures], axis=1)
    return both if plain else np.log2(1.0 + both)


class HabitatLaw(PublishedLaw):
    """Habitat; see the module.

    Arrays: `figures` (GPUs, 5), `clock_hz` (GPUs,); `curve/<class>/<GPU>` (knots, 2) for each class
    of `SCALED` and place in `figures` with rows; a net for each class of `SIZES`, whose output is
    a time in `unit/<class>` seconds (1,), or its natural log unless `faithful` (1,).
    """

    name = "habitat"

    def prepare(self) -> None:
        """Check and unpack the arrays."""
        self.figures = np.maximum(self.get("figures", -1, 5), 1e-9)
        gpus = len(self.figures)
        self.clock_hz = np.maximum(self.get("clock_hz", gpus), 1.0)
        self.faithful = bool(self.get("faithful", 1)[0])
        self.curves: dict[str, dict[int, Floats]] = {}
        for kind in SCALED:
            own = {
                place: self.get(f"curve/{kind}/{place}", -1, 2)
                for place in range(gpus)
                if f"curve/{kind}/{place}" in self.tensors
            }
            if own:
                self.curves[kind] = own
        self.nets = {
            kind: Net.from_tensors(
                self.tensors, self.get, f"net/{kind}", len(sizes) + GPU_INPUTS, 1
            )
            for kind, sizes in SIZES.items()
            if any(key.startswith(f"net/{kind}/") for key in self.tensors)
        }
        self.unit = {kind: float(self.get(f"unit/{kind}", 1)[0]) for kind in self.nets}

    def origin(self, kind: str, gpu: GPU) -> int:
        """Place of the GPU of the fit nearest in figures and clock that has a curve of a class."""
        places = np.array(sorted(self.curves[kind]))
        known = np.column_stack([self.figures, self.clock_hz])[places]
        own = np.append(figures_of(gpu), gpu.boost_clock_hz)
        distance: NDArray[np.float64] = np.sum(np.log(known / own) ** 2, axis=1)
        return int(places[int(np.argmin(distance))])

    def price(self, table: KernelTable, kind: str, gpu: GPU) -> Priced | None:
        """Kernels of one class on a GPU; None where the law has no fit for the class."""
        if kind in self.curves:
            return Priced.plain(self._scaled(table, kind, gpu))
        if kind not in self.nets:
            return None
        made = self.nets[kind](net_inputs(table, kind, gpu, self.faithful))[:, 0]
        if not self.faithful:
            made = np.exp(np.clip(made, -30.0, 30.0))
        return Priced.plain(made * self.unit[kind])

    def _scaled(self, table: KernelTable, kind: str, gpu: GPU) -> Floats:
        place = self.origin(kind, gpu)
        bandwidth = gpu.memory_bandwidth_bytes_per_s
        ridge = gpu.vector_peak("fp32") / bandwidth
        return wave_scaling(
            curve_s(self.curves[kind][place], table.footprint),
            gamma_of(table.flops / np.maximum(table.footprint, 1.0), ridge),
            bandwidth=self.figures[place, 1] * 1e9 / bandwidth,
            clock=float(self.clock_hz[place]) / gpu.boost_clock_hz,
            sms=float(self.figures[place, 2]) / gpu.sms,
        )
