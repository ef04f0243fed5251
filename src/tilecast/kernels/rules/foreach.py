"""Multi-tensor operators: `_foreach_*` and fused optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Fused:
    """A fused optimizer.

    Attributes:
        lists: how many lists of the parameters' shapes it may take, gradients included; all but
            the gradients are written.
        steps: whether a list of step counters follows.
        work: operations for each element.
    """

    lists: tuple[int, ...]
    steps: bool
    work: float


# decay 1, first moment 3, second moment 4, denominator 3, update 3
_ADAM: Final = Fused((4, 5), True, 14.0)
FUSED: Final[dict[str, Fused]] = {
    "_fused_adam_": _ADAM,
    "_fused_adamw_": _ADAM,
    # decay 2, momentum 2, update 2
    "_fused_sgd_": Fused((2, 3), False, 6.0),
    # decay 2, sum of squares 2, denominator 2, update 2
    "_fused_adagrad_": Fused((3,), True, 8.0),
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
    # a list that is given twice is read once
    again = sum(len(main) * place in call.repeated for place in range(1, taken))
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
            elements, taken, results, work, precision=precision, itemsize=size,
            read=(taken - again) * elements * size, name=name,
        )
        if work
        else copy.kernel(
            elements, precision=precision, itemsize=size, read=taken * elements * size, name=name
        )
        for elements in launches([t.elements for t in main], depth, call.context.limits)
    ]  # fmt: skip


def _fused(call: Call) -> list[Kernel] | None:
    """The lists are told by how many tensors there are and by their shapes."""
    kind = FUSED[call.name]
    found: list[tuple[int, list[Sequence[Tensor]]]] = []
    for count in kind.lists:
        # what is left over are scalars: a learning rate, a gradient scale, an infinity flag
        length, left = divmod(len(call.inputs), count + kind.steps)
        lists = _lists(call.inputs[: count * length], length) if length else []
        if lists and all(
            tensor.shape == like.shape
            for tensors in lists
            for tensor, like in zip(tensors, lists[0], strict=True)
        ):
            found.append((left, lists))
    if not found:
        return None
    lists = min(found, key=lambda one: one[0])[1]
    return _apply(call, call.name.strip("_"), lists, len(lists) - 1, True, kind.work)


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
