"""Lines of time over work, moved to other GPUs by a figure of theirs.

After Ying Li, Yifan Sun and Adwait Jog, "Path Forward Beyond Simulators: Fast and Accurate GPU
Execution Time Prediction for DNN Workloads" (MICRO 2023). For each class of kernel and GPU of the
fit

    time = intercept + slope * x        x: FLOPs of products and convolutions, bytes of the rest

On a GPU that was not measured, the rate is taken as a line over a figure y of the GPU,

    1 / slope = a + b * y

and the intercept is that of the median GPU. A GPU with the figures of one of the fit has that GPU's
own line. A reconstruction from the abstract and from descriptions of it by others.

Two points are ours, unless the fit was asked to be faithful: y is the fp32 rate for products and
convolutions (the authors': the memory bandwidth, for all), and lines are fitted to relative errors,
so that small kernels count.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tilecast.errors import InputError
from tilecast.hardware.gpu import GPU
from tilecast.kernels.table import Floats, KernelTable
from tilecast.predict.bound import peak_flops
from tilecast.predict.published.base import (
    FITTED,
    MATRIX_CLASSES,
    Priced,
    PublishedLaw,
    figures_of,
)

#: Columns of `figures_of` that a slope may follow.
FOLLOWED: Final = {"bandwidth": 1, "flops": 3}
#: Share by which figures of the same GPU may differ.
SAME: Final = 1e-3


def work_of(table: KernelTable, kind: str, gpu: GPU | None = None) -> Floats:
    """What the time of a class is a line of (n,): FLOPs or bytes.

    FLOPs of another precision than fp32 count by the ratio of the peaks of `gpu`.
    """
    if kind not in MATRIX_CLASSES:
        return table.footprint
    if gpu is None:
        return table.flops
    return table.flops * (gpu.matrix_peak("fp32") / peak_flops(table, gpu))


def rate_at(line: Floats, figure: float, seen: Floats) -> float:
    """1 / slope at a figure of a GPU, on a line (2,) of intercept and slope over the figure.

    Held between a quarter of the least and four times the largest rate that was `seen`, so that no
    line makes it negative.
    """
    value = float(line[0] + line[1] * figure)
    return float(np.clip(value, 0.25 * seen.min(), 4.0 * seen.max()))


class LinearLaw(PublishedLaw):
    """Lines by class; see the module.

    Arrays: `figures` (GPUs, 5); for each class `lines` (GPUs, 2) with intercept and slope (0 for
    a GPU without rows), `across` (3,) with the column followed, intercept and slope.
    """

    name = "linear"

    def prepare(self) -> None:
        """Check and unpack the arrays."""
        self.figures = self.get("figures", -1, 5)
        gpus = len(self.figures)
        self.lines = {
            kind: (self.get(f"{kind}/lines", gpus, 2), self.get(f"{kind}/across", 3))
            for kind in FITTED
            if f"{kind}/lines" in self.tensors
        }
        for kind, (lines, across) in self.lines.items():
            if across[0] not in FOLLOWED.values() or not (lines[:, 1] > 0).any():
                raise InputError(f"{self.source}: {kind}/across or {kind}/lines cannot be used")

    def line(self, kind: str, gpu: GPU) -> tuple[float, float]:
        """Intercept (s) and slope (s a FLOP or byte) of a class on a GPU."""
        lines, across = self.lines[kind]
        figures = figures_of(gpu)
        known = lines[:, 1] > 0
        same = known & np.all(np.abs(self.figures / figures - 1.0) < SAME, axis=1)
        if same.any():
            intercept, slope = lines[int(np.argmax(same))]
            return float(intercept), float(slope)
        seen = 1.0 / lines[known, 1]
        rate = rate_at(across[1:], float(figures[int(across[0])]), seen)
        return float(np.median(lines[known, 0])), 1.0 / rate

    def price(self, table: KernelTable, kind: str, gpu: GPU) -> Priced | None:
        """Kernels of one class on a GPU; None where the law has no fit for the class."""
        if kind not in self.lines:
            return None
        intercept, slope = self.line(kind, gpu)
        return Priced.plain(np.maximum(intercept, 0.0) + slope * work_of(table, kind, gpu))
