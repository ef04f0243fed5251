"""What single ATen operators become."""

from __future__ import annotations

import pytest
from op_graphs import agrees, lowered, one_op, rows

from tilecast.errors import InputError
from tilecast.kernels import estimated_ops, gemm, lower, reduction
from tilecast.kernels.rules import NO_KERNEL, RULES, VIEW_OR_COPY
from tilecast.workload.graph import Graph, Kind, Tensor

#: A [4, 6] matrix that is stored as its transpose.
COLUMN_MAJOR = Tensor((4, 6), "float32", (1, 4))


@pytest.mark.parametrize(
    "name",
    ["view", "t", "transpose", "permute", "expand", "slice", "select", "unsqueeze", "detach",
     "alias", "split", "as_strided", "_unsafe_view", "lift_fresh", "empty_like"],
)  # fmt: skip
def test_views_run_nothing(name: str) -> None:
    assert lowered(name, [(4, 6)], [(4, 6)]) == []


def test_no_operator_is_both_a_view_and_a_rule() -> None:
    assert not NO_KERNEL & set(RULES)
    assert set(RULES) >= VIEW_OR_COPY


def test_empty_results_run_nothing() -> None:
    assert lowered("add", [(0, 6), (0, 6)], [(0, 6)]) == []


def test_unknown_operators_are_priced_by_their_bytes() -> None:
    graph = one_op("made_up", [(8,), (8,)], [(4,)])
    graph.add_op("torchvision.nms", [0], [2])
    launches = lower(graph)
    first, second = rows(launches)
    assert first["name"] == "other:aten.made_up"
    assert first["estimated"]
    assert (first["read"], first["written"], first["elements"]) == (64, 16, 8)
    assert second["estimated"]
    assert estimated_ops(graph, launches) == {"aten.made_up": 1, "torchvision.nms": 1}


def test_an_unknown_operator_without_tensors_is_not_free() -> None:
    (one,) = lowered("made_up", [], [])
    assert one["estimated"]
    assert one["read"] > 0


def test_a_kernel_matches_the_table_of_its_family() -> None:
    launches = lower(one_op("addmm", [(7,), (3, 5), (5, 7)], [(3, 7)]))
    one = gemm.kernel(1, 3, 7, 5, epilogue=1)
    assert agrees(one, launches.table)
    launches = lower(one_op("_softmax", [(3, 5)], [(3, 5)], dim=-1, half_to_float=False))
    assert agrees(reduction.kernel(3, 5, "softmax"), launches.table)


# ---- products ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "name"),
    [
        ((4, 6), (6, 5), "gemm_nn"),
        ((4, 6), Tensor((6, 5), "float32", (1, 6)), "gemm_nt"),
        (COLUMN_MAJOR, (6, 5), "gemm_tn"),
        (COLUMN_MAJOR, Tensor((6, 5), "float32", (1, 6)), "gemm_tt"),
    ],
)
def test_layout_from_strides(left: Tensor, right: Tensor, name: str) -> None:
    (one,) = lowered("mm", [left, right], [(4, 5)])
    assert one["name"] == name
    assert (one["m"], one["n"], one["k"], one["flops"]) == (4, 5, 6, 240)


def test_a_slice_of_rows_needs_no_copy() -> None:
    (one,) = lowered("mm", [Tensor((4, 6), "float32", (18, 1)), (6, 5)], [(4, 5)])
    assert one["name"] == "gemm_nn"


def test_an_expanded_operand_is_copied_first() -> None:
    copy, one = lowered("mm", [Tensor((4, 6), "float32", (0, 0)), (6, 5)], [(4, 5)])
    assert copy["name"] == "copy"
    assert (copy["read"], copy["written"]) == (4, 4 * 24)
    assert one["read"] == 4 * (24 + 30)


def test_a_shared_batch_is_read_once() -> None:
    shared = Tensor((8, 6, 5), "float32", (0, 5, 1))
    (one,) = lowered("bmm", [(8, 4, 6), shared], [(8, 4, 5)])
    assert one["name"] == "batched_gemm_nn"
    assert one["read"] == 4 * (8 * 24 + 30)


