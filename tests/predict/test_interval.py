"""Intervals at any level from kept quantiles, and the domain."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilecast.predict.interval import EDGE, domain_of, interval, log_quantile
from tilecast.predict.parameters import QUANTILES, Spread

NORMAL = NormalDist(0.0, 0.3)
SPREAD = Spread(
    np.array([NORMAL.inv_cdf(float(q)) for q in QUANTILES]), np.array([0.0]), np.array([1.0])
)


@given(st.floats(1e-6, 1 - 1e-6))
def test_normal_errors_have_normal_quantiles_at_every_probability(probability: float) -> None:
    assert log_quantile(SPREAD, probability) == pytest.approx(NORMAL.inv_cdf(probability), abs=1e-6)


def test_interval_at_80_percent() -> None:
    inside = np.zeros(1, dtype=np.int8)
    low, high = interval(np.array([1.0]), SPREAD, inside, 0.8)
    assert np.log(high[0]) == pytest.approx(NORMAL.inv_cdf(0.9))
    assert np.log(low[0]) == pytest.approx(NORMAL.inv_cdf(0.1))
    wider = interval(np.array([1.0]), SPREAD, inside + 2, 0.8)
    assert wider[0][0] < low[0]
    assert wider[1][0] > high[0]


def test_domain() -> None:
    features = np.array([[0.5, 1.0, 1.1, -EDGE, 1.0 + EDGE + 1e-9]])
    assert domain_of(features, SPREAD).tolist() == [0, 0, 1, 1, 2]
