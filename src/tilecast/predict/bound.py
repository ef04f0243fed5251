"""The bound that no forecast beats: compute, DRAM, and the L2 where the working set is warm."""

from __future__ import annotations

import numpy as np

from tilecast.hardware.gpu import GPU
from tilecast.kernels.table import FAMILIES, Floats, KernelTable
from tilecast.precision import PRECISIONS

#: Families whose arithmetic runs on matrix cores where the GPU has them for the precision.
MATRIX_FAMILIES = ("gemm", "conv", "attention")
_ON_MATRIX_CORES = np.array([int(family in MATRIX_FAMILIES) for family in FAMILIES])


def peak_flops(table: KernelTable, gpu: GPU) -> Floats:
    """FLOP/s that the GPU offers to each row (n,): matrix or vector peak of its precision."""
    peaks = np.ones((2, len(PRECISIONS)))
    for code in np.flatnonzero(np.bincount(table.precision, minlength=len(PRECISIONS))).tolist():
        precision = PRECISIONS[code]
        peaks[:, code] = gpu.vector_peak(precision), gpu.matrix_peak(precision)
    peak: Floats = peaks[_ON_MATRIX_CORES[table.family], table.precision]
    return peak


def dram_bytes(table: KernelTable, gpu: GPU) -> Floats:
    """Bytes that must cross the memory bus (n,).

    Cold, that is every unique byte. Warm, the part of the working set that the L2 can hold is
    already there and written results may stay there: what is left is the part that cannot fit.
    """
    footprint = table.footprint
    resident = table.warm * np.minimum(1.0, gpu.l2_bytes / np.maximum(footprint, 1.0))
    return footprint * (1.0 - resident)


def bound_s(table: KernelTable, gpu: GPU) -> tuple[Floats, Floats, Floats]:
    """Seconds that compute, DRAM and L2 each need at least, for every row: three arrays (n,)."""
    compute = table.flops / peak_flops(table, gpu)
    dram = dram_bytes(table, gpu) / gpu.memory_bandwidth_bytes_per_s
    cache = table.footprint / gpu.l2_bandwidth
    return compute, dram, cache
