"""What must hold for every law, kernel and GPU: bounds of physics, and never slower with more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from law_samples import gpus, make_gpu, random_table

from tilecast.hardware.gpu import GPU
from tilecast.kernels.table import FAMILIES, KernelTable
from tilecast.predict import BOUNDS, DOMAINS, law_names, load_law
from tilecast.predict.bound import bound_s
from tilecast.predict.law import Law, Prediction

LAWS = {name: load_law(name) for name in law_names(shipped=True)}
SLACK = 1 + 1e-9

laws = st.sampled_from(sorted(LAWS)).map(LAWS.__getitem__)
seeds = st.integers(0, 2**32 - 1)


def scaled(gpu: GPU, **factors: float) -> GPU:
    """A copy with some figures multiplied; `flops` stands for every peak."""
    flops = factors.pop("flops", 1.0)
    changes = {name: getattr(gpu, name) * factor for name, factor in factors.items()}
    for field in ("vector_flops", "matrix_flops"):
        changes[field] = {key: peak * flops for key, peak in getattr(gpu, field).items()}
    return gpu.model_copy(update=changes)


def never_slower(law: Law, table: KernelTable, before: GPU, after: GPU) -> None:
    old, new = law.predict(table, before), law.predict(table, after)
    worse = new.latency_s > old.latency_s * SLACK
    families = [FAMILIES[code] for code in table.family[worse]]
    assert not worse.any(), (
        families,
        table.dims[worse],
        old.latency_s[worse],
        new.latency_s[worse],
    )


@settings(max_examples=40, deadline=None)
@given(laws, seeds, gpus(), st.floats(0.01, 0.99))
def test_forecasts_are_finite_and_not_under_the_bound(
    law: Law, seed: int, gpu: GPU, level: float
) -> None:
    table = random_table(seed)
    made: Prediction = law.predict(table, gpu, level)
    bound = np.max(bound_s(table, gpu), axis=0)
    for values in (made.latency_s, made.low_s, made.high_s):
        assert np.isfinite(values).all()
        assert (values > 0).all()
    assert (made.latency_s >= bound).all()
    np.testing.assert_array_equal(made.bound_s, bound)
    assert (made.low_s <= made.latency_s * SLACK).all()
    assert (made.latency_s <= made.high_s * SLACK).all()
    assert ((made.utilisation > 0) & (made.utilisation <= 1)).all()
    assert made.tile.shape == (len(table), 3)
    assert (made.waves >= 0).all()
    assert set(made.bound_by.tolist()) <= set(range(len(BOUNDS)))
    assert set(made.domain.tolist()) <= set(range(len(DOMAINS)))


@settings(max_examples=40, deadline=None)
@given(laws, seeds, gpus(), st.floats(1.0, 8.0))
def test_more_bandwidth_is_never_slower(law: Law, seed: int, gpu: GPU, more: float) -> None:
    never_slower(law, random_table(seed), gpu, scaled(gpu, memory_bandwidth_bytes_per_s=more))


@settings(max_examples=40, deadline=None)
@given(laws, seeds, gpus(), st.floats(1.0, 8.0))
def test_more_flops_are_never_slower(law: Law, seed: int, gpu: GPU, more: float) -> None:
    never_slower(law, random_table(seed), gpu, scaled(gpu, flops=more))


@settings(max_examples=40, deadline=None)
@given(laws, seeds, gpus(), st.floats(1.0, 20.0))
def test_more_l2_is_never_slower(law: Law, seed: int, gpu: GPU, more: float) -> None:
    never_slower(law, random_table(seed), gpu, scaled(gpu, l2_bytes=more))


@settings(max_examples=40, deadline=None)
@given(laws, seeds, gpus(), st.integers(1, 300))
def test_more_sms_are_never_slower(law: Law, seed: int, gpu: GPU, added: int) -> None:
    more = (gpu.sms + added) / gpu.sms
    after = scaled(gpu, flops=more).model_copy(update={"sms": gpu.sms + added})
    assert after.l2_bandwidth == pytest.approx(gpu.l2_bandwidth * more)
    never_slower(law, random_table(seed), gpu, after)


@settings(max_examples=40, deadline=None)
@given(laws, seeds, gpus(), st.floats(1.0, 8.0))
def test_a_higher_power_limit_is_never_slower(law: Law, seed: int, gpu: GPU, more: float) -> None:
    never_slower(law, random_table(seed), gpu, scaled(gpu, tdp_w=more))


@settings(max_examples=40, deadline=None)
@given(laws, seeds, gpus())
def test_a_row_is_priced_the_same_alone_as_in_a_table(law: Law, seed: int, gpu: GPU) -> None:
    table = random_table(seed, rows=4)
    whole = law.predict(table, gpu).latency_s
    alone = [
        law.predict(table.take(np.array([row])), gpu).latency_s[0] for row in range(len(table))
    ]
    np.testing.assert_allclose(whole, alone, rtol=1e-12)


@pytest.mark.parametrize("name", sorted(LAWS))
def test_a_wider_level_contains_a_narrower_one(name: str) -> None:
    table, gpu = random_table(7), make_gpu()
    previous = None
    for level in (0.05, 0.5, 0.8, 0.95, 0.999):
        made = LAWS[name].predict(table, gpu, level)
        if previous is not None:
            assert (made.low_s <= previous.low_s * SLACK).all()
            assert (made.high_s >= previous.high_s / SLACK).all()
        previous = made


@pytest.mark.parametrize("name", sorted(LAWS))
def test_an_empty_table_is_no_error(name: str) -> None:
    made = LAWS[name].predict(random_table(1).take(np.zeros(0, dtype=int)), make_gpu())
    assert len(made.latency_s) == 0


@pytest.mark.parametrize("name", sorted(LAWS))
def test_the_largest_sizes_that_are_taken_stay_finite(name: str) -> None:
    top = 10**12
    table = KernelTable.from_columns(
        "gemm", "gemm", {"batch": [1, top], "m": [top, top], "n": [top, 1], "k": [top, 1]},
        flops=[2e36, 2e24], bytes_read=[8e24, 8e24], bytes_written=[4e24, 4e24],
    )  # fmt: skip
    made = LAWS[name].predict(table, make_gpu())
    assert np.isfinite(made.latency_s).all()
    assert np.isfinite(made.high_s).all()
