"""Lowering: what eager PyTorch launches on a GPU for each operator of a graph.

Operators of equal signature (name, attributes, shapes, dtypes and strides) launch the same kernels,
so rules run once a signature; a transformer of any depth has a few hundred of them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import numpy as np

from tilecast.errors import InputError
from tilecast.kernels.foreach import LARGE_ARGUMENTS, SMALL_ARGUMENTS
from tilecast.kernels.rules import NO_KERNEL, RULES, VIEW_OR_COPY, Call, Context
from tilecast.kernels.rules.foreach import is_multi_tensor, multi_tensor
from tilecast.kernels.table import Kernel, KernelTable, Launches
from tilecast.precision import PRECISIONS, STORAGE_BITS, STORAGE_OF, itemsize
from tilecast.workload.graph import Graph, Kind, Op, Tensor

ATEN: Final = "aten."
#: First CUDA version whose PyTorch builds pass 32 KB of kernel arguments.
LARGE_ARGUMENT_CUDA: Final = 13
_VIEWS: Final = frozenset(ATEN + name for name in NO_KERNEL)
_VIEW_OR_COPY: Final = frozenset(ATEN + name for name in VIEW_OR_COPY)


def lower(graph: Graph) -> Launches:
    """Every kernel launch of a graph, in the order in which the host issues them.

    Args:
        graph: operators over tensors. Of its `meta`, these change the result: `dtype` (`tf32` runs
            float32 products and convolutions in TF32; a format narrower than 16 bits holds the
            weights), `tf32` and `cudnn_tf32` (the same for either alone) and `stack.cuda` (its
            major version sets the limits of multi-tensor launches).

    Raises:
        InputError: an operator names a tensor that is not there, or of an unknown dtype.
    """
    context = _context(graph.meta)
    tensors = graph.tensors
    kinds = bool(context.weights)
    signatures: dict[Any, int] = {}
    signature = [
        signatures.setdefault(
            (t.shape, t.dtype, t.strides, kinds and t.kind is Kind.PARAMETER), len(signatures)
        )
        for t in tensors
    ]
    rows: dict[Kernel, int] = {}
    known: dict[Any, tuple[int, ...]] = {}
    kernel: list[int] = []
    launcher: list[int] = []
    for position, op in enumerate(graph.ops):
        name = op.name
        if name in _VIEWS:
            continue
        inputs, outputs = op.inputs, op.outputs
        try:
            key: Any = (
                name,
                op.attrs,
                tuple([signature[i] for i in inputs]),
                tuple([signature[i] for i in outputs]),
            )
            if len(inputs) > 1 and len(set(inputs)) < len(inputs):
                key = (*key, _repeated(inputs))
            if name in _VIEW_OR_COPY and tensors[inputs[0]].storage == tensors[outputs[0]].storage:
                continue
            found = known.get(key)
            if found is None:
                made = kernels_of(op, tensors, context)
                found = known[key] = tuple([rows.setdefault(one, len(rows)) for one in made])
        except (IndexError, ValueError) as error:
            raise _bad_op(graph, position, op) from error
        except KeyError as error:
            raise InputError(
                f"graph {graph.name or '(unnamed)'}: op {position} ({name}) has a tensor of dtype "
                f"{error}, expected one of {', '.join(STORAGE_BITS)}"
            ) from error
        if found:
            kernel.extend(found)
            launcher.extend([position] * len(found))
    return Launches(
        KernelTable.from_kernels(list(rows)),
        np.array(kernel, dtype=np.int32),
        np.array(launcher, dtype=np.int32),
    )


def kernels_of(op: Op, tensors: list[Tensor], context: Context | None = None) -> list[Kernel]:
    """What one operator launches: nothing, one or several kernels."""
    name = op.name.removeprefix(ATEN)
    inputs = tuple([tensors[i] for i in op.inputs])
    outputs = tuple([tensors[i] for i in op.outputs])
    if name in NO_KERNEL and op.name.startswith(ATEN):
        return []
    touched = outputs or inputs
    if touched and not any(t.elements for t in touched):
        return []
    where = context or Context()
    weights = (
        frozenset(i for i, t in enumerate(inputs) if t.kind is Kind.PARAMETER)
        if where.weights
        else frozenset()
    )
    call = Call(
        name, inputs, outputs, dict(op.attrs), frozenset(_repeated(op.inputs)), where, weights
    )
    if is_multi_tensor(name):
        made = multi_tensor(call)
    else:
        found = RULES.get(name)
        made = found(call) if found is not None and touched else None
    return [unknown(op.name, call)] if made is None else made


def unknown(name: str, call: Call) -> Kernel:
    """The kernel of an operator without a rule: what it reads and writes once, no arithmetic."""
    tensors = (*call.inputs, *call.outputs)
    read, written = call.read, call.written
    return Kernel(
        f"other:{name}",
        "other",
        "fp32",
        (max((t.elements for t in tensors), default=0),),
        0.0,
        max(read, 1.0),
        written,
        itemsize(call.main.dtype) if tensors else 4.0,
        estimated=True,
    )


def estimated_ops(graph: Graph, launches: Launches) -> dict[str, int]:
    """Operators that no rule describes, by name, with how often each occurs."""
    guessed = launches.table.estimated[launches.kernel]
    positions = np.unique(launches.op[guessed]).tolist()
    return dict(Counter(graph.ops[position].name for position in positions))


def _context(meta: dict[str, Any]) -> Context:
    dtype = str(meta.get("dtype") or "fp32").removeprefix("amp-")
    both = dtype == "tf32"
    narrow = dtype in PRECISIONS and STORAGE_BITS[STORAGE_OF[dtype]] < 16
    stack = meta.get("stack")
    cuda = str(stack.get("cuda", "")) if isinstance(stack, dict) else ""
    major = cuda.split(".")[0]
    large = major.isdigit() and int(major) >= LARGE_ARGUMENT_CUDA
    return Context(
        matmul_fp32="tf32" if both or meta.get("tf32") else "fp32",
        conv_fp32="tf32" if both or meta.get("tf32") or meta.get("cudnn_tf32") else "fp32",
        weights=dtype if narrow else "",
        limits=LARGE_ARGUMENTS if large else SMALL_ARGUMENTS,
    )


def _repeated(ids: tuple[int, ...]) -> tuple[int, ...]:
    """Positions of ids that occurred before."""
    seen: set[int] = set()
    again = []
    for position, tensor in enumerate(ids):
        if tensor in seen:
            again.append(position)
        seen.add(tensor)
    return tuple(again)


def _bad_op(graph: Graph, position: int, op: Op) -> InputError:
    count = len(graph.tensors)
    missing = [i for i in (*op.inputs, *op.outputs) if not 0 <= i < count]
    label = f"graph {graph.name or '(unnamed)'}: op {position} ({op.name})"
    if missing:
        return InputError(f"{label} names tensor {missing[0]}, expected 0 to {count - 1}")
    return InputError(f"{label} has too few tensors, or tensors of too few dimensions, for it")
