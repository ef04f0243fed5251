"""GPUs with random but sane figures and tables of random kernels, for the properties of laws."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tilecast.hardware.gpu import GPU
from tilecast.kernels.table import REDUCTION_KINDS, KernelTable
from tilecast.precision import PRECISIONS, STORAGE_OF, itemsize

FAMILY_PRECISIONS = [p for p in PRECISIONS if p in STORAGE_OF and p != "int32"]


def make_gpu(**changes: Any) -> GPU:
    """A GPU of round figures: 100 SMs, 20 TFLOP/s fp32, 1 TB/s, 20 MB of L2."""
    figures: dict[str, Any] = {
        "name": "made-up", "vendor": "none", "architecture": "none", "sms": 100,
        "boost_clock_hz": 1.5e9, "memory_bytes": 32e9, "memory_bandwidth_bytes_per_s": 1e12,
        "memory_kind": "HBM2", "l2_bytes": 20e6, "shared_memory_per_sm_bytes": 1e5,
        "shared_memory_per_block_bytes": 5e4, "registers_per_sm": 65536,
        "max_threads_per_sm": 2048, "max_blocks_per_sm": 32, "tdp_w": 300, "process_nm": 7,
        "vector_flops": {"fp32": 2e13, "fp64": 1e13},
        "matrix_flops": {"fp16": 3e14, "bf16": 3e14, "tf32": 1.5e14},
    }  # fmt: skip
    return GPU(**{**figures, **changes})


@st.composite
def gpus(draw: st.DrawFn) -> GPU:
    """A GPU between a small board of ten years ago and one of ten years ahead."""

    def log_uniform(low: float, high: float) -> float:
        return float(np.exp(draw(st.floats(np.log(low), np.log(high)))))

    sms = draw(st.integers(2, 400))
    vector = sms * log_uniform(5e10, 1e12)
    matrix = {
        precision: vector * draw(st.floats(1.5, 40.0))
        for precision in ("tf32", "fp16", "bf16", "fp8", "int8")
        if draw(st.booleans())
    }
    return make_gpu(
        sms=sms,
        boost_clock_hz=log_uniform(5e8, 4e9),
        memory_bandwidth_bytes_per_s=log_uniform(5e10, 2e13),
        memory_kind=draw(st.sampled_from(["GDDR6", "HBM3", "LPDDR5", ""])),
        l2_bytes=log_uniform(5e5, 1e9),
        tdp_w=log_uniform(20, 2000),
        process_nm=log_uniform(1.5, 30),
        vector_flops={"fp32": vector, "fp64": vector * draw(st.floats(0.01, 1.0))},
        matrix_flops=matrix,
    )


def _sizes(seed: np.random.Generator, rows: int, top: float) -> np.ndarray:
    return np.maximum(1, np.exp(seed.uniform(0, np.log(top), rows))).astype(np.int64)


def random_table(seed: int, rows: int = 12, precision: str | None = None) -> KernelTable:
    """Kernels of every family, `rows` of each, of sizes from 1 up; half of them warm."""
    draw = np.random.default_rng(seed)
    tables = []

    def add(family: str, dims: dict[str, Any], flops: Any, read: Any, written: Any) -> None:
        own = precision or FAMILY_PRECISIONS[int(draw.integers(len(FAMILY_PRECISIONS)))]
        size = itemsize(STORAGE_OF[own])
        tables.append(
            KernelTable.from_columns(
                family, family, dims, flops=flops, bytes_read=np.asarray(read) * size,
                bytes_written=np.asarray(written) * size, precision=own, itemsize=size,
                warm=draw.uniform(0, 1, rows) * draw.integers(0, 2, rows),
            )
        )  # fmt: skip

    batch = np.where(draw.integers(0, 2, rows) > 0, _sizes(draw, rows, 64), 1)
    m, n, k = (_sizes(draw, rows, 2e4) for _ in range(3))
    work = 2.0 * batch * m * n * k
    add("gemm", {"batch": batch, "m": m, "n": n, "k": k}, work, batch * (m * k + k * n),
        batch * m * n)  # fmt: skip
    big = _sizes(draw, rows, 1e9)
    add("elementwise", {"elements": big, "inputs": 2, "outputs": 1}, big * 1.0, 2 * big, big)
    lines, columns = _sizes(draw, rows, 1e5), _sizes(draw, rows, 1e5)
    kind = draw.integers(0, len(REDUCTION_KINDS), rows)
    add("reduction", {"rows": lines, "columns": columns, "kind": kind, "inner": 1},
        5.0 * lines * columns, lines * columns, lines * columns)  # fmt: skip
    images, c_in, c_out = (_sizes(draw, rows, 512) for _ in range(3))
    side, taps = _sizes(draw, rows, 200) + 7, draw.choice([1, 3, 5, 7], rows)
    add("conv", {"batch": images, "in": c_in, "out": c_out, "height": side, "width": side,
                 "kernel_h": taps, "kernel_w": taps, "stride": 1, "padding": taps // 2,
                 "dilation": 1, "groups": 1, "pass": draw.integers(0, 3, rows)},
        2.0 * images * c_in * c_out * side * side * taps * taps,
        images * c_in * side * side + c_in * c_out * taps * taps,
        images * c_out * side * side)  # fmt: skip
    heads, length, width = (_sizes(draw, rows, top) for top in (32, 8192, 256))
    add("attention", {"batch": 1, "heads": heads, "kv_heads": heads, "head_dim": width,
                      "q_len": length, "kv_len": length},
        4.0 * heads * length * length * width, 3 * heads * length * width,
        heads * length * width)  # fmt: skip
    for family in ("pool", "embedding", "index", "copy", "other"):
        add(family, {}, np.zeros(rows), big, big)
    return KernelTable.concatenate(tables)