def test_a_bias_is_an_epilogue_and_a_matrix_a_copy() -> None:
    (bias,) = lowered("addmm", [(5,), (4, 6), (6, 5)], [(4, 5)])
    assert (bias["name"], bias["epilogue"]) == ("gemm_nn_bias", 1)
    assert [one["name"] for one in lowered("addmm", [(4, 5), (4, 6), (6, 5)], [(4, 5)])] == [
        "copy",
        "gemm_nn",
    ]
    names = [
        one["name"] for one in lowered("baddbmm", [(8, 4, 5), (8, 4, 6), (8, 6, 5)], [(8, 4, 5)])
    ]
    assert names == ["copy", "batched_gemm_nn"]


def test_linear_and_matmul_forms() -> None:
    (linear,) = lowered("linear", [(2, 3, 6), (5, 6), (5,)], [(2, 3, 5)])
    assert (linear["name"], linear["m"], linear["n"], linear["k"]) == ("gemm_nt_bias", 6, 5, 6)
    (folded,) = lowered("matmul", [(2, 3, 6), (6, 5)], [(2, 3, 5)])
    assert (folded["batch"], folded["m"]) == (1, 6)
    (batched,) = lowered("matmul", [(2, 1, 3, 6), (4, 6, 5)], [(2, 4, 3, 5)])
    assert (batched["batch"], batched["m"], batched["n"], batched["k"]) == (8, 3, 5, 6)
    (vector,) = lowered("mv", [(4, 6), (6,)], [(4,)])
    assert vector["flops"] == 48


def test_precision_of_products() -> None:
    def precision(dtype: str, meta: dict[str, object]) -> str:
        graph = one_op("mm", [(4, 6), (6, 5)], [(4, 5)], dtype, meta)
        return str(rows(lower(graph))[0]["precision"])

    assert precision("float32", {}) == "fp32"
    assert precision("float32", {"dtype": "tf32"}) == "tf32"
    assert precision("float32", {"tf32": True}) == "tf32"
    assert precision("bfloat16", {"dtype": "tf32"}) == "bf16"
    assert precision("float16", {"dtype": "amp-fp16"}) == "fp16"
    assert precision("float8_e4m3fn", {}) == "fp8"


@pytest.mark.parametrize(
    ("dtype", "precision", "read"),
    [("fp8", "fp8", 64 * 64 * 2), ("int4", "bf16", 64 * 64 * 2.5), ("bf16", "bf16", 64 * 64 * 4)],
)
def test_narrow_weights(dtype: str, precision: str, read: float) -> None:
    graph = Graph("quantised", meta={"dtype": dtype})
    x = graph.add_tensor(Tensor((64, 64), "bfloat16"))
    w = graph.add_tensor(Tensor((64, 64), "bfloat16", (1, 64), kind=Kind.PARAMETER))
    out = graph.add_tensor(Tensor((64, 64), "bfloat16"))
    graph.add_op("aten.mm", [x, w], [out])
    graph.add_op("aten.mm", [x, x], [out])
    weights, activations = rows(lower(graph))
    assert (weights["precision"], weights["read"]) == (precision, read)
    assert activations["precision"] == "bf16"


def test_grouped_products_share_the_rows_evenly() -> None:
    inputs = [(100, 16), (8, 16, 32), Tensor((8,), "int32")]
    (one,) = lowered("_grouped_mm", inputs, [(100, 32)])
    assert (one["batch"], one["m"], one["n"], one["k"]) == (8, 13, 32, 16)
    assert one["flops"] == 2 * 100 * 32 * 16


