"""The roofline with a launch floor: what a datasheet alone says.

    latency = max(compute, DRAM, L2) + launch

Nothing is learned: a floor on what a kernel takes, with an interval that says so.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tilecast.hardware.gpu import GPU
from tilecast.kernels.table import KernelTable
from tilecast.predict.bound import bound_s
from tilecast.predict.law import Prediction

#: Time of an empty kernel in a stream of launches: 2 to 4 us on GPUs of the last ten years.
LAUNCH_S: Final = 3e-6
#: The roofline is a bound. At level 0.8 the interval runs from a little under it (a launch can be
#: shorter) to this multiple of it; other levels scale its logarithm.
MULTIPLE_AT_80: Final = 3.0


class Roofline:
    """Roofline law; see the module."""

    name = "roofline"
    data = ""
    stack = ""

    def __init__(self, microbenchmark: bool = False) -> None:
        """`microbenchmark`: take a published launch time where the GPU has one."""
        self.microbenchmark = microbenchmark

    def predict(self, table: KernelTable, gpu: GPU, level: float = 0.8) -> Prediction:
        """Forecast every row of `table` on `gpu`; `level` in (0, 1) sets the interval's width."""
        compute, dram, cache = bound_s(table, gpu)
        memory = np.maximum(dram, cache)
        bound = np.maximum(compute, memory)
        published = gpu.microbenchmarks.launch_s
        launch = published if self.microbenchmark and published is not None else LAUNCH_S
        latency = bound + launch
        multiple = MULTIPLE_AT_80 ** (np.log1p(-level) / np.log1p(-0.8))
        which = np.where(bound <= launch, 2, np.where(compute >= memory, 0, 1))
        rows = len(table)
        return Prediction(
            latency_s=latency,
            low_s=np.maximum(bound, latency / 2.0),
            high_s=latency * multiple,
            bound_s=bound,
            bound_by=which.astype(np.int8),
            utilisation=np.clip(bound / latency, np.finfo(np.float64).tiny, 1.0),
            tile=np.zeros((rows, 3), dtype=np.int32),
            waves=np.zeros(rows),
            domain=np.full(rows, 1, dtype=np.int8),
        )
