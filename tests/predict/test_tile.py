"""The tile law against closed forms, with parameters made for the purpose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from law_samples import make_gpu, random_table

from tilecast.errors import UnknownNameError
from tilecast.hardware import gpu as catalogue_gpu
from tilecast.hardware.gpu import Microbenchmarks
from tilecast.kernels import conv
from tilecast.kernels.table import KernelTable
from tilecast.predict import DOMAINS, law_names, load_law
from tilecast.predict.clock import rate_of
from tilecast.predict.parameters import TILES, Parameters
from tilecast.predict.tile import TileLaw, memory_class_of, missed_bytes, products_of


def shipped() -> Parameters:
    law = load_law("tile")
    assert isinstance(law, TileLaw)
    return law.parameters


def gemm(batch: int, m: int, n: int, k: int, precision: str = "fp32") -> KernelTable:
    size = 4.0 if precision == "fp32" else 2.0
    return KernelTable.from_columns(
        "gemm", "gemm", {"batch": batch, "m": m, "n": n, "k": k}, flops=2.0 * batch * m * n * k,
        bytes_read=size * batch * (m * k + k * n), bytes_written=size * batch * m * n,
        precision=precision, itemsize=size,
    )  # fmt: skip


def plain(**changes: object) -> TileLaw:
    """A law that loses nothing: full efficiency, no tail, one tile that is ever chosen."""
    base = shipped()
    chosen = np.full((2, len(TILES)), 1e-3)
    chosen[:, TILES.index((128, 128))] = 1.0
    own = replace(
        base.gemm["gemm", "fp32"], tile_efficiency=chosen, tail=np.zeros(len(TILES)),
        split_k=1e9, quantised=1.0, k_overhead=0.0, dram_efficiency=np.ones(2),
        l2_efficiency=1.0, reread=0.0, launch_s=0.0,
    )  # fmt: skip
    own = replace(own, **changes)  # type: ignore[arg-type]
    return TileLaw(replace(base, gemm={**base.gemm, ("gemm", "fp32"): own}))


#: What the soft choice gives to a single tile among the candidates.
ALONE = len(TILES) ** (1 / 16)


def test_whole_waves_of_full_tiles() -> None:
    # 100 SMs, 30 x 40 = 1200 tiles of 128 x 128: 12 waves
    made = plain().predict(gemm(1, 30 * 128, 40 * 128, 8192), make_gpu(tdp_w=5000))
    tile_s = 2 * 128 * 128 * 8192 / (2e13 / 100)
    assert made.latency_s[0] == pytest.approx(12 * tile_s * ALONE, rel=1e-3)
    assert made.waves[0] == pytest.approx(12.0)
    assert made.tile[0].tolist() == [128, 128, 8]


def test_one_tile_more_is_one_wave_more() -> None:
    gpu = make_gpu(tdp_w=5000, memory_bandwidth_bytes_per_s=1e15, l2_bandwidth_bytes_per_s=1e15)
    full = plain().predict(gemm(100, 128, 128, 8192), gpu)
    over = plain().predict(gemm(101, 128, 128, 8192), gpu)
    assert over.latency_s[0] / full.latency_s[0] == pytest.approx(2.0, rel=1e-3)
    smooth = plain(quantised=0.0).predict(gemm(101, 128, 128, 8192), gpu)
    assert smooth.latency_s[0] / full.latency_s[0] == pytest.approx(1.01, rel=1e-3)


def test_a_deep_product_of_few_tiles_is_split() -> None:
    gpu = make_gpu(tdp_w=5000)
    whole = plain().predict(gemm(1, 128, 128, 65536), gpu)
    split = plain(split_k=1024.0).predict(gemm(1, 128, 128, 65536), gpu)
    assert whole.latency_s[0] / split.latency_s[0] > 20  # 64 pieces for 100 SMs


def test_the_power_limit_stretches_full_waves_only() -> None:
    law = plain()
    sustained = law.parameters.sustained
    energy = sustained.energy_j  # at 7 nm
    draw = 2e13 * energy
    low = make_gpu(tdp_w=sustained.idle_w + draw / 2)
    high = make_gpu(tdp_w=sustained.idle_w + draw * 2)
    full, small = gemm(1, 12800, 12800, 8192), gemm(1, 128, 128, 8192)
    slower = law.predict(full, low).latency_s[0] / law.predict(full, high).latency_s[0]
    assert slower == pytest.approx(2 ** (1 / sustained.voltage_exponent), rel=1e-2)
    assert law.predict(small, low).latency_s[0] == pytest.approx(
        law.predict(small, high).latency_s[0]
    )


def test_rate_under_the_power_limit() -> None:
    law = replace(shipped().sustained, idle_w=20.0, energy_j=1e-11, process_exponent=1.0,
                  voltage_exponent=1.0)  # fmt: skip
    # 80 W of arithmetic at 10 pJ a FLOP
    assert rate_of(make_gpu(tdp_w=100), "fp32", law, 1.0).sustained == pytest.approx(8e12)
    # twice the process, twice the energy
    assert rate_of(make_gpu(tdp_w=100, process_nm=14), "fp32", law, 1.0).sustained == (
        pytest.approx(4e12)
    )
    assert rate_of(make_gpu(tdp_w=1000), "fp32", law, 1.0).sustained == pytest.approx(2e13)


def test_published_microbenchmarks_set_the_large_gemm_and_the_stream() -> None:
    published = Microbenchmarks(
        large_gemm_flops={"fp32": 1e13}, copy_bandwidth_bytes_per_s=5e11, launch_s=1e-5
    )
    gpu = make_gpu(microbenchmarks=published)
    big = gemm(1, 16384, 16384, 16384)
    law, told = load_law("tile"), load_law("tile", microbenchmark=True)
    at = 2 * 16384**3 / told.predict(big, gpu).latency_s[0]
    assert at == pytest.approx(1e13, rel=0.15)
    assert law.predict(big, gpu).latency_s[0] < told.predict(big, gpu).latency_s[0]
    table = KernelTable.from_columns(
        "elementwise", "add", {"elements": 10**9, "inputs": 1, "outputs": 1}, flops=1e9,
        bytes_read=4e9, bytes_written=4e9,
    )  # fmt: skip
    assert told.predict(table, gpu).latency_s[0] == pytest.approx(8e9 / 5e11, rel=0.05)
    # a GPU without published figures is forecast from its datasheet
    np.testing.assert_array_equal(
        told.predict(big, make_gpu()).latency_s, law.predict(big, make_gpu()).latency_s
    )


def test_convolution_as_products() -> None:
    # ResNet-50 conv2_x 3x3: 64 -> 64 channels, 56 x 56, batch 32
    columns = {"batch": 32, "in": 64, "out": 128, "height": 56, "width": 56, "kernel_h": 3,
               "kernel_w": 3, "stride": 2, "padding": 1, "dilation": 1, "groups": 1,
               "pass": [0, 1, 2]}  # fmt: skip
    table = KernelTable.from_columns(
        "conv", "conv", columns, flops=np.ones(3), bytes_read=1.0, bytes_written=1.0
    )
    made = products_of(table, "conv", table.footprint)
    assert made.m.tolist() == [32 * 28 * 28, 32 * 56 * 56, 128]
    assert made.n.tolist() == [128, 64, 64 * 9]
    # stride 2: a quarter of the taps reach an input pixel
    assert made.k.tolist() == [64 * 9, 128 * 9 / 4, 32 * 28 * 28]
    # the three passes do the same multiplications
    assert len(set((made.m * made.n * made.k).tolist())) == 1


def test_what_the_l2_holds_is_not_missed() -> None:
    table = KernelTable.from_columns(
        "copy", "copy", {"elements": [1, 1, 1, 1]}, flops=np.zeros(4),
        bytes_read=np.array([1e6, 15e6, 20e6, 40e6]), bytes_written=0.0, warm=1.0,
    )  # fmt: skip
    np.testing.assert_allclose(missed_bytes(table, 10e6), [0.0, 7.5e6, 20e6, 40e6])
    np.testing.assert_allclose(missed_bytes(table.with_warm(0.0), 10e6), table.footprint)


def test_memory_classes() -> None:
    assert memory_class_of(make_gpu(memory_kind="HBM2e")) == 1
    assert memory_class_of(make_gpu(memory_kind="GDDR6")) == 0
    assert memory_class_of(make_gpu(memory_kind="")) == 0


def test_domain_and_wider_interval_where_nothing_was_fitted() -> None:
    law, gpu = load_law("tile"), make_gpu()
    inside = law.predict(gemm(1, 1024, 1024, 1024), gpu)
    other = law.predict(gemm(1, 1024, 1024, 1024, "bf16"), gpu)
    assert DOMAINS[inside.domain[0]] == "inside"
    assert DOMAINS[other.domain[0]] == "outside"
    assert other.high_s[0] / other.latency_s[0] > inside.high_s[0] / inside.latency_s[0]


def test_unknown_law() -> None:
    with pytest.raises(UnknownNameError, match="unknown law 'tle'; did you mean tile"):
        load_law("tle")
    assert law_names()[0] == "tile"


def test_chunks_do_not_change_a_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    table, gpu = random_table(3, rows=50), make_gpu()
    whole = load_law("tile").predict(table, gpu)
    monkeypatch.setattr("tilecast.predict.tile.CHUNK", 7)
    np.testing.assert_array_equal(load_law("tile").predict(table, gpu).latency_s, whole.latency_s)


def test_a_strided_data_gradient_costs_no_more_than_its_flops_say() -> None:
    """Stride 2 reaches each input pixel with a quarter of the taps: same FLOPs as forward."""
    law, place = load_law("tile"), catalogue_gpu("a100")
    shape = (32, 256, 512, 56, 56, 1, 1)
    forward, gradient = (
        law.predict(conv.table(*shape, stride=2, direction=way), place).latency_s[0]
        for way in (0, 1)
    )
    assert gradient < 3 * forward
