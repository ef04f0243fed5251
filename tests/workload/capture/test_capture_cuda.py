"""Operators that CUDA runs in place of the generic ones, and automatic mixed precision."""

from __future__ import annotations

import pytest

from tilecast.errors import InputError
from tilecast.workload.capture import capture
from tilecast.workload.graph import Graph, Op, Phase

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional

FLASH = "aten._scaled_dot_product_flash_attention"
EFFICIENT = "aten._scaled_dot_product_efficient_attention"


def names(graph: Graph) -> list[str]:
    return [op.name for op in graph.ops]


def one(graph: Graph, name: str) -> Op:
    (op,) = [op for op in graph.ops if op.name == name]
    return op


def train(module, *inputs, **options) -> Graph:
    options = {"loss": "none", "optimizer": "none", **options}
    return capture(module, inputs, mode="training", **options)


class Functional(nn.Module):
    """A function of an input and of a weight that needs a gradient."""

    def __init__(self, function, *shape) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.empty(shape))

    def forward(self, x):
        return self.function(x * self.weight)


# ---- dropout -------------------------------------------------------------------------------------


def test_dropout_is_one_fused_kernel_each_way() -> None:
    graph = train(Functional(lambda x: F.dropout(x, 0.1), 8), torch.empty(4, 8))
    forward = one(graph, "aten.native_dropout")
    assert forward.attr("p") == 0.1
    assert [graph.tensors[i].dtype for i in forward.outputs] == ["float32", "bool"]
    backward = one(graph, "aten.native_dropout_backward")
    assert backward.phase is Phase.BACKWARD
    assert forward.outputs[1] in backward.inputs
    assert forward.outputs[1] in graph.saved


@pytest.mark.parametrize("kind", [nn.Dropout, nn.Dropout2d, nn.AlphaDropout])
def test_dropout_can_be_turned_off(kind) -> None:
    def run(x):
        return kind(0.2)(x)

    image = torch.empty(2, 3, 4, 4)
    assert len(train(Functional(run, 4), image).ops) > 2
    assert names(train(Functional(run, 4), image, dropout=False))[:1] == ["aten.mul"]
    assert len(train(Functional(run, 4), image, dropout=False).ops) == len(
        train(Functional(lambda x: x, 4), image).ops
    )


def test_dropout_does_nothing_in_inference() -> None:
    assert names(capture(nn.Dropout(0.5), torch.empty(4))) == []


# ---- attention -----------------------------------------------------------------------------------


def attend(dtype, heads=(8, 8), dims=(64, 64), lengths=(16, 16), mask=None, **options):
    kwargs = {key: options.pop(key) for key in ("is_causal", "enable_gqa") if key in options}

    def run(q, k, v, mask):
        return F.scaled_dot_product_attention(q, k, v, mask, **kwargs)

    query = torch.empty(2, heads[0], lengths[0], dims[0])
    key = torch.empty(2, heads[1], lengths[1], dims[0])
    value = torch.empty(2, heads[1], lengths[1], dims[1])
    return capture(run, (query, key, value, mask), dtype=dtype, **options)


@pytest.mark.parametrize(
    ("options", "backend"),
    [
        ({"dtype": "bf16"}, "flash"),
        ({"dtype": "fp16", "is_causal": True}, "flash"),
        ({"dtype": "fp32"}, "efficient"),
        ({"dtype": "fp64"}, "math"),
        # Flash takes no mask, no causal rectangle, no head dimension over 256, equal dimensions.
        ({"dtype": "bf16", "mask": torch.empty(16, 16)}, "efficient"),
        ({"dtype": "bf16", "is_causal": True, "lengths": (8, 16)}, "efficient"),
        ({"dtype": "bf16", "dims": (264, 264)}, "efficient"),
        ({"dtype": "bf16", "dims": (192, 128)}, "efficient"),
        # Grouped queries: flash does, memory-efficient does not.
        ({"dtype": "bf16", "heads": (8, 2), "enable_gqa": True}, "flash"),
        ({"dtype": "fp32", "heads": (8, 2), "enable_gqa": True}, "math"),
        # Rows of 16 bytes for the memory-efficient kernel.
        ({"dtype": "fp32", "dims": (62, 62)}, "math"),
        ({"dtype": "bf16", "attention": "eager"}, "math"),
    ],
)
def test_attention_back_end(options, backend) -> None:
    graph = attend(**options)
    assert graph.meta["attention_backends"] == [backend]
    fused = {"flash": FLASH, "efficient": EFFICIENT}.get(backend)
    assert (fused in names(graph)) == (fused is not None)


def test_flash_pads_head_dimensions_to_eight() -> None:
    graph = attend("bf16", dims=(60, 60))
    flash = one(graph, FLASH)
    assert graph.tensors[flash.inputs[0]].shape == (2, 8, 16, 64)
    assert flash.attr("scale") == 60**-0.5
    assert graph.tensors[graph.ops[-1].outputs[0]].shape == (2, 8, 16, 60)


def test_boolean_masks_become_a_bias() -> None:
    graph = attend("fp32", mask=torch.empty(16, 16, dtype=torch.bool))
    assert names(graph)[:3] == ["aten.scalar_tensor", "aten.scalar_tensor", "aten.where"]
    assert len(one(graph, EFFICIENT).inputs) == 4


