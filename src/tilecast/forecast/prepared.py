"""A graph made ready to be priced: all that does not depend on the GPU, as arrays."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilecast.forecast.host import PHASES, HostWork
from tilecast.hardware.gpu import GPU
from tilecast.kernels import KernelTable, Launches, lower
from tilecast.kernels.table import FAMILY_CODE
from tilecast.predict.bound import MATRIX_FAMILIES
from tilecast.workload.graph import Graph

#: Steps in which the warm share of a kernel's reads is told apart; finer steps price the same
#: kernel more often for nothing.
WARM_STEPS = 4

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)")


def module_group(path: str) -> str:
    """Module path with every index as `*`: the layers of a stack are one group."""
    return _NUMBER.sub("*", path)


@dataclass(frozen=True, slots=True)
class Reuse:
    """Which launches read what was touched not long before (arrays of length reads).

    Attributes:
        launch: the launch that reads.
        bytes: what it reads.
        distance: distinct bytes touched since that memory was last touched, itself included;
            an L2 of that size could still hold it.
    """

    launch: NDArray[np.int32]
    bytes: NDArray[np.float64]
    distance: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A graph lowered to its launch sequence, with what any forecast of it needs.

    Attributes:
        graph: the graph.
        launches: its launch sequence over the table of its distinct kernels.
        host: what the host does for each op.
        phase: (launches,) codes into `PHASES`.
        module: (launches,) codes into `modules`.
        modules: module paths with indices as `*`.
        stream: (launches,) stream of each launch, None when all are on one.
        cross_stream: pairs (launch, earlier launch on another stream that it must wait for).
        reuse: reads that a cache may serve.
        flops: of one pass over the graph, what `mfu` counts: GEMM, convolution and attention.
        total_flops: the same with every elementwise and reduction operation.
        bytes: unique bytes of every launch, summed.
        parameters: of the model, tied ones once.
    """

    graph: Graph
    launches: Launches
    host: HostWork
    phase: NDArray[np.int8]
    module: NDArray[np.int32]
    modules: tuple[str, ...]
    stream: NDArray[np.int32] | None
    cross_stream: list[tuple[int, int]]
    reuse: Reuse
    flops: float
    total_flops: float
    bytes: float
    parameters: int

    def warm_on(self, gpu: GPU) -> NDArray[np.int8]:
        """Share of its reads that each launch finds in the L2, in steps of 1/WARM_STEPS."""
        held = self.reuse.bytes * (self.reuse.distance <= gpu.l2_bytes)
        found = np.bincount(self.reuse.launch, weights=held, minlength=len(self.launches))
        reads = np.maximum(self.launches.table.bytes_read[self.launches.kernel], 1.0)
        share = np.minimum(1.0, found / reads)
        return np.floor(share * WARM_STEPS + 1e-9).astype(np.int8)

    def distinct_on(self, gpu: GPU) -> tuple[KernelTable, NDArray[np.int32]]:
        """Distinct (kernel, cache state) rows on a GPU, and the row of each launch."""
        key = self.launches.kernel.astype(np.int64) * (WARM_STEPS + 1) + self.warm_on(gpu)
        rows, of_launch = np.unique(key, return_inverse=True)
        table = self.launches.table.take(rows // (WARM_STEPS + 1))
        return table.with_warm(rows % (WARM_STEPS + 1) / WARM_STEPS), of_launch.astype(np.int32)


def prepare(graph: Graph) -> Prepared:
    """Lower a graph and collect what every forecast of it shares."""
    launches = lower(graph)
    phase_code = {phase: code for code, phase in enumerate(PHASES)}
    codes: dict[str, int] = {}
    groups: dict[str, int] = {}
    op_phase = np.empty(len(graph.ops), dtype=np.int8)
    op_module = np.empty(len(graph.ops), dtype=np.int32)
    op_stream = np.empty(len(graph.ops), dtype=np.int32)
    for position, op in enumerate(graph.ops):
        op_phase[position] = phase_code[op.phase]
        op_stream[position] = op.stream
        code = codes.get(op.module)
        if code is None:
            code = codes[op.module] = groups.setdefault(module_group(op.module), len(groups))
        op_module[position] = code
    table, kernel = launches.table, launches.kernel
    dense = np.isin(table.family, [FAMILY_CODE[family] for family in MATRIX_FAMILIES])
    stream = op_stream[launches.op]
    one_stream = not len(stream) or bool(np.all(stream == stream[0]))
    return Prepared(
        graph=graph,
        launches=launches,
        host=HostWork.of(graph, launches),
        phase=op_phase[launches.op],
        module=op_module[launches.op],
        modules=tuple(groups),
        stream=None if one_stream else stream,
        cross_stream=[] if one_stream else _cross_stream(graph, launches),
        reuse=_reuse(graph, launches),
        flops=float(np.sum((table.flops * dense)[kernel])),
        total_flops=float(np.sum(table.flops[kernel])),
        bytes=float(np.sum(table.footprint[kernel])),
        parameters=graph.parameters,
    )


def _reuse(graph: Graph, launches: Launches) -> Reuse:
    """Reuse distance of every read, over whole storages, in launch order."""
    storage = [tensor.storage for tensor in graph.tensors]
    size = [float(tensor.bytes) for tensor in graph.tensors]
    last_touch: dict[int, float] = {}
    touched = 0.0
    readers: list[int] = []
    amounts: list[float] = []
    distances: list[float] = []
    first_launch = np.searchsorted(launches.op, np.arange(len(graph.ops) + 1)).tolist()
    for position, op in enumerate(graph.ops):
        launch = first_launch[position]
        if launch == first_launch[position + 1]:
            continue
        for tensor in op.inputs:
            at = last_touch.get(storage[tensor])
            if at is not None:
                readers.append(launch)
                amounts.append(size[tensor])
                distances.append(touched - at)
        for tensor in (*op.inputs, *op.outputs):
            # where it starts, so that its own size counts in the next distance
            last_touch[storage[tensor]] = touched
            touched += size[tensor]
    return Reuse(
        np.array(readers, dtype=np.int32),
        np.array(amounts, dtype=np.float64),
        np.array(distances, dtype=np.float64),
    )


def _cross_stream(graph: Graph, launches: Launches) -> list[tuple[int, int]]:
    """For each op, the last launch of the last writer of what it reads, on another stream."""
    first = np.searchsorted(launches.op, np.arange(len(graph.ops) + 1)).tolist()
    writer: dict[int, int] = {}
    pairs: list[tuple[int, int]] = []
    for position, op in enumerate(graph.ops):
        if first[position] == first[position + 1]:
            continue
        sources = {
            writer[storage]
            for storage in (graph.tensors[tensor].storage for tensor in op.inputs)
            if storage in writer
        }
        for earlier in sorted(sources):
            if graph.ops[earlier].stream != op.stream:
                pairs.append((first[position], first[earlier + 1] - 1))
        for tensor in op.outputs:
            writer[graph.tensors[tensor].storage] = position
    return pairs
