"""Wave scaling on round figures, the curves and nets of Habitat, and a fit of made-up kernels."""

from __future__ import annotations

import numpy as np
import pytest
from published_samples import made_gpu, rows_by, three_gpus

from tilecast.fitting.published_habitat import curve, fit_habitat, log_error, plain_error
from tilecast.hardware.gpu import GPU
from tilecast.kernels import conv, gemm
from tilecast.kernels.table import Floats, KernelTable
from tilecast.predict.published.habitat import (
    HabitatLaw,
    curve_s,
    gamma_of,
    net_inputs,
    wave_scaling,
)


def test_gamma_falls_with_intensity_and_is_a_half_at_the_ridge() -> None:
    made = gamma_of(np.array([0.0, 5.0, 10.0, 20.0, 1e9]), 10.0)
    np.testing.assert_allclose(made, [1.0, 0.75, 0.5, 0.25, 0.0], atol=1e-7)


def test_wave_scaling() -> None:
    gamma = np.array([1.0, 0.0, 0.5])
    made = wave_scaling(np.full(3, 2e-3), gamma, bandwidth=0.25, clock=1.5, sms=0.5)
    # all bandwidth, all arithmetic, and the geometric mean of both
    np.testing.assert_allclose(made, [0.5e-3, 1.5e-3, 2e-3 * np.sqrt(0.25 * 1.5 * 0.5)])
    same = wave_scaling(made, gamma, bandwidth=1.0, clock=1.0, sms=1.0)
    np.testing.assert_array_equal(same, made)


def test_a_curve_through_medians() -> None:
    size = np.exp(np.linspace(np.log(1e4), np.log(1e8), 240))
    found = curve(size, 1e-6 + size / 1e12)
    assert found.shape == (24, 2)
    assert (np.diff(found, axis=0) >= 0).all()
    inner = np.array([1e5, 1e6, 1e7])
    np.testing.assert_allclose(curve_s(found, inner), 1e-6 + inner / 1e12, rtol=0.03)
    last = curve_s(found, np.array([4e8, 8e8]))
    assert last[1] == pytest.approx(2 * last[0])
    assert curve_s(found, np.array([1.0]))[0] == pytest.approx(np.exp(found[0, 1]))


def test_inputs_of_nets() -> None:
    gpu = made_gpu(matrix_flops={"fp16": 8e13})
    figures = [32, 1000, 100]
    made = net_inputs(gemm.table(3, 5, 6, 7), "bmm", gpu, True)
    np.testing.assert_allclose(made, [[3, 5, 6, 7, *figures, 2e4]])
    half = net_inputs(gemm.table(1, 5, 6, 7, precision="fp16"), "linear", gpu, False)
    np.testing.assert_allclose(2**half - 1, [[5, 6, 7, *figures, 8e4]])
    made = net_inputs(conv.table(2, 3, 8, 28, 28, 5, 5, stride=2, padding=1), "conv", gpu, True)
    np.testing.assert_allclose(made, [[2, 3, 8, 28, 5, 2, 1, *figures, 2e4]])


@pytest.mark.parametrize("error", [plain_error, log_error])
def test_gradients_of_the_losses(error: object) -> None:
    draw = np.random.default_rng(0)
    time, outputs, rows = draw.uniform(1, 3, 9), draw.uniform(0.2, 3, (9, 1)), np.arange(9)
    loss = error(time)  # type: ignore[operator]
    up, down = (loss(outputs + step, rows)[0] for step in (1e-6, -1e-6))
    np.testing.assert_allclose(loss(outputs, rows)[1][:, 0], (up - down) / 2e-6, atol=1e-5)


def streams_and_products(table: KernelTable, gpu: GPU) -> Floats:
    """Bytes over the bandwidth and FLOPs at 70 % of the rate, one after the other."""
    return table.footprint / gpu.memory_bandwidth_bytes_per_s + table.flops / (
        0.7 * gpu.vector_flops["fp32"]
    )


@pytest.mark.parametrize("faithful", [False, True])
def test_a_fit_of_made_up_kernels(faithful: bool) -> None:
    gpus = three_gpus()
    law = HabitatLaw(fit_habitat(rows_by(gpus, streams_and_products, 120), faithful))
    there = made_gpu(sms=100, vector_flops={"fp32": 2e13}, memory_bandwidth_bytes_per_s=1.2e12)
    assert law.origin("vec1", there) == 2
    (one,) = rows_by([there], streams_and_products)
    for kind, limit in (("vec1", 0.03), ("vec2", 0.03), ("softmax", 0.1), ("norm", 0.1)):
        own = one.of_class(kind)
        error = np.abs(law.predict(own.table, there).latency_s / own.measured_s - 1)
        assert np.median(error) < limit
    seen = rows_by(gpus, streams_and_products, 120)[2].of_class("linear")
    error = np.abs(law.predict(seen.table, gpus[2]).latency_s / seen.measured_s - 1)
    assert np.median(error) < (0.7 if faithful else 0.3)
