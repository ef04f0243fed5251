"""Multi-tensor operators: `_foreach_*` and fused optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilecast.kernels import copy, elementwise, reduction
from tilecast.kernels.elementwise import OPERATIONS
from tilecast.kernels.foreach import CHUNK, launches
from tilecast.kernels.formula import ceil_div
from tilecast.kernels.rules.call import Call, base_name, is_dense, precision_of, strides_of
from tilecast.kernels.rules.pointwise import pointwise
from tilecast.kernels.table import Kernel
from tilecast.precision import itemsize
from tilecast.workload.graph import Tensor

#: Fused optimizers: lists of the parameters' shapes read, of those written, operations.
#: Adam: decay 1, first moment 3, second moment 4, denominator 3, update 3.
FUSED: Final[dict[str, tuple[int, int, float]]] = {
    "_fused_adam_": (4, 3, 14.0),
    "_fused_adamw_": (4, 3, 14.0),
    "_fused_sgd_": (3, 2, 6.0),
    "_fused_adagrad_": (3, 2, 8.0),
}
#: Reductions of each tensor to one number: a multi-tensor kernel, then one that finishes.
_REDUCTIONS: Final[dict[str, str]] = {
    "_foreach_norm": "dot", "_foreach_max": "sum", "_foreach_powsum": "dot",
}  # fmt: skip
_MOST_LISTS: Final = 5


def is_multi_tensor(name: str) -> bool:
    """Whether an operator takes lists of tensors."""
    return name.startswith(("_foreach_", "_fused_adam", "_fused_sgd", "_fused_adagrad",
                            "_amp_foreach_"))  # fmt: skip


def _lists(tensors: Sequence[Tensor], length: int) -> list[Sequence[Tensor]]:
    """Flattened lists of `length` tensors each; what is left over are scalar tensors."""
    whole = len(tensors) // length * length
    return [tensors[first : first + length] for first in range(0, whole, length)]


def _fast(lists: Sequence[Sequence[Tensor]]) -> bool:
    """Whether all lists go through one kernel (`can_use_fast_route` in ATen's ForeachUtils.h)."""
    first = lists[0]
    dtype = first[0].dtype
    for tensors in lists:
        for tensor, like in zip(tensors, first, strict=True):
            if tensor.dtype != dtype or tensor.shape != like.shape:
                return False
            if tensor.strides != like.strides and strides_of(tensor) != strides_of(like):
                return False
            if tensor.strides is not None and not is_dense(tensor):
                return False
    return True


def multi_tensor(call: Call) -> list[Kernel] | None:
    """Launches of one multi-tensor operator; None when its arithmetic is not known."""
    short = base_name(call.name)
    if call.name in FUSED:
        return _fused(call)
    if short in _REDUCTIONS:
        return _reduce(call, short)
    if call.name == "_amp_foreach_non_finite_check_and_unscale_":
        length = max(1, len(call.outputs) - 1)
        return _apply(call, "amp_unscale", _lists(call.inputs, length)[:1], 1, True, 3.0)
    operator = short.removeprefix("_foreach_")
    if not call.outputs:
        return None
    lists = _lists(call.inputs, len(call.outputs))
    in_place = call.name.endswith("_")
    name = f"foreach_{operator}"
    if operator == "zero":
        return _apply(call, name, lists[:1], 1, True, 0.0, reads=0)
    if operator == "copy":
        return _apply(call, name, lists, 1, in_place, 0.0, reads=1)
    work = OPERATIONS.get(operator)
    return None if work is None else _apply(call, name, lists, 1, in_place, work)


def _apply(
    call: Call, name: str, lists: list[Sequence[Tensor]], results: int, in_place: bool,
    work: float, reads: int | None = None,
) -> list[Kernel]:  # fmt: skip
    """One kernel a launch over whole lists, or one a tensor where lists differ in layout.

    Args:
        lists: tensors that are read (or, in place, read and written).
        results: lists that are written.
        in_place: those are among `lists`.
        work: operations for each element.
        reads: lists that are read; all of them by default.
    """
    depth = min(_MOST_LISTS, len(lists) + (0 if in_place else results))
    taken = len(lists) if reads is None else reads
    main = lists[0]
    if not _fast(lists):
        return [
            pointwise(name, tuple(tensors)[-taken:] if taken else (), (tensors[0],), work)
            for tensors in zip(*lists, strict=True)
            if tensors[0].elements
        ]
    size = itemsize(main[0].dtype)
    precision = precision_of(main[0])
    return [
        elementwise.kernel(
            elements, taken, results, work, precision=precision, itemsize=size, name=name
        )
        if work
        else copy.kernel(
            elements, precision=precision, itemsize=size, read=taken * elements * size, name=name
        )
        for elements in launches([t.elements for t in main], depth, call.context.limits)
    ]  # fmt: skip


def _fused(call: Call) -> list[Kernel] | None:
    read, written, work = FUSED[call.name]
    # parameters, gradients and states, then a step counter (a scalar) for each parameter
    first = call.inputs[0].shape
    count = len(call.inputs)
    for length in range(1, count + 1):
        if length * read > count:
            break
        group = call.inputs[:length]
        if all(
            tuple(t.shape for t in call.inputs[k * length : (k + 1) * length])
            == tuple(t.shape for t in group)
            for k in range(1, read)
        ) and (length == count or call.inputs[length].shape == first):
            lists = _lists(call.inputs[: read * length], length)
            return _apply(call, call.name.strip("_"), lists, written, True, work)
    return None


def _reduce(call: Call, name: str) -> list[Kernel]:
    tensors = call.inputs
    size = itemsize(tensors[0].dtype)
    precision = precision_of(tensors[0])
    kind = _REDUCTIONS[name]
    kernels = []
    for elements in launches([t.elements for t in tensors], 1, call.context.limits):
        rows = ceil_div(elements, CHUNK)
        kernels.append(
            reduction.kernel(
                rows, ceil_div(elements, rows), kind, precision=precision, itemsize=size,
                read=elements * size, written=rows * 4.0, name=name.removeprefix("_"),
            )
        )  # fmt: skip
    finish = reduction.kernel(len(tensors), 1, "sum", precision=precision, name="foreach_finish")
    return [*kernels, finish]
