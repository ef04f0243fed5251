"""Launches of multi-tensor operators against PyTorch's rule, block by block."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from op_graphs import lowered, one_op, rows

from tilecast.kernels import lower
from tilecast.kernels.foreach import CHUNK, LARGE_ARGUMENTS, SMALL_ARGUMENTS, Limits, launches
from tilecast.workload.graph import Tensor


def block_by_block(sizes: list[int], lists: int, limits: Limits) -> list[int]:
    """The rule as stated: one block a chunk, a launch when tensors or blocks are full."""
    done: list[int] = []
    blocks: list[int] = []
    tensors = 0
    for size in sizes:
        if size == 0:
            continue
        tensors += 1
        chunks = [min(CHUNK, size - first) for first in range(0, size, CHUNK)]
        for place, chunk in enumerate(chunks):
            blocks.append(chunk)
            last = place == len(chunks) - 1
            if len(blocks) == limits.blocks or (tensors == limits.tensors[lists - 1] and last):
                done.append(sum(blocks))
                blocks = []
                tensors = 0 if last else 1
    return [*done, sum(blocks)] if blocks else done


def gpt2_sizes(layers: int, width: int) -> list[int]:
    """Elements of the parameters of a GPT-2, in their order."""
    layer = [width, width, 3 * width * width, 3 * width, width * width, width, width, width,
             4 * width * width, 4 * width, 4 * width * width, width]  # fmt: skip
    return [50257 * width, 1024 * width, *layer * layers, width, width]


SIZES = st.lists(
    st.one_of(
        st.integers(0, 5), st.integers(1, 4 * CHUNK), st.integers(CHUNK - 1, CHUNK + 1),
        st.integers(300 * CHUNK, 700 * CHUNK),
    ),
    max_size=250,
)  # fmt: skip


@given(sizes=SIZES, lists=st.integers(1, 5), large=st.booleans())
def test_launches_follow_the_rule(sizes: list[int], lists: int, large: bool) -> None:
    limits = LARGE_ARGUMENTS if large else SMALL_ARGUMENTS
    found = launches(sizes, lists, limits)
    assert found == block_by_block(sizes, lists, limits)
    assert sum(found) == sum(sizes)


@pytest.mark.parametrize(
    ("layers", "width", "lists"), [(12, 768, 1), (12, 768, 3), (36, 1280, 2), (48, 1600, 4)]
)
def test_gpt2_parameter_lists(layers: int, width: int, lists: int) -> None:
    sizes = gpt2_sizes(layers, width)
    for limits in (SMALL_ARGUMENTS, LARGE_ARGUMENTS):
        assert launches(sizes, lists, limits) == block_by_block(sizes, lists, limits)


def test_many_small_tensors_fill_the_tensor_limit() -> None:
    assert [len(launches([10] * 440, lists)) for lists in (1, 2, 3, 4, 5)] == [4, 7, 10, 13, 15]


def test_in_place_and_fresh_results() -> None:
    """In place, sqrt takes one list; with results of its own, two."""
    group = [(10,)] * 110
    assert len(lowered("_foreach_sqrt_", group, group)) == 1
    assert len(lowered("_foreach_sqrt", group, group)) == 2


def test_bytes_of_a_multi_tensor_launch() -> None:
    group = [(1000,), (24,)]
    (one,) = lowered("_foreach_addcmul_", [*group, *group, *group], group)
    assert (one["read"], one["written"]) == (3 * 4096, 4096)
    assert one["flops"] == 3 * 1024


def test_a_list_that_is_given_twice_is_read_once() -> None:
    """As in Adam: second moments plus gradients times gradients."""
    graph = one_op("_foreach_addcmul_", [(1000,), (1000,)], [(1000,)])
    graph.ops.clear()
    graph.add_op("aten._foreach_addcmul_", [0, 1, 1], [2])
    (one,) = rows(lower(graph))
    assert (one["inputs"], one["read"]) == (3, 2 * 4000)


def test_lists_of_other_layouts_go_one_by_one() -> None:
    turned = Tensor((8, 4), "float32", (1, 8))
    made = lowered("_foreach_add_", [(8, 4), (8, 4), turned, turned], [(8, 4), (8, 4)])
    assert len(made) == 2


def test_a_scalar_tensor_is_not_a_list() -> None:
    group = [(100,), (50,), (7,)]
    (one,) = lowered("_foreach_mul_", [*group, ()], group)
    assert one["inputs"] == 1


def test_fused_adamw_takes_four_lists() -> None:
    group = [(CHUNK,), (300,)]
    steps = [(), ()]
    (one,) = lowered("_fused_adamw_", [*group * 4, *steps], [*group * 4])
    assert one["read"] == 4 * 4 * (CHUNK + 300)
    assert one["written"] == 3 * 4 * (CHUNK + 300)


def test_fused_adamw_with_equal_shapes_and_amsgrad() -> None:
    (plain,) = lowered("_fused_adamw_", [(10,)] * 20 + [()] * 5, [(10,)] * 20)
    assert plain["elements"] == 50
    (amsgrad,) = lowered("_fused_adamw_", [(10,)] * 20 + [()] * 4, [(10,)] * 20)
    assert (amsgrad["elements"], amsgrad["inputs"], amsgrad["outputs"]) == (40, 5, 4)


def test_cuda_13_takes_larger_arguments() -> None:
    group = [(10,)] * 440
    small = one_op("_foreach_mul_", group, group, meta={"stack": {"cuda": "12.8"}})
    large = one_op("_foreach_mul_", group, group, meta={"stack": {"cuda": "13.0"}})
    assert (len(lower(small)), len(lower(large))) == (4, 1)


def test_norm_finishes_in_a_second_kernel() -> None:
    group = [(CHUNK * 2,), (10,)]
    assert [one["name"] for one in lowered("_foreach_norm", group, [(), ()])] == [
        "foreach_norm",
        "foreach_finish",
    ]