def test_groups_without_a_row_are_not_read() -> None:
    inputs = [(2, 16), (8, 16, 32), Tensor((8,), "int32")]
    (one,) = lowered("_grouped_mm", inputs, [(2, 32)])
    assert (one["batch"], one["m"], one["n"], one["k"]) == (2, 1, 32, 16)
    assert one["read"] == 4 * (2 * 16 + 2 * 16 * 32) + 4 * 8
    turned = [(8, 32, 16), (16, 2), Tensor((8,), "int32")]
    (other,) = lowered("_grouped_mm", turned, [(32, 2)])
    assert (other["batch"], other["m"], other["n"], other["read"]) == (2, 32, 1, one["read"])


# ---- elementwise, copies -----------------------------------------------------------------------


def test_broadcast_operands_count_their_own_bytes() -> None:
    (one,) = lowered("add", [(64, 32), (32,)], [(64, 32)])
    assert one["read"] == 4 * (64 * 32 + 32)
    assert one["flops"] == 64 * 32
    (expanded,) = lowered("mul", [(64, 32), Tensor((64, 32), "float32", (0, 1))], [(64, 32)])
    assert expanded["read"] == 4 * (64 * 32 + 32)


def test_one_tensor_twice_is_read_once() -> None:
    graph = one_op("mul", [(64,), (64,)], [(64,)])
    graph.add_op("aten.mul", [0, 0], [2])
    two, once = rows(lower(graph))
    assert (two["read"], once["read"]) == (512, 256)


def test_mixed_dtypes() -> None:
    """bool mask 1 byte, bf16 2, fp32 4."""
    inputs = [Tensor((100,), "bool"), Tensor((100,), "bfloat16"), Tensor((), "float32")]
    (one,) = lowered("where", inputs, [Tensor((100,), "float32")])
    assert (one["read"], one["written"]) == (100 + 200 + 4, 400)
    (compared,) = lowered("eq", [Tensor((100,), "int64")], [Tensor((100,), "bool")])
    assert (compared["read"], compared["written"], compared["elements"]) == (800, 100, 100)


def test_halves_are_computed_on_in_fp32() -> None:
    (one,) = lowered("gelu", [(64,)], [(64,)], "bfloat16", approximate="tanh")
    assert (one["precision"], one["itemsize"]) == ("fp32", 2)
    (erf,) = lowered("gelu", [(64,)], [(64,)], "bfloat16", approximate="none")
    assert erf["flops"] < one["flops"]


def test_whole_powers_are_multiplications() -> None:
    (cube,) = lowered("pow", [(10,)], [(10,)], exponent=3.0)
    (root,) = lowered("pow", [(10,)], [(10,)], exponent=0.3)
    assert (cube["flops"], root["flops"]) == (20, 20)
    (square,) = lowered("pow", [(10,)], [(10,)], exponent=2)
    assert square["flops"] == 10


def test_in_place_forms_are_the_same_kernel() -> None:
    graph = one_op("add", [(64,), (64,)], [(64,)])
    graph.add_op("aten.add_", [0, 1], [2])
    launches = lower(graph)
    assert launches.kernel.tolist() == [0, 0]
    assert launches.op.tolist() == [0, 1]


def test_copies_know_a_transposition() -> None:
    (straight,) = lowered("clone", [(4, 6)], [(4, 6)])
    (turned,) = lowered("clone", [COLUMN_MAJOR], [(4, 6)])
    (kept,) = lowered("clone", [COLUMN_MAJOR], [COLUMN_MAJOR])
    assert [one["transposed"] for one in (straight, turned, kept)] == [0, 1, 0]


def test_elementwise_knows_a_transposed_operand() -> None:
    (straight,) = lowered("add", [(4, 6), (4, 6)], [(4, 6)])
    (turned,) = lowered("add", [(4, 6), COLUMN_MAJOR], [(4, 6)])
    assert (straight["transposed"], turned["transposed"]) == (0, 1)
    assert turned["read"] == straight["read"]


def test_a_destination_is_not_read() -> None:
    (one,) = lowered("copy_", [(64,), (1,)], [(64,)])
    assert (one["read"], one["written"]) == (4, 256)
    (zeros,) = lowered("zeros_like", [(64,)], [(64,)])
    assert (zeros["read"], zeros["written"]) == (0, 256)


