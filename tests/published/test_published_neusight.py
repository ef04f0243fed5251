"""NeuSight's formulas on round figures, its look-up, its nets, and a fit of made-up kernels."""

from __future__ import annotations

import numpy as np
import pytest
from published_samples import made_gpu, rows_by, three_gpus

from tilecast.errors import InputError
from tilecast.fitting.published_net import train
from tilecast.fitting.published_neusight import fit_neusight, symmetric_error
from tilecast.hardware.gpu import GPU
from tilecast.kernels import elementwise, gemm, reduction
from tilecast.kernels.table import Floats, KernelTable
from tilecast.predict.published.base import CLASSES, classes_of
from tilecast.predict.published.neusight import (
    LOOKED_UP,
    NeuSightLaw,
    nearest,
    tiled,
    utilisation,
)

TILE = np.array([[128.0, 64.0]])


def test_a_product_in_tiles() -> None:
    # 3 x ceil(1000 / 64) x ceil(500 / 128) = 3 x 16 x 4 blocks on 100 SMs
    made = tiled(gemm.table(3, 1000, 500, 256), "bmm", TILE, made_gpu())
    assert made.blocks[0] == 192
    assert made.waves[0] == 2
    assert made.tile_flops[0] == 2 * 64 * 128 * 256
    assert made.tile_bytes[0] == 4 * (64 * 256 + 256 * 128 + 64 * 128)
    unique = 4 * 3 * (1000 * 256 + 256 * 500 + 1000 * 500)
    intensity = 192 * 2 * 64 * 128 * 256 / unique
    assert made.roofline[0] == min(2e13, intensity * 1e12)
    assert made.work_s(100)[0] == pytest.approx(
        2 * made.tile_flops[0] * 100 / made.roofline[0], rel=1e-12
    )
    size = made.tile_bytes[0] * 100
    np.testing.assert_allclose(
        2 ** made.inputs[0],
        [made.tile_flops[0] * 100 / 2e13, size / 1e12, 2 * size / 32e9, 2 * size / 20e6],
    )


def test_streams_in_tiles() -> None:
    made = tiled(elementwise.table(10**6, 2), "vec2", np.array([[512.0, 0.0]]), made_gpu())
    assert (made.blocks[0], made.waves[0]) == (1954, 20)
    assert (made.tile_flops[0], made.tile_bytes[0]) == (512, 512 * 12)
    # memory-bound: at a utilisation of 1, whole waves of bytes over the bandwidth
    assert made.work_s(100)[0] == pytest.approx(2000 * 512 / 1954 * 12e6 / 512 / 1e12, rel=1e-12)
    for kind, name, ops in (("softmax", "softmax", 5), ("norm", "layer_norm", 6)):
        made = tiled(reduction.table(1050, 300, name), kind, np.zeros((1, 2)), made_gpu())
        assert (made.blocks[0], made.waves[0], made.tile_flops[0]) == (1050, 11, ops * 300)


def test_utilisation_rises_with_waves_and_stays_within_limits() -> None:
    outputs = np.array([[0.0, np.log(3)], [0.0, np.log(3)], [0.0, -50.0], [-50.0, 50.0]])
    waves = np.array([2.0, 4.0, 1.0, 1.0])
    made = utilisation(outputs, waves, 0.01)
    np.testing.assert_allclose(made, [0.75 - 0.5 / 2, 0.75 - 0.5 / 4, 0.01, 1.0])


def test_gradient_of_the_loss() -> None:
    draw = np.random.default_rng(0)
    outputs = draw.normal(0, 1, (20, 2)) + np.array([-2.0, 1.0])
    waves, work, time = draw.uniform(2, 9, 20), draw.uniform(1, 2, 20), draw.uniform(1, 9, 20)
    loss, gradient = symmetric_error(outputs, waves, work, time)
    forecast = work / utilisation(outputs, waves)
    np.testing.assert_allclose(loss, np.abs(time - forecast) / (time + forecast))
    for column in range(2):
        step = np.zeros_like(outputs)
        step[:, column] = 1e-6
        up, down = (symmetric_error(outputs + s, waves, work, time)[0] for s in (step, -step))
        np.testing.assert_allclose(gradient[:, column], (up - down) / 2e-6, atol=1e-6)


