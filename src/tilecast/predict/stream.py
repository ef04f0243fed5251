"""Kernels that stream their operands once: elementwise, reductions, copies, look-ups.

dram   = bytes that cross the memory bus / (bandwidth * efficiency)
l2     = unique bytes / (L2 bandwidth * efficiency)
vector = FLOPs / (vector FLOP/s * efficiency)
time   = (dram^3 + l2^3 + vector^3)^(1/3)
"""

from __future__ import annotations

import numpy as np

from tilecast.kernels.table import Floats


def stream_time(
    dram_bytes: Floats,
    unique_bytes: Floats,
    flops: Floats,
    *,
    dram_bytes_per_s: Floats,
    l2_bytes_per_s: Floats,
    flops_per_s: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Time without the launch, and what of it memory and arithmetic need alone: three (n,).

    All rates (n,) are those reached, efficiency included.
    """
    dram = dram_bytes / dram_bytes_per_s
    cache = unique_bytes / l2_bytes_per_s
    vector = flops / flops_per_s
    return np.cbrt(dram**3 + cache**3 + vector**3), np.maximum(dram, cache), vector
