"""The three stride rules: by hand, and against PyTorch on tensors of random layout."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilecast.workload.blueprint.strides import (
    broadcast,
    contiguous,
    elementwise,
    expanded,
    is_contiguous,
    view_strides,
)


def test_contiguous_is_row_major() -> None:
    assert contiguous((2, 3, 4)) == (12, 4, 1)
    assert contiguous(()) == ()
    assert is_contiguous((2, 3), (3, 1))
    assert is_contiguous((1, 3), (99, 1))  # the stride of a single row does not matter
    assert not is_contiguous((3, 2), (1, 3))


def test_views_split_and_merge_where_memory_allows() -> None:
    assert view_strides((4, 6), (6, 1), (2, 2, 6)) == (12, 6, 1)
    assert view_strides((2, 3, 4), (12, 4, 1), (6, 4)) == (4, 1)
    # A third of a fused query-key-value row can be split into heads, not merged with the next.
    assert view_strides((2, 8, 32), (768, 96, 1), (2, 8, 4, 8)) == (768, 96, 8, 1)
    assert view_strides((2, 8, 32), (768, 96, 1), (2, 256)) is None
    # Heads after a transpose cannot be merged with their elements.
    assert view_strides((2, 8, 4, 8), (256, 8, 64, 1), (2, 8, 32)) is None


def test_elementwise_results_keep_the_memory_order() -> None:
    assert elementwise((((4, 3), (1, 4)),), (4, 3)) == (1, 4)
    assert elementwise((((4, 3), (3, 1)), ((4, 3), (1, 4))), (4, 3)) == (3, 1)
    assert elementwise((((4, 1), (1, 1)), ((4, 3), (1, 4))), (4, 3)) == (1, 4)
    assert expanded((3, 1), (1, 1), (2, 3, 5)) == (0, 1, 0)
    assert broadcast((3, 1), (2, 1, 5)) == (2, 3, 5)


layouts = st.lists(st.integers(1, 4), min_size=1, max_size=4).flatmap(
    lambda shape: st.tuples(st.just(tuple(shape)), st.permutations(range(len(shape))))
)


@given(layouts, layouts, st.booleans())
def test_rules_agree_with_pytorch(
    first: tuple[tuple[int, ...], list[int]], second: tuple[tuple[int, ...], list[int]], gap: bool
) -> None:
    torch = pytest.importorskip("torch")
    shape, order = first
    wide = (*shape[:-1], shape[-1] + 2) if gap else shape
    x = torch.empty(wide, device="meta")[..., : shape[-1]].permute(*order)
    assert is_contiguous(tuple(x.shape), x.stride()) == x.is_contiguous()

    # Sums with a permuted twin: which operand's memory order wins.
    size = tuple(x.shape)
    twin = torch.empty([size[i] for i in order], device="meta").permute(
        *[order.index(i) for i in range(len(order))]
    )
    if tuple(twin.shape) == size:
        result = torch.add(x, twin)
        ours = elementwise(((size, x.stride()), (size, twin.stride())), size)
        # Where there is one element, any stride is the same memory.
        steps = [(a, b) for a, b, n in zip(ours, result.stride(), size, strict=True) if n > 1]
        assert all(a == b for a, b in steps)

    # Views: any factorisation of the element count.
    target = second[0]
    if prod(target) == prod(size):
        try:
            theirs = x.view(target).stride()
        except RuntimeError:
            theirs = None
        assert view_strides(size, x.stride(), target) == theirs
