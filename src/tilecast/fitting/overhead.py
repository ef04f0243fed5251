"""What a protocol's clock counts besides the kernel.

NeuSight's kernels were timed one call at a time between two events on an idle GPU: the first event
passes at once, the host dispatches the operator, the kernel runs while the host records the second:

    measured = dispatch + max(kernel, tail)

so that no row is under the host's `dispatch + tail`, whatever the GPU. Dispatch takes longer for
operators with more layers above the kernel, and on slower hosts; a GPU that was never measured is
given the host of the median machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from tilecast.kernels.table import Floats

PREFIX = "protocol/neusight-kernels/"


@dataclass(frozen=True, slots=True)
class Overheads:
    """Host time by operator.

    Attributes:
        dispatch_s, tail_s: of the median machine.
        log_spread: standard deviation of log(host time) between machines.
    """

    dispatch_s: dict[str, float]
    tail_s: dict[str, float]
    log_spread: float = 0.2

    @staticmethod
    def from_tensors(tensors: Mapping[str, NDArray[np.float64]]) -> Overheads:
        """Those that a weights file carries; none where it carries none."""
        own = {
            key.removeprefix(PREFIX): np.asarray(value, dtype=np.float64).ravel()
            for key, value in tensors.items()
            if key.startswith(PREFIX)
        }
        own = {op: pair for op, pair in own.items() if len(pair) == 2 and np.isfinite(pair).all()}
        return Overheads(
            {op: float(pair[0]) for op, pair in own.items()},
            {op: float(pair[1]) for op, pair in own.items()},
        )

    def to_tensors(self) -> dict[str, NDArray[np.float64]]:
        """As arrays for a weights file."""
        return {
            PREFIX + op: np.array([self.dispatch_s[op], self.tail_s[op]]) for op in self.dispatch_s
        }

    def of(self, ops: Sequence[str]) -> tuple[Floats, Floats]:
        """Dispatch and tail (n,) of each operator; 0 for one without figures."""
        return (
            np.array([self.dispatch_s.get(op, 0.0) for op in ops]),
            np.array([self.tail_s.get(op, 0.0) for op in ops]),
        )

    def measured(self, ops: Sequence[str], kernel_s: Floats, end: float = 0.0) -> Floats:
        """What the protocol's clock would show (n,) for kernels of `kernel_s`.

        Args:
            end: normal score of the host's speed: 0 the median machine, above it a slower one.
        """
        dispatch, tail = self.of(ops)
        host = float(np.exp(end * self.log_spread))
        return dispatch * host + np.maximum(kernel_s, tail * host)


def interval_score(level: float) -> float:
    """Normal score of the upper end of a central interval at `level`."""
    return NormalDist().inv_cdf(0.5 + level / 2.0)