def test_math_attention_is_pytorchs_own() -> None:
    graph = attend("fp32", attention="eager", is_causal=True)
    ran: list[str] = []

    class Names(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            ran.append(func._schema.name.replace("::", "."))
            return func(*args, **(kwargs or {}))

    query = torch.empty(2, 8, 16, 64, device="meta")
    with Names():
        torch.ops.aten._scaled_dot_product_attention_math(query, query, query, is_causal=True)
    assert names(graph) == ran


def test_attention_inside_modules_written_in_python_and_c() -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    graph = train(layer, torch.empty(2, 6, 32))
    assert one(graph, EFFICIENT).attr("dropout_p") == 0.1
    assert one(graph, EFFICIENT).module == "self_attn"
    assert names(graph).count("aten.native_dropout") == 3
    backward = one(graph, f"{EFFICIENT}_backward")
    assert backward.module == "self_attn"
    assert graph.meta["attention_backends"] == ["efficient"]


# ---- norms, softmax, one-hot ---------------------------------------------------------------------


def test_batch_norm_is_cudnns_where_cudnn_takes_it() -> None:
    image = torch.empty(2, 4, 5, 5)
    graph = train(nn.BatchNorm2d(4), image)
    assert one(graph, "aten.cudnn_batch_norm").attr("training") is True
    assert "aten.cudnn_batch_norm_backward" in names(graph)
    for module, dtype, inputs in (
        (nn.BatchNorm2d(4), "bf16", image),
        (nn.BatchNorm2d(4, affine=False), "fp32", image),
        (nn.BatchNorm2d(4, eps=1e-6), "fp32", image),
        (nn.BatchNorm1d(4), "fp32", torch.empty(2, 4)),
    ):
        assert "aten.native_batch_norm" in names(capture(module, inputs, dtype=dtype))


def test_softmax_to_fp32_is_one_kernel_from_fp16_only() -> None:
    def run(x):
        return F.softmax(x, -1, dtype=torch.float32)

    half = capture(run, torch.empty(4, 8), dtype="fp16")
    assert names(half) == ["aten._softmax"]
    assert half.ops[0].attr("half_to_float") is True
    assert half.tensors[half.ops[0].outputs[0]].dtype == "float32"
    assert names(capture(run, torch.empty(4, 8), dtype="bf16")) == [
        "aten._to_copy",
        "aten._softmax",
    ]


def test_rms_norm_is_fused() -> None:
    if not hasattr(torch.ops.aten, "_fused_rms_norm"):  # PyTorch before 2.9
        assert "aten.rsqrt" in names(capture(nn.RMSNorm(8), torch.empty(4, 8)))
        return
    graph = train(nn.Sequential(nn.Linear(8, 8), nn.RMSNorm(8)), torch.empty(4, 8))
    forward = one(graph, "aten._fused_rms_norm")
    assert [graph.tensors[i].shape for i in forward.outputs] == [(4, 8), (4, 1)]
    backward = one(graph, "aten._fused_rms_norm_backward")
    assert [graph.tensors[i].shape for i in backward.outputs] == [(4, 8), (8,)]
    assert backward.module == "1"
    assert forward.outputs[1] in graph.saved


def test_one_hot_scatters() -> None:
    graph = capture(lambda x: F.one_hot(x, 5), torch.tensor([1, 2, 3]))
    assert names(graph) == ["aten.zeros", "aten.unsqueeze", "aten.scatter_"]
    counted = capture(lambda x: F.one_hot(x), torch.tensor([1, 2, 3]))
    assert counted.tensors[counted.ops[-1].outputs[0]].shape == (3, 4)


# ---- automatic mixed precision -------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.shared = nn.Linear(8, 8)

    def forward(self, x):
        x = self.shared(self.norm(self.shared(x)))
        return torch.softmax(x, -1)


@pytest.mark.parametrize(("dtype", "half"), [("amp-bf16", "bfloat16"), ("amp-fp16", "float16")])
def test_autocast_dtypes_and_cached_casts(dtype, half) -> None:
    graph = train(Block(), torch.empty(4, 8), dtype=dtype)
    forward = [op for op in graph.ops if op.phase is Phase.FORWARD]
    result = lambda op: graph.tensors[op.outputs[0]].dtype  # noqa: E731
    kinds = {op.name: result(op) for op in forward}
    assert kinds["aten.addmm"] == half
    assert kinds["aten.native_layer_norm"] == "float32"
    assert kinds["aten._softmax"] == "float32"
    # Input, weight and bias once each, the norm's input up, and its result down again. Softmax
    # reads fp16 itself, and has bf16 copied to fp32 first.
    copies = sum(op.name == "aten._to_copy" for op in forward)
    assert copies == 5 + (half == "bfloat16")
    gradients = {t.dtype for t in graph.tensors if t.kind == "gradient"}
    assert gradients == {"float32"}


def test_autocast_promotes_and_respects_regions_without_it() -> None:
    def run(x):
        y = x @ x
        with torch.autocast("cuda", enabled=False):
            z = x @ x
        return torch.addcmul(x, y, y), z, y.sum(), torch.logsumexp(y, 0)

    graph = capture(run, torch.empty(4, 4), dtype="amp-bf16")
    kinds = [(op.name, graph.tensors[op.outputs[0]].dtype) for op in graph.ops]
    assert [kind for name, kind in kinds if name == "aten.mm"] == ["bfloat16", "float32"]
    assert ("aten.addcmul", "float32") in kinds
    assert ("aten.sum", "float32") in kinds
    assert ("aten.logsumexp", "float32") in kinds


def test_cast_modules_run_in_their_dtype() -> None:
    graph = train(Block(), torch.empty(4, 8), dtype="bf16")
    assert "aten._to_copy" not in names(graph)
    assert {t.dtype for t in graph.tensors} == {"bfloat16", "float32"}  # norm statistics in fp32
    assert graph.parameters == 8 * 8 + 8 + 16


def test_flash_needs_a_half_dtype() -> None:
    with pytest.raises(InputError, match="--attention flash"):
        attend("fp32", attention="flash")
    assert FLASH in names(attend("bf16", attention="flash"))
