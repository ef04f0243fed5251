"""Formulas of the families: closed forms, and one formula for numbers and arrays."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_graphs import agrees

from tilecast.kernels import (
    attention,
    conv,
    copy,
    elementwise,
    embedding,
    gemm,
    index,
    pool,
    reduction,
)
from tilecast.kernels.table import REDUCTION_KINDS

SIZE = st.integers(1, 5000)
SMALL = st.integers(1, 40)
PRECISION = st.sampled_from(["fp64", "fp32", "tf32", "fp16", "bf16"])


def test_gemm_reduces_k() -> None:
    """[3, 5] @ [5, 7]: 2 * 3 * 7 * 5 operations, 4 bytes an element."""
    table = gemm.table(2, 3, 7, 5)
    assert table.flops.tolist() == [2 * 2 * 3 * 7 * 5]
    assert table.bytes_read.tolist() == [4 * 2 * (3 * 5 + 5 * 7)]
    assert table.bytes_written.tolist() == [4 * 2 * 3 * 7]
    assert table.dim("gemm", "k").tolist() == [5]


def test_gemm_bias_is_read_once() -> None:
    assert gemm.table(1, 3, 7, 5, epilogue=1).bytes_read[0] == 4 * (3 * 5 + 5 * 7 + 7)


def test_fp8_product_writes_16_bits() -> None:
    table = gemm.table(1, 16, 32, 64, precision="fp8")
    assert table.bytes_read[0] == 16 * 64 + 64 * 32
    assert table.bytes_written[0] == 2 * 16 * 32


def test_sizes_beyond_int64_do_not_overflow() -> None:
    assert gemm.table(10**6, 10**6, 10**6, 10**6).flops[0] == pytest.approx(2e24)


@pytest.mark.parametrize(
    ("kind", "per_element"), [("softmax", 5), ("layer_norm", 8), ("sum", 1), ("cumsum", 1)]
)
def test_reduction_operations(kind: str, per_element: int) -> None:
    assert reduction.table(10, 100, kind).flops[0] == per_element * 1000


def test_layer_norm_bytes() -> None:
    """Input, weight and bias in; output, mean and reciprocal deviation out."""
    table = reduction.table(10, 100, "layer_norm")
    assert table.bytes_read[0] == 4 * (1000 + 200)
    assert table.bytes_written[0] == 4 * (1000 + 20)


def test_every_reduction_kind_has_a_formula() -> None:
    assert set(reduction.KINDS) == set(REDUCTION_KINDS)


def test_resnet_stem() -> None:
    """7x7 stride 2 over 224 gives 112: 2 * 64 * 112^2 * 3 * 49 = 236,027,904 operations."""
    table = conv.table(1, 3, 64, 224, 224, 7, 7, stride=2, padding=3)
    assert table.flops.tolist() == [236_027_904]
    assert table.bytes_written.tolist() == [4 * 64 * 112 * 112]


def test_depthwise_convolution_divides_by_groups() -> None:
    full = conv.table(1, 32, 32, 14, 14, 3, 3, padding=1)
    depthwise = conv.table(1, 32, 32, 14, 14, 3, 3, padding=1, groups=32)
    assert depthwise.flops[0] * 32 == full.flops[0]


def test_the_three_passes_of_a_convolution_do_the_same_work() -> None:
    flops = {float(conv.table(2, 8, 16, 9, 9, 3, 3, direction=d).flops[0]) for d in range(3)}
    assert len(flops) == 1


def brute_pairs(q_len: int, kv_len: int, causal: bool, window: int, offset: int | None) -> int:
    first = kv_len - q_len if offset is None else offset
    return sum(
        not (
            (causal and key > query + first)
            or (window and key <= query + first - window)
            or (window and not causal and key >= query + first + window)
        )
        for query in range(q_len)
        for key in range(kv_len)
    )


@given(
    q_len=st.integers(1, 12), kv_len=st.integers(1, 12), causal=st.booleans(),
    window=st.integers(0, 14), offset=st.one_of(st.none(), st.integers(0, 4)),
)  # fmt: skip
def test_attention_pairs_are_those_of_the_mask(
    q_len: int, kv_len: int, causal: bool, window: int, offset: int | None
) -> None:
    expected = brute_pairs(q_len, kv_len, causal, window, offset)
    assert attention.pairs(q_len, kv_len, causal, window, offset) == expected
    columns = [np.array([float(v)]) for v in (q_len, kv_len, window)]
    first = None if offset is None else np.array([float(offset)])
    assert attention.pairs(columns[0], columns[1], causal, columns[2], first)[0] == expected


def test_causal_attention_is_half_and_a_diagonal() -> None:
    causal = attention.table(1, 1, 1, 64, 1024, 1024, causal=True).flops[0]
    assert causal == 4 * 64 * (1024 * 1025 / 2)


def test_decoding_sees_the_whole_cache() -> None:
    one = attention.table(1, 1, 1, 64, 1, 1024, causal=True)
    assert one.flops[0] == 4 * 64 * 1024


def test_backward_attention_is_two_and_a_half_forwards() -> None:
    sizes = (2, 8, 8, 64, 256, 256)
    forward, backward = (attention.table(*sizes, backward=b).flops[0] for b in (False, True))
    assert backward == 2.5 * forward


def test_embedding_reads_no_more_rows_than_there_are() -> None:
    assert embedding.table(1000, 64, 10).bytes_read[0] == 10 * 64 * 4 + 8 * 1000


@given(batch=SMALL, m=SIZE, n=SIZE, k=SIZE, layout=st.integers(0, 3), bias=st.booleans(),
       precision=PRECISION)  # fmt: skip
def test_gemm_kernel_agrees_with_table(
    batch: int, m: int, n: int, k: int, layout: int, bias: bool, precision: str
) -> None:
    one = gemm.kernel(batch, m, n, k, layout=layout, epilogue=int(bias), precision=precision)
    table = gemm.table([1, batch], [1, m], [1, n], [1, k], layout, precision, epilogue=int(bias))
    assert agrees(one, table, 1)
    assert one.flops == batch * gemm.kernel(1, m, n, k).flops
    assert one.bytes_written >= batch * m * n * one.itemsize


@given(rows=SIZE, columns=SIZE, kind=st.sampled_from(REDUCTION_KINDS), precision=PRECISION)
def test_reduction_kernel_agrees_with_table(
    rows: int, columns: int, kind: str, precision: str
) -> None:
    one = reduction.kernel(rows, columns, kind, precision=precision)
    assert agrees(one, reduction.table([9, rows], [9, columns], kind, precision=precision), 1)
    assert one.flops * 2 == pytest.approx(reduction.kernel(2 * rows, columns, kind).flops)


@given(elements=SIZE, inputs=st.integers(0, 4), outputs=st.integers(1, 3),
       ops=st.integers(0, 20), precision=PRECISION)  # fmt: skip
def test_elementwise_kernel_agrees_with_table(
    elements: int, inputs: int, outputs: int, ops: int, precision: str
) -> None:
    one = elementwise.kernel(elements, inputs, outputs, ops, precision=precision)
    assert agrees(one, elementwise.table(elements, inputs, outputs, ops, precision=precision))
    assert one.bytes_written == elements * outputs * one.itemsize


@settings(max_examples=60)
@given(
    batch=SMALL, groups=st.integers(1, 4), channels=SMALL, features=SMALL,
    side=st.integers(7, 40), taps=st.sampled_from([1, 3, 5]), stride=st.integers(1, 3),
    padding=st.integers(0, 2), dilation=st.integers(1, 2),
    direction=st.integers(0, 2), precision=PRECISION,
)  # fmt: skip
def test_convolution_kernel_agrees_with_table(
    batch: int, groups: int, channels: int, features: int, side: int, taps: int, stride: int,
    padding: int, dilation: int, direction: int, precision: str,
) -> None:  # fmt: skip
    side = max(side, dilation * (taps - 1) + 1)
    out = conv.output_size(side, taps, stride, padding, dilation)
    one = conv.kernel(
        (batch, channels * groups, side, side), (batch, features * groups, out, out), (taps, taps),
        stride=(stride, stride), padding=(padding, padding), dilation=(dilation, dilation),
        groups=groups, direction=direction, precision=precision,
    )  # fmt: skip
    table = conv.table(
        batch, channels * groups, features * groups, side, side, taps, taps, stride=stride,
        padding=padding, dilation=dilation, groups=groups, direction=direction,
        precision=precision,
    )  # fmt: skip
    assert agrees(one, table)


@given(batch=SMALL, groups=st.integers(1, 8), kv_heads=st.integers(1, 8), head_dim=SMALL,
       q_len=SIZE, kv_len=SIZE, causal=st.booleans(), window=st.integers(0, 300),
       backward=st.booleans(), precision=PRECISION)  # fmt: skip
def test_attention_kernel_agrees_with_table(
    batch: int, groups: int, kv_heads: int, head_dim: int, q_len: int, kv_len: int, causal: bool,
    window: int, backward: bool, precision: str,
) -> None:  # fmt: skip
    sizes = (batch, groups * kv_heads, kv_heads, head_dim, q_len, kv_len)
    options = {"causal": causal, "window": window, "backward": backward, "precision": precision}
    assert agrees(attention.kernel(*sizes, **options), attention.table(*sizes, **options))


@given(tokens=SIZE, width=SIZE, rows=SIZE, backward=st.booleans(), precision=PRECISION)
def test_embedding_kernel_agrees_with_table(
    tokens: int, width: int, rows: int, backward: bool, precision: str
) -> None:
    options = {"backward": backward, "precision": precision}
    one = embedding.kernel(tokens, width, rows, **options)
    assert agrees(one, embedding.table(tokens, width, rows, **options))


@given(elements=SIZE, width=SMALL, flag=st.booleans(), precision=PRECISION)
def test_copy_and_index_kernels_agree_with_tables(
    elements: int, width: int, flag: bool, precision: str
) -> None:
    moved = copy.kernel(elements, transposed=int(flag), precision=precision)
    assert agrees(moved, copy.table(elements, transposed=int(flag), precision=precision))
    placed = index.kernel(elements, width, scatter=flag, precision=precision)
    assert agrees(placed, index.table(elements, width, scatter=flag, precision=precision))


@pytest.mark.parametrize("backward", [False, True])
def test_pool_kernel_agrees_with_table(backward: bool) -> None:
    """ResNet's 3x3 stride 2 pool of 112 gives 56."""
    outputs = 2 * 64 * 56 * 56
    of_output, of_input = outputs * 12.0, 2 * 64 * 112 * 112 * 4.0
    one = pool.kernel(
        (2, 64, 112, 112), outputs, (3, 3), stride=2, padding=1, backward=backward,
        read=of_output if backward else of_input, written=of_input if backward else of_output,
    )  # fmt: skip
    table = pool.table(2, 64, 112, 112, 3, stride=2, padding=1, backward=backward)
    assert agrees(one, table)
    assert one.flops == 9 * outputs
