"""The roofline against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from law_samples import make_gpu

from tilecast.hardware.gpu import Microbenchmarks
from tilecast.kernels.table import KernelTable
from tilecast.predict import BOUNDS, load_law
from tilecast.predict.roofline import LAUNCH_S


def square(size: int, warm: float = 0.0) -> KernelTable:
    return KernelTable.from_columns(
        "gemm", "gemm", {"batch": 1, "m": size, "n": size, "k": size},
        flops=2.0 * size**3, bytes_read=8.0 * size**2, bytes_written=4.0 * size**2, warm=warm,
    )  # fmt: skip


def test_compute_bound() -> None:
    made = load_law("roofline").predict(square(8192), make_gpu())
    # 2 * 8192^3 FLOP at 20 TFLOP/s
    assert made.latency_s[0] == pytest.approx(2 * 8192**3 / 2e13 + LAUNCH_S)
    assert BOUNDS[made.bound_by[0]] == "compute"


def test_memory_bound_and_cache() -> None:
    table = KernelTable.from_columns(
        "elementwise", "add", {"elements": 10**8, "inputs": 2, "outputs": 1},
        flops=1e8, bytes_read=8e8, bytes_written=4e8,
    )  # fmt: skip
    cold = load_law("roofline").predict(table, make_gpu())
    assert cold.latency_s[0] == pytest.approx(1.2e9 / 1e12 + LAUNCH_S)
    assert BOUNDS[cold.bound_by[0]] == "memory"
    # warm, the 20 MB that the L2 holds need not cross the bus
    warm = load_law("roofline").predict(table.with_warm(1.0), make_gpu())
    assert warm.latency_s[0] == pytest.approx((1.2e9 - 20e6) / 1e12 + LAUNCH_S)


def test_launch_bound() -> None:
    made = load_law("roofline").predict(square(8), make_gpu())
    assert made.latency_s[0] == pytest.approx(LAUNCH_S, rel=1e-2)
    assert BOUNDS[made.bound_by[0]] == "launch"


def test_a_published_launch_time_is_used_when_asked_for() -> None:
    gpu = make_gpu(microbenchmarks=Microbenchmarks(launch_s=7e-6))
    plain = load_law("roofline").predict(square(8), gpu)
    told = load_law("roofline", microbenchmark=True).predict(square(8), gpu)
    assert told.latency_s[0] - plain.latency_s[0] == pytest.approx(7e-6 - LAUNCH_S)


def test_interval_at_80_percent_is_a_factor_of_three() -> None:
    made = load_law("roofline").predict(square(1024), make_gpu())
    np.testing.assert_allclose(made.high_s, 3 * made.latency_s)
