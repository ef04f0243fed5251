"""Rows of made-up kernels on made-up GPUs, with times that a formula gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilecast.fitting.published_data import Rows
from tilecast.hardware.gpu import GPU
from tilecast.kernels import elementwise, gemm, reduction
from tilecast.kernels.table import Floats, KernelTable


def made_gpu(**changes: Any) -> GPU:
    """A GPU of round figures: 100 SMs, 20 TFLOP/s fp32, 1 TB/s, 20 MB of L2, 32 GB."""
    figures: dict[str, Any] = {
        "name": "made-up", "vendor": "none", "architecture": "none", "sms": 100,
        "boost_clock_hz": 1.5e9, "memory_bytes": 32e9, "memory_bandwidth_bytes_per_s": 1e12,
        "memory_kind": "HBM2", "l2_bytes": 20e6, "shared_memory_per_sm_bytes": 1e5,
        "shared_memory_per_block_bytes": 5e4, "registers_per_sm": 65536,
        "max_threads_per_sm": 2048, "max_blocks_per_sm": 32, "tdp_w": 300, "process_nm": 7,
        "vector_flops": {"fp32": 2e13},
    }  # fmt: skip
    return GPU(**{**figures, **changes})


def three_gpus() -> list[GPU]:
    """GPUs whose rate and bandwidth do not go together."""
    return [
        made_gpu(name=f"made-up-{place}", sms=sms, vector_flops={"fp32": flops},
                 memory_bandwidth_bytes_per_s=bandwidth)
        for place, (sms, flops, bandwidth) in enumerate(
            [(20, 5e12, 4e11), (40, 1e13, 3e11), (100, 2e13, 1e12)]
        )
    ]  # fmt: skip


def mixed(count: int, seed: int = 0) -> KernelTable:
    """Kernels of every fitted class but convolutions, `count` of each, warm."""
    draw = np.random.default_rng(seed)

    def sizes(low: float, high: float) -> Floats:
        return np.floor(np.exp(draw.uniform(np.log(low), np.log(high), count)))

    return KernelTable.concatenate([
        gemm.table(sizes(2, 64), sizes(64, 2048), sizes(64, 2048), sizes(64, 2048)),
        gemm.table(1, sizes(256, 8192), sizes(256, 8192), sizes(64, 8192), layout=1, epilogue=1),
        elementwise.table(sizes(1e6, 1e8), 1, 1, 1),
        elementwise.table(sizes(1e6, 1e8), 2, 1, 1),
        reduction.table(sizes(1e3, 1e5), sizes(64, 4096), "softmax"),
        reduction.table(sizes(1e3, 1e5), sizes(64, 4096), "layer_norm"),
    ]).with_warm(1.0)  # fmt: skip


def rows_by(
    gpus: list[GPU],
    time: Callable[[KernelTable, GPU], Floats],
    count: int = 40,
    tile: tuple[int, int] = (128, 64),
) -> list[Rows]:
    """Rows of `mixed` on each GPU, in the time that a formula gives and without a host."""
    made = []
    for place, gpu in enumerate(gpus):
        table = mixed(count, seed=place)
        rows = len(table)
        made.append(
            Rows(
                gpu, table, np.full(rows, "op", dtype=object), time(table, gpu), np.zeros(rows),
                np.zeros(rows), np.tile(np.array(tile, dtype=np.int64), (rows, 1)),
            )
        )  # fmt: skip
    return made
