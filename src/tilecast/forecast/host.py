"""What eager execution costs the host: the time at which each kernel is even asked for.

Eager PyTorch walks Python, the dispatcher and autograd for every operator, a view as much as a
GEMM, and only then queues kernels. A GPU faster than that walk waits. The model is a cost for
each operator by what it is, plus a cost for each launch; it knows no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tilecast.kernels import Launches
from tilecast.workload.graph import Graph, Phase

Floats = NDArray[np.float64]

PHASES: Final[tuple[Phase, ...]] = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)

#: Operators after which the host waits for the GPU, because Python needs the value.
SYNCHRONISING: Final[frozenset[str]] = frozenset(
    {"aten._local_scalar_dense", "aten.nonzero", "aten.item", "aten.masked_select",
     "aten.is_nonzero", "aten.equal", "aten.unique", "aten._unique2"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class HostModel:
    """Seconds of host time in eager mode.

    The defaults are set by hand, in the range of what `python -m bench.host` measures:
    PyTorch's own eager CPU path over tensors too small to compute on (7.7 us for a mean forward
    operator and 4.7 us for a backward one on a small shared machine; a server's core is faster).
    That regression cannot tell views from work well, so the split between them is a judgement.
    `launch_s` is a `cudaLaunchKernel` call, which that path lacks: 2 to 4 us on server CPUs,
    taken at its middle.

    Attributes:
        forward_op_s: a forward operator that launches kernels, with the Python around it.
        forward_view_s: a forward operator that only makes a view.
        backward_op_s, backward_view_s: the same under the C++ autograd engine.
        foreach_tensor_s: each tensor in a `_foreach_*` or fused list, on top of its operator.
        launch_s: each kernel launch.
        spread: one-sided factor to a slower, and inverted to a faster, host at the 80 % level.
    """

    forward_op_s: float = 9.0e-6
    forward_view_s: float = 2.5e-6
    backward_op_s: float = 6.0e-6
    backward_view_s: float = 1.5e-6
    foreach_tensor_s: float = 0.3e-6
    launch_s: float = 3.0e-6
    spread: float = 1.5


#: No host cost: every launch was recorded before (a CUDA graph).
NO_HOST: Final = HostModel(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)


@dataclass(frozen=True, slots=True)
class HostWork:
    """What the host does for each operator of a graph, counted (arrays of length ops).

    Attributes:
        kind: (ops,) 0 forward op, 1 forward view, 2 backward op, 3 backward view.
        listed: (ops,) tensors in its lists beyond the first (foreach operators; else 0).
        launched: (ops,) kernels it launches.
        waits: positions of operators after which the host waits for the GPU.
    """

    kind: NDArray[np.int8]
    listed: Floats
    launched: Floats
    waits: NDArray[np.intp]

    @staticmethod
    def of(graph: Graph, launches: Launches) -> HostWork:
        """Count it for a graph and its launch sequence."""
        ops = graph.ops
        launched = np.bincount(launches.op, minlength=len(ops)).astype(np.float64)
        # the optimizer's few operators are Python calls: they cost what forward ones do
        backward = np.array([op.phase is Phase.BACKWARD for op in ops], dtype=np.int8)
        kind = (2 * backward + (launched == 0)).astype(np.int8)
        listed = np.zeros(len(ops))
        waits = []
        for position, op in enumerate(ops):
            if op.name.startswith(("aten._foreach", "aten._fused")):
                listed[position] = len(op.inputs)
            elif op.name in SYNCHRONISING:
                waits.append(position)
        return HostWork(kind, listed, launched, np.array(waits, dtype=np.intp))

    def seconds(self, host: HostModel) -> Floats:
        """Host seconds of each operator (ops,)."""
        by_kind = np.array(
            [host.forward_op_s, host.forward_view_s, host.backward_op_s, host.backward_view_s]
        )
        return (
            by_kind[self.kind] + self.listed * host.foreach_tensor_s + self.launched * host.launch_s
        )
