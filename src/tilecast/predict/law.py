"""What a latency law is: a kernel table and a GPU in, seconds and why out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tilecast.hardware.gpu import GPU
from tilecast.kernels.table import Floats, KernelTable

#: What can bound a kernel, in the order of the codes in `Prediction.bound_by`.
BOUNDS: Final[tuple[str, ...]] = ("compute", "memory", "launch")
#: Where a prediction lies relative to what its law was fitted on, in the order of the codes.
DOMAINS: Final[tuple[str, ...]] = ("inside", "edge", "outside")


@dataclass(frozen=True, slots=True)
class Prediction:
    """Forecast of n kernels on one GPU.

    Attributes:
        latency_s: (n,) median forecast, seconds; at least `bound_s`.
        low_s, high_s: (n,) interval at the level asked for.
        bound_s: (n,) what no kernel of this shape can beat on this GPU (cache-aware roofline).
        bound_by: (n,) codes into `BOUNDS`.
        utilisation: (n,) bound over latency, in (0, 1].
        tile: (n, 3) the tile M, N, K that weighs most (zeros where a family has none).
        waves: (n,) rounds of tiles that fill the SMs, fractional (0 where it has no meaning).
        domain: (n,) codes into `DOMAINS`.
    """

    latency_s: Floats
    low_s: Floats
    high_s: Floats
    bound_s: Floats
    bound_by: NDArray[np.int8]
    utilisation: Floats
    tile: NDArray[np.int32]
    waves: Floats
    domain: NDArray[np.int8]


@runtime_checkable
class Law(Protocol):
    """A latency law. It may know shapes and the figures of a GPU, never a name of either."""

    name: str
    #: What it was fitted on, for the `sources` of a forecast (`""` when nothing).
    data: str
    #: Software stack of that data (`""` when none).
    stack: str

    def predict(self, table: KernelTable, gpu: GPU, level: float = 0.8) -> Prediction:
        """Forecast every row of `table` on `gpu`, with an interval that should hold `level`."""
        ...