def test_training_finds_a_function() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    want = np.abs(x[:, 0]) + x[:, 1]

    def square(outputs: Floats, rows: np.ndarray) -> tuple[Floats, Floats]:
        error = outputs[:, 0] - want[rows]
        return error**2, 2 * error[:, None]

    made = train(x, square, (0.0,), hidden=(16, 16), epochs=60, batch=32)
    assert np.abs(made(x)[:, 0] - want).mean() < 0.05
    np.testing.assert_array_equal(
        made(x), train(x, square, (0.0,), hidden=(16, 16), epochs=60, batch=32)(x)
    )


def test_nearest() -> None:
    known = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    assert nearest(np.array([[1.0, 2.0], [9.0, 1.0], [2.0, 7.0]]), known).tolist() == [0, 1, 2]


def half(table: KernelTable, gpu: GPU) -> Floats:
    """What a utilisation of a half makes of tiles of 128 x 64."""
    made = np.empty(len(table))
    classes = classes_of(table)
    for code in set(classes.tolist()):
        rows = np.flatnonzero(classes == code)
        kind, own = CLASSES[code], table.take(rows)
        one = tiled(own, kind, np.repeat(TILE, len(rows), axis=0), gpu)
        made[rows] = one.work_s(gpu.sms) / 0.5
    return made


@pytest.mark.parametrize("faithful", [False, True])
def test_a_fit_finds_a_constant_utilisation(faithful: bool) -> None:
    law = NeuSightLaw(fit_neusight(rows_by(three_gpus(), half, count=60), faithful, True))
    there = made_gpu(sms=60, vector_flops={"fp32": 1.5e13}, memory_bandwidth_bytes_per_s=6e11)
    (one,) = rows_by([there], half)
    made = law.predict(one.table, there)
    error = np.abs(made.latency_s / one.measured_s - 1)
    assert np.median(error) < 0.05
    products = one.of_class("bmm").table
    shown = law.predict(products, there).tile
    assert (shown[:, :2] == [64, 128]).all()
    np.testing.assert_array_equal(shown[:, 2], products.dims[:, 3])


def test_the_look_up_takes_the_tile_of_the_nearest_kernel_and_gpu() -> None:
    gpus = three_gpus()[:2]
    small, large = (
        rows_by([g], half, tile=t)[0] for g, t in zip(gpus, [(32, 32), (256, 128)], strict=True)
    )
    law = NeuSightLaw(fit_neusight([small, large], False, True))
    for kind in LOOKED_UP:
        for gpu, side in zip(gpus, (32, 256), strict=True):
            own = small.of_class(kind).table
            assert (law.tiles(own, kind, gpu)[:, 0] == side).mean() > 0.5


def test_backward_passes_as_the_authors_price_them() -> None:
    gpus = three_gpus()
    law = NeuSightLaw(fit_neusight(rows_by(gpus, half), True, True))

    def time(table: KernelTable) -> Floats:
        return law.predict(table, gpus[0]).latency_s

    rows, columns = [50000, 80000], [512, 1024]
    product = time(elementwise.table(np.array(rows) * columns, 2))
    forward = time(reduction.table(rows, columns, "softmax"))
    both = KernelTable.concatenate([
        reduction.table(rows, columns, "softmax_backward"),
        reduction.table(rows, columns, "softmax"),
        reduction.table(rows, columns, "layer_norm_backward"),
    ])  # fmt: skip
    np.testing.assert_allclose(
        time(both), np.concatenate([product + forward, forward, product]), rtol=1e-9
    )


def test_data_without_kernel_names() -> None:
    (rows,) = rows_by(three_gpus()[:1], half, tile=(0, 0))
    with pytest.raises(InputError, match="no row with the name"):
        fit_neusight([rows.of_class("bmm")])