def test_casts() -> None:
    (one,) = lowered("_to_copy", [(64,)], [Tensor((64,), "bfloat16")])
    assert (one["name"], one["read"], one["written"]) == ("cast", 256, 128)


def test_reshape_copies_only_when_it_must() -> None:
    graph = Graph()
    base = graph.add_tensor(Tensor((4, 6), "float32"))
    graph.add_op("aten.reshape", [base], [graph.add_tensor(Tensor((24,), "float32", None, base))])
    graph.add_op("aten.reshape", [base], [graph.add_tensor(Tensor((24,), "float32"))])
    assert lower(graph).op.tolist() == [1]


def test_cat_takes_128_tensors_a_launch() -> None:
    parts = lowered("cat", [(3,)] * 130, [(390,)])
    assert [one["written"] for one in parts] == [128 * 12, 2 * 12]


def test_dropout() -> None:
    mask = Tensor((64,), "bool")
    (one,) = lowered("native_dropout", [(64,)], [(64,), mask], p=0.1, train=True)
    assert one["written"] == 64 * 4 + 64


# ---- reductions and norms ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dim", "out", "expected"),
    [((1,), (8, 1), (8, 32, 1)), ((0,), (1, 32), (32, 8, 32)), (None, (), (1, 256, 1)),
     ((0, 1), (1, 1), (1, 256, 1)), ((-1,), (8,), (8, 32, 1))],
)  # fmt: skip
def test_sum_over_dimensions(
    dim: tuple[int, ...] | None, out: tuple[int, ...], expected: tuple[int, int, int]
) -> None:
    attrs = {} if dim is None else {"dim": dim}
    (one,) = lowered("sum", [(8, 32)], [out], **attrs)
    assert (one["rows"], one["columns"], one["inner"]) == expected
    assert one["flops"] == 256


def test_maximum_forms() -> None:
    (whole,) = lowered("max", [(8, 32)], [()])
    (two,) = lowered("max", [(8, 32), (8, 32)], [(8, 32)])
    (rowwise,) = lowered("max", [(8, 32)], [(8,), Tensor((8,), "int64")], dim=1)
    assert (whole["family"], two["family"], rowwise["family"]) == (
        "reduction", "elementwise", "reduction",
    )  # fmt: skip
    assert rowwise["written"] == 8 * 4 + 8 * 8


def test_layer_norm_backward_is_two_kernels() -> None:
    x, stat, w = (16, 64), (16, 1), (64,)
    inputs = [x, x, stat, stat, w, w]
    both = lowered(
        "native_layer_norm_backward", inputs, [x, w, w], normalized_shape=(64,),
        output_mask=(True, True, True),
    )  # fmt: skip
    assert [one["name"] for one in both] == [
        "layer_norm_backward",
        "layer_norm_backward_weights",
    ]
    assert [(one["rows"], one["columns"]) for one in both] == [(16, 64), (64, 16)]
    frozen = lowered(
        "native_layer_norm_backward", inputs, [x], normalized_shape=(64,),
        output_mask=(True, False, False),
    )  # fmt: skip
    assert [one["name"] for one in frozen] == ["layer_norm_backward"]


def test_batch_norm_in_training_and_inference() -> None:
    x, c = (2, 8, 5, 5), (8,)
    train, evaluate = (
        [one["name"] for one in
         lowered("native_batch_norm", [x, c, c, c, c], [x, c, c], training=flag)]
        for flag in (True, False)
    )  # fmt: skip
    assert train == ["batch_norm_statistics", "batch_norm_update", "batch_norm_transform"]
    assert evaluate == train[1:]
    (one,) = lowered("cudnn_batch_norm", [x, c, c, c, c], [x, c, c], training=True)
    assert (one["rows"], one["columns"]) == (8, 50)


