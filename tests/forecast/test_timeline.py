"""The timeline against a simulation written the slow way, and against worked cases."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilecast.forecast.timeline import simulate

NONE = np.array([], dtype=np.intp)
times = st.floats(0.0, 10.0)


def slow(
    duration: list[float], host: list[float], op: list[int], waits: set[int]
) -> tuple[list[float], float]:
    """One launch at a time, as a queue would."""
    clock, free, ends, launch = 0.0, 0.0, [], 0
    for position, cost in enumerate(host):
        clock += cost
        while launch < len(op) and op[launch] == position:
            free = max(free, clock) + duration[launch]
            ends.append(free)
            launch += 1
        if position in waits:
            clock = max(clock, free)
    return ends, max(clock, free)


def test_a_slow_gpu_hides_the_host() -> None:
    line = simulate(np.full(3, 10.0), np.full(3, 1.0), np.arange(3), NONE)
    assert line.end_s.tolist() == [11.0, 21.0, 31.0]
    assert line.host_end_s == 3.0
    assert line.end == 31.0


def test_a_slow_host_starves_the_gpu() -> None:
    line = simulate(np.full(3, 1.0), np.full(3, 10.0), np.arange(3), NONE)
    assert line.start_s.tolist() == [10.0, 20.0, 30.0]
    assert line.end == 31.0


def test_a_wait_stops_the_host_until_the_gpu_is_done() -> None:
    line = simulate(np.array([10.0, 1.0]), np.array([1.0, 1.0]), np.arange(2), np.array([0]))
    assert line.end_s.tolist() == [11.0, 13.0]


def test_two_streams_run_side_by_side_and_respect_dependencies() -> None:
    duration, host = np.array([10.0, 4.0, 1.0]), np.zeros(3)
    line = simulate(duration, host, np.arange(3), NONE, stream=np.array([0, 1, 1]), after=[(2, 0)])
    assert line.end_s.tolist() == [10.0, 4.0, 11.0]


@given(st.data())
def test_the_scan_equals_the_queue(data: st.DataObject) -> None:
    ops = data.draw(st.integers(1, 12))
    host = data.draw(st.lists(times, min_size=ops, max_size=ops))
    op = sorted(data.draw(st.lists(st.integers(0, ops - 1), max_size=20)))
    duration = data.draw(st.lists(times, min_size=len(op), max_size=len(op)))
    waits = set(data.draw(st.lists(st.integers(0, ops - 1), max_size=4)))
    line = simulate(
        np.array(duration, dtype=float), np.array(host), np.array(op, dtype=np.int32),
        np.array(sorted(waits), dtype=np.intp),
    )  # fmt: skip
    ends, end = slow(duration, host, op, waits)
    np.testing.assert_allclose(line.end_s, ends, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(line.end, end, rtol=1e-9, atol=1e-9)


@given(st.lists(times, min_size=1, max_size=8), st.lists(times, min_size=1, max_size=8))
def test_without_a_host_a_sequence_adds_up(first: list[float], second: list[float]) -> None:
    def length(parts: list[float]) -> float:
        n = len(parts)
        return simulate(np.array(parts), np.zeros(n), np.arange(n), NONE).end

    np.testing.assert_allclose(length(first + second), length(first) + length(second), rtol=1e-9)
