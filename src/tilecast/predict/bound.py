"""The bound that no forecast beats: compute, DRAM, and the L2 where the working set is warm."""

from __future__ import annotations

import numpy as np

from tilecast.hardware.gpu import GPU
from tilecast.kernels.table import FAMILY_CODE, Floats, KernelTable
from tilecast.precision import PRECISIONS

#: Families whose arithmetic runs on matrix cores where the GPU has them for the precision.
MATRIX_FAMILIES = ("gemm", "conv", "attention")


def peak_flops(table: KernelTable, gpu: GPU) -> Floats:
    """FLOP/s that the GPU offers to each row (n,): matrix or vector peak of its precision."""
    matrix = np.array([gpu.matrix_peak(p) for p in PRECISIONS])
    vector = np.array([gpu.vector_peak(p) for p in PRECISIONS])
    codes = [FAMILY_CODE[family] for family in MATRIX_FAMILIES]
    return np.where(np.isin(table.family, codes), matrix[table.precision], vector[table.precision])


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