def test_group_norm_runs_several_kernels() -> None:
    x, c, stat = (2, 8, 5, 5), (8,), (2, 4)
    forward = lowered("native_group_norm", [x, c, c], [x, stat, stat], group=4)
    backward = lowered(
        "native_group_norm_backward", [x, x, stat, stat, c], [x, c, c], group=4,
        output_mask=(True, True, True),
    )  # fmt: skip
    assert (len(forward), len(backward)) == (3, 4)


def test_cross_entropy_backward_zeroes_then_scatters() -> None:
    scores, target = (16, 1000), Tensor((16,), "int64")
    made = lowered("nll_loss_backward", [(), scores, target, ()], [scores], reduction=1)
    assert [one["name"] for one in made] == ["fill", "nll_loss_backward"]
    assert made[0]["written"] == 4 * 16000
    (one,) = lowered("nll_loss_forward", [scores, target], [(), ()], reduction=1)
    assert (one["rows"], one["columns"], one["read"]) == (1, 16, 16 * 4 + 16 * 8)


def test_sort_and_topk() -> None:
    short = lowered("sort", [(8, 32)], [(8, 32), Tensor((8, 32), "int64")], dim=-1)
    assert [one["name"] for one in short] == ["copy", "sort_positions", "sort"]
    long = lowered("sort", [(100_000,)], [(100_000,), Tensor((100_000,), "int64")], dim=-1)
    assert [one["name"] for one in long].count("radix_sort_pass") == 4
    out = [(8, 2), Tensor((8, 2), "int64")]
    names = [one["name"] for one in lowered("topk", [(8, 32)], out, k=2, sorted=True)]
    assert names == ["topk", "topk_sort"]


# ---- look-ups ----------------------------------------------------------------------------------


def test_embedding_backward_sorts_many_indices() -> None:
    few = lowered("embedding_dense_backward", [(3072, 64), Tensor((3072,), "int64")], [(50257, 64)])
    assert [one["name"] for one in few] == ["fill", "embedding_backward"]
    many = lowered(
        "embedding_dense_backward", [(4, 1024, 64), Tensor((4, 1024), "int64")], [(50257, 64)]
    )
    names = [one["name"] for one in many]
    assert names.count("radix_sort_pass") == 2  # 16 bits tell 50257 rows apart
    assert names[-2:] == ["embedding_backward", "embedding_backward_sum"]


def test_index_reads_rows_and_indices() -> None:
    places = Tensor((10,), "int64")
    (one,) = lowered("index", [(100, 64), places], [(10, 64)])
    assert (one["elements"], one["width"], one["scatter"]) == (640, 64, 0)
    assert (one["read"], one["written"]) == (2560 + 80, 2560)


def test_boolean_masks_become_positions() -> None:
    names = [
        one["name"] for one in lowered("index", [(100, 64), Tensor((100,), "bool")], [(9, 64)])
    ]
    assert names == ["nonzero_count", "nonzero_select", "index"]
    *_, one = lowered("index", [(100, 64), Tensor((100,), "bool")], [(9, 64)])
    assert (one["width"], one["read"]) == (64, 9 * 64 * 4 + 9 * 8)


def test_index_put() -> None:
    inputs = [(100, 64), Tensor((10,), "int64"), (10, 64)]
    assert len(lowered("index_put_", inputs, [(100, 64)], accumulate=False)) == 1
    names = [one["name"] for one in lowered("index_put", inputs, [(100, 64)], accumulate=True)]
    assert names[0] == "copy"
    assert "radix_sort_pass" in names
    assert names[-1] == "index_put"


def test_view_gradients_are_zeros_and_a_copy() -> None:
    names = [one["name"] for one in lowered("slice_backward", [(4, 3)], [(4, 6)], dim=1)]
    assert names == ["fill", "copy"]


# ---- convolutions, pools, attention ------------------------------------------------------------


