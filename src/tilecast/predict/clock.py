"""Arithmetic at boost clock, and slower where the power limit cannot pay for it.

Peaks are at boost clock. Work that would take `time` at that clock and `energy` in all draws
`energy / time`; where that is more than the board may spend on arithmetic, the clock sinks. With
power going as the clock to the `voltage_exponent`,

    limited = time * max(1, energy / (time * (TDP - idle))) ** (1 / voltage_exponent)

which never grows as FLOP/s, SMs or TDP do. A kernel that fills few SMs draws little and keeps its
clock. Energy per FLOP belongs to the process: a power law of its nanometres.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilecast.hardware.gpu import GPU
from tilecast.kernels.table import Floats
from tilecast.precision import PRECISION_CODE
from tilecast.predict.parameters import Sustained

#: Share of the TDP that is left for arithmetic on a board whose TDP is near the idle power.
LEAST_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Rate:
    """What a GPU offers to arithmetic of one precision.

    Attributes:
        flops_per_s: at boost clock.
        energy_j: J per FLOP.
        arithmetic_w: power that may go into it.
        voltage_exponent: see the module.
    """

    flops_per_s: float
    energy_j: float
    arithmetic_w: float
    voltage_exponent: float

    def limited(self, time_s: Floats, flops: Floats) -> Floats:
        """`time_s` (n,) at boost clock of work of `flops` (n,), under the power limit."""
        stretch = flops * (self.energy_j / self.arithmetic_w) / time_s
        if stretch.size == 0 or float(stretch.max()) <= 1.0:
            return time_s
        limited: Floats = time_s * np.maximum(stretch, 1.0) ** (1.0 / self.voltage_exponent)
        return limited

    @property
    def sustained(self) -> float:
        """FLOP/s of work that fills the GPU."""
        stretch = self.flops_per_s * self.energy_j / self.arithmetic_w
        return float(self.flops_per_s / max(1.0, stretch) ** (1.0 / self.voltage_exponent))


def rate_of(
    gpu: GPU, precision: str, law: Sustained, reached: float, microbenchmark: bool = False
) -> Rate:
    """Rate of matrix products.

    Args:
        reached: share of the rate that the law gives to a large GEMM.
        microbenchmark: take the published rate of a large GEMM where the GPU has one; divided by
            `reached`, so that a large GEMM is forecast at that rate.
    """
    peak = gpu.matrix_peak(precision)
    published = gpu.microbenchmarks.large_gemm_flops.get(precision)
    if microbenchmark and published is not None:
        return Rate(min(peak, published / reached), 0.0, gpu.tdp_w, 1.0)
    code = PRECISION_CODE[precision]
    # a format without units of its own runs in those of a wider one, at their cost
    own = precision in gpu.matrix_flops or peak > gpu.vector_peak("fp32")
    ratio = float(law.energy_ratio[code if own else PRECISION_CODE["fp32"]])
    energy = law.energy_j * (gpu.process_nm / 7.0) ** law.process_exponent * ratio
    arithmetic = max(gpu.tdp_w - law.idle_w, LEAST_SHARE * gpu.tdp_w)
    return Rate(peak, energy, arithmetic, law.voltage_exponent)
