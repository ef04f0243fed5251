"""Tiled matrix products: the time of each candidate tile, and the soft choice among them.

For a tile of tm x tn on a product of B x [M,K] @ [K,N] (K is reduced):

    blocks  = B * ceil(M / tm) * ceil(N / tn)
    piece   = min(1, split_k / K) for a single product, 1 for batched ones
    filled  = blocks / SMs                                   (rounds, fractional)
    rounds  = quantised * ceil(filled / piece) * piece
            + (1 - quantised) * max(filled, piece) + tail * piece
    compute = limited(rounds * 2 * tm * tn * (K + k_overhead) / (SM's FLOP/s * efficiency))
    traffic = itemsize * B * (M*K*ceil(N / tn) + K*N*ceil(M / tm) + M*N)
    missed  = operands / (operands + L2)                     (shape over cache)
    dram    = (unique + reread * missed * (traffic - unique)) / (bandwidth * efficiency)
    l2      = traffic / (L2 bandwidth * efficiency)
                                                             (power limit, see `clock`)
    time    = (compute^3 + dram^3 + l2^3)^(1/3)

The library's choice of tile is not known on an unseen GPU. A power mean of exponent -8 over the
candidates stands for it, scaled so that it is the time of the fastest tile when sqrt(tiles) of
them are as fast. Libraries split the K of single products over blocks to fill the SMs; a piece is
what one block does of a tile. Every term falls with SMs, FLOP/s, bandwidth and L2 size, so the
whole does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilecast.kernels.table import Floats
from tilecast.predict.clock import Rate
from tilecast.predict.parameters import TILES, Gemm


@dataclass(frozen=True, slots=True)
class Products:
    """n matrix products as float arrays (n,), and what they move.

    Attributes:
        batch, m, n, k: sizes.
        itemsize: bytes of an element of the operands.
        unique_bytes: operands and result, once.
        dram_bytes: part of them that must cross the memory bus, given the cache state.
    """

    batch: Floats
    m: Floats
    n: Floats
    k: Floats
    itemsize: Floats
    unique_bytes: Floats
    dram_bytes: Floats


@dataclass(frozen=True, slots=True)
class TiledTime:
    """Times of n products (n,), without the launch.

    Attributes:
        time_s: of the soft choice.
        compute_s, memory_s: of the fastest tile.
        tile: index in `TILES` of the fastest tile.
        waves: rounds of it that fill the SMs, fractional.
    """

    time_s: Floats
    compute_s: Floats
    memory_s: Floats
    tile: NDArray[np.int64]
    waves: Floats


def tiled_time(
    products: Products,
    law: Gemm,
    *,
    sms: float,
    rate: Rate,
    dram_bytes_per_s: float,
    l2_bytes_per_s: float,
    l2_bytes: float,
) -> TiledTime:
    """Time of each product (see the module's formulas).

    Args:
        rate: of the whole GPU.
        dram_bytes_per_s, l2_bytes_per_s: reached, efficiency included.
    """
    m, n, k = products.m, products.n, products.k
    operands = products.itemsize * products.batch * k
    missed = law.reread * (products.unique_bytes / (products.unique_bytes + l2_bytes))
    column_flops = 2.0 * (k + law.k_overhead)
    energy_flops = column_flops * law.energy_share
    per_column = column_flops * (sms / rate.flops_per_s)
    kind = (products.batch > 1.0).astype(np.intp)
    piece = np.where(kind == 0, np.minimum(1.0, law.split_k / k), 1.0)
    slowness = np.prod(TILES, axis=1)[:, None] / law.tile_efficiency.T
    result_bytes = products.itemsize * products.batch * m * n
    best = np.full(len(m), np.inf)
    best_compute = np.zeros(len(m))
    best_memory = np.zeros(len(m))
    best_waves = np.zeros(len(m))
    best_tile = np.zeros(len(m), dtype=np.int64)
    times = np.empty((len(TILES), len(m)))
    for index, (tile_m, tile_n) in enumerate(TILES):
        blocks_m = np.ceil(m * (1.0 / tile_m))
        blocks_n = np.ceil(n * (1.0 / tile_n))
        blocks = products.batch * blocks_m * blocks_n
        filled = blocks * (1.0 / sms)
        rounds = np.ceil(filled / piece) * (piece * law.quantised)
        rounds += np.maximum(filled, piece) * (1.0 - law.quantised) + piece * law.tail[index]
        compute = rounds * per_column * slowness[index][kind]
        compute = rate.limited(compute, energy_flops * blocks * (tile_m * tile_n))
        traffic = operands * (m * blocks_n + n * blocks_m) + result_bytes
        again = np.maximum(traffic - products.unique_bytes, 0.0)
        dram = (products.dram_bytes + missed * again) * (1.0 / dram_bytes_per_s)
        cache = traffic * (1.0 / l2_bytes_per_s)
        time = np.cbrt(compute**3 + dram**3 + cache**3)
        times[index] = time
        faster = time < best
        best = np.where(faster, time, best)
        best_compute = np.where(faster, compute, best_compute)
        best_memory = np.where(faster, np.maximum(dram, cache), best_memory)
        best_waves = np.where(faster, filled, best_waves)
        best_tile[faster] = index
    near = np.sum((best / times) ** 8, axis=0) * len(TILES) ** -0.5
    return TiledTime(best * near**-0.125, best_compute, best_memory, best_tile, best_waves)