def test_convolution_backward_follows_its_mask() -> None:
    shapes = [(2, 16, 8, 8), (2, 4, 8, 8), (16, 4, 3, 3)]
    attrs = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    made = lowered(
        "convolution_backward", shapes, [shapes[1], shapes[2], (16,)],
        output_mask=(True, True, True), **attrs,
    )  # fmt: skip
    assert [one["name"] for one in made] == [
        "conv_data_gradient", "conv_weight_gradient", "conv_bias_gradient",
    ]  # fmt: skip
    assert made[0]["flops"] == made[1]["flops"] == 2 * 2 * 16 * 64 * 4 * 9
    first = lowered(
        "convolution_backward", shapes, [shapes[2]], output_mask=(False, True, False), **attrs
    )
    assert [one["pass"] for one in first] == [2]


def test_a_transposed_convolution_is_a_data_gradient() -> None:
    made = lowered(
        "convolution", [(2, 8, 5, 5), (8, 4, 3, 3), (4,)], [(2, 4, 11, 11)], stride=(2, 2),
        padding=(0, 0), dilation=(1, 1), groups=1, transposed=True, output_padding=(0, 0),
    )  # fmt: skip
    assert [one["name"] for one in made] == ["conv_data_gradient", "conv_bias"]
    assert (made[0]["in"], made[0]["out"], made[0]["height"]) == (4, 8, 11)


def test_a_convolution_in_one_dimension_keeps_its_output_size() -> None:
    """1 x 32 positions with padding 1: the columns give back 1 x 16."""
    (one,) = lowered(
        "convolution", [(2, 8, 32), (16, 8, 3)], [(2, 16, 16)], stride=(2,), padding=(1,),
        dilation=(1,), groups=1,
    )  # fmt: skip
    pads = 2 * one["padding"]
    out = [
        (one[side] + pads - one["dilation"] * (one[taps] - 1) - 1) // one["stride"] + 1
        for side, taps in (("height", "kernel_h"), ("width", "kernel_w"))
    ]
    assert out == [1, 16]


def test_max_pool_backward_zeroes_first() -> None:
    x, y = (2, 4, 8, 8), (2, 4, 4, 4)
    made = lowered(
        "max_pool2d_with_indices_backward", [y, x, Tensor(y, "int64")], [x], kernel_size=(2, 2),
        stride=(2, 2), padding=(0, 0),
    )  # fmt: skip
    assert [one["name"] for one in made] == ["fill", "max_pool_backward"]
    assert made[1]["read"] == 128 * 12


def test_flash_attention_backward() -> None:
    """Row sums, the main kernel, a conversion; sums over the groups of shared keys."""
    q, kv = (2, 8, 64, 32), (2, 2, 64, 32)
    inputs = [q, q, kv, kv, q, Tensor((2, 8, 64), "float32")]
    made = lowered(
        "_scaled_dot_product_flash_attention_backward", inputs, [q, kv, kv], "bfloat16",
        is_causal=True, dropout_p=0.0,
    )  # fmt: skip
    assert [one["name"] for one in made] == [
        "attention_row_sums", "flash_attention_backward", "flash_attention_convert", "sum", "sum",
    ]  # fmt: skip
    assert made[1]["flops"] == 10 * 2 * 8 * 32 * (64 * 65 // 2)


# ---- errors ------------------------------------------------------------------------------------


def test_a_missing_tensor_is_named() -> None:
    graph = Graph("broken", [Tensor((4,), "float32")])
    graph.add_op("aten.neg", [0], [7])
    with pytest.raises(InputError, match=r"op 0 \(aten.neg\) names tensor 7"):
        lower(graph)


def test_an_unknown_dtype_is_named() -> None:
    with pytest.raises(InputError, match="float3"):
        lower(one_op("neg", [(4,)], [(4,)], "float3"))


def test_too_few_tensors() -> None:
    with pytest.raises(InputError, match="too few tensors"):
        lower(one_op("mm", [(4, 4)], [(4, 4)]))


def test_an_empty_graph_launches_nothing() -> None:
    launches = lower(Graph())
    assert (len(launches), len(launches.table)) == (0, 0)
