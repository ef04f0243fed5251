"""When each kernel starts and ends: a host that issues, streams that run in order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Times since the host began, seconds.

    Attributes:
        start_s, end_s: of each launch on the GPU (launches,).
        host_end_s: when the host had issued its last operator.
        end: when host and GPU are both done.
    """

    start_s: Floats
    end_s: Floats
    host_end_s: float
    end: float


def _in_order(ready_s: Floats, duration_s: Floats, free_at: float) -> Floats:
    """End of each launch of one stream: end[i] = max(ready[i], end[i-1]) + duration[i].

    Unrolled, end[i] = total[i] + max over j <= i of (ready[j] - total[j-1]): one running maximum.
    """
    total = np.cumsum(duration_s)
    slack = ready_s - (total - duration_s)
    slack[0] = max(slack[0], free_at)
    end: Floats = total + np.maximum.accumulate(slack)
    return end


def simulate(
    duration_s: Floats,
    host_s: Floats,
    op: NDArray[np.integer],
    waits: NDArray[np.intp],
    stream: NDArray[np.integer] | None = None,
    after: list[tuple[int, int]] | None = None,
) -> Timeline:
    """Play a launch sequence.

    Args:
        duration_s: (launches,) time of each kernel.
        host_s: (ops,) host time of each operator.
        op: (launches,) operator of each launch, ascending.
        waits: operators after which the host waits until the GPU has run everything so far.
        stream: (launches,) stream of each launch; None when all are on one.
        after: pairs (launch, earlier launch on another stream that it must wait for).

    Returns:
        The timeline. A kernel starts when the host has issued it, its stream is free and what
        it depends on is done.
    """
    if stream is not None and np.any(stream != stream[0] if len(stream) else False):
        return _simulate_streams(duration_s, host_s, op, waits, stream, after or [])
    issued = np.cumsum(host_s)
    end_s = np.empty_like(duration_s)
    shift = 0.0
    free_at = 0.0
    first_launch = 0
    for wait in [*waits.tolist(), len(host_s) - 1]:
        stop = int(np.searchsorted(op, wait, side="right"))
        if stop > first_launch:
            part = slice(first_launch, stop)
            end_s[part] = _in_order(issued[op[part]] + shift, duration_s[part], free_at)
            free_at = float(end_s[stop - 1])
            first_launch = stop
        if wait < len(host_s) - 1:
            shift += max(0.0, free_at - (float(issued[wait]) + shift))
    host_end = float(issued[-1]) + shift if len(issued) else 0.0
    return Timeline(end_s - duration_s, end_s, host_end, max(host_end, free_at))


def _simulate_streams(
    duration_s: Floats,
    host_s: Floats,
    op: NDArray[np.integer],
    waits: NDArray[np.intp],
    stream: NDArray[np.integer],
    after: list[tuple[int, int]],
) -> Timeline:
    """The same with several streams, one launch at a time."""
    depends: dict[int, list[int]] = {}
    for launch, earlier in after:
        depends.setdefault(launch, []).append(earlier)
    end_s = np.zeros_like(duration_s)
    free: dict[int, float] = {}
    waiting = set(waits.tolist())
    host = 0.0
    launch = 0
    for position, cost in enumerate(host_s.tolist()):
        host += cost
        while launch < len(op) and op[launch] == position:
            lane = int(stream[launch])
            begin = max(host, free.get(lane, 0.0))
            for earlier in depends.get(launch, ()):
                begin = max(begin, float(end_s[earlier]))
            end_s[launch] = begin + duration_s[launch]
            free[lane] = float(end_s[launch])
            launch += 1
        if position in waiting:
            host = max([host, *free.values()])
    return Timeline(end_s - duration_s, end_s, host, max([host, *free.values()]))
