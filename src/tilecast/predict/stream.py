"""Kernels that stream their operands once: elementwise, reductions, copies, look-ups.

The time is that of what crosses the memory bus, the L2 and the vector lanes, with soft edges:

    longer = 1 + row_overhead / columns                      (reductions; 1 for others)
    again  = 1 + reread * in_flight / (in_flight + L2)       (reductions; 1 for others)
    dram   = missed bytes * longer * again / (bandwidth * efficiency)
    l2     = unique bytes * longer / (L2 bandwidth * efficiency)
    vector = FLOPs / (vector FLOP/s * efficiency)
    time   = (dram^3 + l2^3 + vector^3)^(1/3)
"""

from __future__ import annotations

import numpy as np

from tilecast.kernels.table import Floats


def stream_time(
    dram_bytes: Floats,
    cache_bytes: Floats,
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
    cache = cache_bytes / l2_bytes_per_s
    vector = flops / flops_per_s
    return np.cbrt(dram**3 + cache**3 + vector**3), np.maximum(dram, cache), vector
