"""Error measures against hand counts, and tau against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilecast.errors import InputError
from tilecast.fitting.overhead import Overheads, interval_score
from tilecast.fitting.protocols import (
    TRAINING_DEVICES,
    check_protocol,
    kendall_tau,
    may_train,
    measures,
    summarise,
)

numbers = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=30)


def tau_by_pairs(x: np.ndarray, y: np.ndarray) -> float | None:
    concordant = discordant = only_x = only_y = 0
    for i in range(len(x)):
        for j in range(i):
            a, b = np.sign(x[i] - x[j]), np.sign(y[i] - y[j])
            concordant += a * b > 0
            discordant += a * b < 0
            only_x += a != 0 and b == 0
            only_y += a == 0 and b != 0
    left = concordant + discordant + only_x
    right = concordant + discordant + only_y
    return None if left * right == 0 else (concordant - discordant) / np.sqrt(left * right)


@given(numbers)
def test_tau_is_its_definition(pairs: list[tuple[int, int]]) -> None:
    x, y = np.array(pairs, dtype=np.float64).T
    expected = tau_by_pairs(x, y)
    found = kendall_tau(x, y)
    assert found is None if expected is None else found == pytest.approx(expected)


def test_tau_of_many_rows_is_quick_and_right() -> None:
    x = np.random.default_rng(0).permutation(100_000).astype(np.float64)
    assert kendall_tau(x, x) == pytest.approx(1.0)
    assert kendall_tau(x, -x) == pytest.approx(-1.0)


def test_measures_by_hand() -> None:
    found = measures(
        np.array([1.0, 2.0, 4.0]), np.array([1.1, 1.0, 4.0]), np.array([0.9, 0.9, 3.0]),
        np.array([1.2, 1.5, 5.0]),
    )  # fmt: skip
    # errors +10, -50, 0 percent
    assert found["mean_ape"] == pytest.approx(20.0)
    assert found["median_ape"] == pytest.approx(10.0)
    assert found["p90_ape"] == pytest.approx(42.0)
    assert found["bias"] == pytest.approx(0.0)
    assert found["coverage"] == pytest.approx(2 / 3)
    assert found["rank_tau"] == pytest.approx(1 / 3)


def test_summary_counts_what_was_answered() -> None:
    rows = [
        {"device": "x", "measured_s": 1.0, "latency_s": 2.0, "interval_s": [0.5, 3.0]},
        {"device": "x", "measured_s": None, "latency_s": 2.0, "interval_s": [0.5, 3.0]},
        {"device": "y", "measured_s": 1.0, "latency_s": None, "interval_s": None},
    ]
    answer = summarise(rows, ("device",))
    assert [(group["device"], group["rows"], group["answered"]) for group in answer["groups"]] == [
        ("x", 2, 1),
        ("y", 1, 0),
    ]
    assert answer["groups"][1]["mean_ape"] is None
    assert answer["total"]["mean_ape"] == pytest.approx(100.0)
    assert summarise([], ("device",))["total"]["rows"] == 0


def test_protocols() -> None:
    device = [TRAINING_DEVICES[0], TRAINING_DEVICES[0], "NVIDIA L4"]
    split = ["train", "test", "train"]
    assert may_train("a", device, split).tolist() == [True, False, False]
    assert may_train("ship", device, split).all()
    with pytest.raises(InputError, match="--protocol c: expected a, b, ship"):
        check_protocol("c")


def test_the_clock_of_the_protocol() -> None:
    host = Overheads({"add": 10e-6}, {"add": 12e-6})
    np.testing.assert_allclose(
        host.measured(["add", "add", "other"], np.array([1e-6, 50e-6, 5e-6])),
        [22e-6, 60e-6, 5e-6],
    )
    slow = host.measured(["add"], np.array([50e-6]), interval_score(0.8))
    assert slow[0] > 60e-6
    again = Overheads.from_tensors(host.to_tensors())
    assert again.dispatch_s == host.dispatch_s
    assert again.tail_s == host.tail_s
