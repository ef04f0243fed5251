"""The lines of the linear law: exact data give back the numbers that made them."""

from __future__ import annotations

import numpy as np
import pytest
from published_samples import made_gpu, rows_by, three_gpus

from tilecast.fitting.published_linear import across, fit_linear, line
from tilecast.hardware.gpu import GPU
from tilecast.kernels import gemm
from tilecast.kernels.table import Floats, KernelTable
from tilecast.predict.published.base import FITTED, classes_of, figures_of
from tilecast.predict.published.linear import LinearLaw, rate_at, work_of


def lines_in_figures(table: KernelTable, gpu: GPU) -> Floats:
    """5 us and work at 60 % of the rate (products) or 80 % of the bandwidth."""
    matrix = classes_of(table) <= FITTED.index("conv")
    bytes_s = table.footprint / (0.8 * gpu.memory_bandwidth_bytes_per_s)
    return 5e-6 + np.where(matrix, table.flops / (0.6 * gpu.vector_flops["fp32"]), bytes_s)


@pytest.mark.parametrize("relative", [True, False])
def test_a_line_is_found_exactly(relative: bool) -> None:
    work = np.array([1e6, 3e6, 7e8, 2e9])
    np.testing.assert_allclose(line(work, 3e-6 + work / 4e12, relative), [3e-6, 1 / 4e12])


def test_no_negative_intercept_or_slope() -> None:
    work = np.array([1.0, 2.0, 3.0])
    intercept, slope = line(work, np.array([0.5, 2.0, 3.5]), True)
    assert intercept == 0
    assert slope == pytest.approx((2 + 1 + 3 / 3.5) / (4 + 1 + (3 / 3.5) ** 2))
    np.testing.assert_array_equal(line(work, np.array([3.0, 2.0, 1.0]), False), [0, 0])


def test_the_rate_is_a_line_over_the_figure_and_stays_above_0() -> None:
    gpus = [made_gpu(memory_bandwidth_bytes_per_s=b * 1e9) for b in (200, 500, 900)]
    figures = np.array([figures_of(gpu) for gpu in gpus])
    found = across("vec1", figures, 5.0 + 0.7 * figures[:, 1], False)
    np.testing.assert_allclose(found, [1, 5.0, 0.7])
    assert across("bmm", figures, np.ones(3), False)[0] == 3
    assert across("bmm", figures, np.ones(3), True)[0] == 1
    seen = np.array([2.0, 8.0])
    assert rate_at(np.array([-10.0, 1.0]), 3.0, seen) == 0.5
    assert rate_at(np.array([0.0, 1.0]), 3.0, seen) == 3.0
    assert rate_at(np.array([0.0, 1.0]), 99.0, seen) == 32.0


def test_a_gpu_that_was_not_measured() -> None:
    law = LinearLaw(fit_linear(rows_by(three_gpus(), lines_in_figures)))
    there = made_gpu(sms=60, vector_flops={"fp32": 1.5e13}, memory_bandwidth_bytes_per_s=6e11)
    (one,) = rows_by([there], lines_in_figures)
    made = law.predict(one.table, there)
    above = one.measured_s > 1.001 * made.bound_s
    np.testing.assert_allclose(made.latency_s[above], one.measured_s[above], rtol=1e-6)
    assert above.mean() > 0.9


def test_a_gpu_of_the_fit_has_its_own_line() -> None:
    gpus = three_gpus()

    def slow_middle(table: KernelTable, gpu: GPU) -> Floats:
        return lines_in_figures(table, gpu) * (3.0 if gpu.sms == 40 else 1.0)

    law = LinearLaw(fit_linear(rows_by(gpus, slow_middle)))
    assert law.line("vec1", gpus[1]) == pytest.approx((15e-6, 3 / (0.8 * 3e11)))
    assert law.line("vec1", gpus[0]) == pytest.approx((5e-6, 1 / (0.8 * 4e11)))


def test_flops_of_another_precision_count_by_its_peak() -> None:
    gpu = made_gpu(matrix_flops={"fp16": 8e13})
    half = gemm.table(1, 512, 512, 512, precision="fp16")
    np.testing.assert_allclose(work_of(half, "linear", gpu), half.flops / 4)
