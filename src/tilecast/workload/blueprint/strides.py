"""Strides as PyTorch computes them: of fresh tensors, of views, of element-wise results.

A blueprint must know when a reshape is a free view and when it is a copy kernel; that depends on
strides alone, so the three rules below are PyTorch's, in elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

Sizes = tuple[int, ...]


@lru_cache(maxsize=4096)
def contiguous(shape: Sizes) -> Sizes:
    """Row-major strides of a shape."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


@lru_cache(maxsize=4096)
def is_contiguous(shape: Sizes, strides: Sizes) -> bool:
    """Whether elements lie in row-major order without gaps (dimensions of 1 do not matter)."""
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 0:
            return True
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True


@lru_cache(maxsize=4096)
def view_strides(shape: Sizes, strides: Sizes, new: Sizes) -> Sizes | None:
    """Strides of the same memory seen as the shape `new`, or None when that needs a copy."""
    if 0 in shape:
        return contiguous(new)
    result = [0] * len(new)
    position = len(new) - 1
    base = strides[-1] if strides else 1
    old_block = new_block = 1
    for dim in range(len(shape) - 1, -1, -1):
        old_block *= shape[dim]
        ends = dim == 0 or (shape[dim - 1] != 1 and strides[dim - 1] != old_block * base)
        if not ends:
            continue
        while position >= 0 and (new_block < old_block or new[position] == 1):
            result[position] = new_block * base
            new_block *= new[position]
            position -= 1
        if new_block != old_block:
            return None
        if dim > 0:
            base = strides[dim - 1]
            old_block = new_block = 1
    if position != -1:
        if prod(shape) != 1:
            return None
        while position >= 0:
            result[position] = 1
            position -= 1
    return tuple(result)


@lru_cache(maxsize=4096)
def broadcast(a: Sizes, b: Sizes) -> Sizes:
    """The shape two shapes broadcast to."""
    if a == b:
        return a
    rank = max(len(a), len(b))
    a = (1,) * (rank - len(a)) + a
    b = (1,) * (rank - len(b)) + b
    return tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))


def expanded(shape: Sizes, strides: Sizes, new: Sizes) -> Sizes:
    """Strides of a tensor expanded to `new`: 0 along the dimensions that repeat."""
    lead = len(new) - len(shape)
    kept = tuple(
        0 if size == 1 and target != 1 else stride
        for size, stride, target in zip(shape, strides, new[lead:], strict=True)
    )
    return (0,) * lead + kept


@lru_cache(maxsize=4096)
def elementwise(operands: tuple[tuple[Sizes, Sizes], ...], shape: Sizes) -> Sizes:
    """Strides of a fresh element-wise result: dense, in the memory order of its operands.

    Args:
        operands: (shape, strides) of each tensor operand, in order.
        shape: the broadcast shape.
    """
    if all(size == shape and is_contiguous(size, stride) for size, stride in operands):
        return contiguous(shape)
    rows = [expanded(size, stride, shape) for size, stride in operands]
    order = list(range(len(shape) - 1, -1, -1))  # fastest dimension first
    for i in range(1, len(order)):
        upper = i
        for lower in range(i - 1, -1, -1):
            turn = _compare(order[lower], order[upper], rows, shape)
            if turn > 0:
                order[lower], order[upper] = order[upper], order[lower]
                upper = lower
            elif turn < 0:
                break
    strides = [0] * len(shape)
    step = 1
    for dim in order:
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)


def _compare(first: int, second: int, rows: Sequence[Sizes], shape: Sizes) -> int:
    """1 when `first` must be outside `second` in memory, -1 when inside, 0 when it is open."""
    for strides in rows:
        a, b = strides[first], strides[second]
        if a == 0 or b == 0:
            continue
        if a != b:
            return -1 if a < b else 1
        if shape[first] > shape[second]:
            return 1
    return 0
