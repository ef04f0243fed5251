"""FLOPs against PyTorch's own counter, over random shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from op_graphs import one_op, total_flops

from tilecast.kernels import lower
from tilecast.workload.graph import Graph, Tensor

torch = pytest.importorskip("torch")
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

SIZE = st.integers(1, 300)
SMALL = st.integers(1, 6)
MANY = settings(max_examples=60, deadline=None)


def meta(*shape: int, dtype: Any = None) -> Any:
    return torch.empty(shape, device="meta", dtype=dtype)


def count(name: str, *args: Any, **kwargs: Any) -> tuple[int, Graph]:
    """PyTorch's count of one operator on meta tensors, and the operator as a graph."""
    func = getattr(torch.ops.aten, name).default
    with FlopCounterMode(display=False) as counter:
        result = func(*args, **kwargs)
    results = result if isinstance(result, tuple | list) else (result,)
    names = [argument.name for argument in func._schema.arguments]
    inputs = [a for a in args if isinstance(a, torch.Tensor)]
    attrs = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in [*zip(names, args, strict=False), *kwargs.items()]
        if value is not None and not isinstance(value, torch.Tensor)
    }
    outputs = [t for t in results if isinstance(t, torch.Tensor)]
    graph = one_op(name, _specs(inputs), _specs(outputs), **attrs)
    return counter.get_total_flops(), graph


def _specs(tensors: Sequence[Any]) -> list[Tensor]:
    return [
        Tensor(tuple(t.shape), str(t.dtype).removeprefix("torch."),
               None if t.is_contiguous() else tuple(t.stride()))
        for t in tensors
    ]  # fmt: skip


@MANY
@given(b=SMALL, m=SIZE, n=SIZE, k=SIZE, kind=st.sampled_from(["mm", "addmm", "bmm", "baddbmm"]))
def test_products(b: int, m: int, n: int, k: int, kind: str) -> None:
    lead = (b,) if kind.endswith("bmm") else ()
    operands = [meta(*lead, m, k), meta(*lead, k, n)]
    if kind == "addmm":
        operands.insert(0, meta(n))
    if kind == "baddbmm":
        operands.insert(0, meta(b, m, n))
    expected, graph = count(kind, *operands)
    assert total_flops(lower(graph)) == expected


@st.composite
def convolutions(draw: st.DrawFn) -> dict[str, Any]:
    rank = draw(st.integers(1, 3))
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    each = st.tuples(*[st.integers(1, 3)] * rank)
    taps, stride, dilation = draw(each), draw(each), draw(st.tuples(*[st.integers(1, 2)] * rank))
    padding = draw(st.tuples(*[st.integers(0, 2)] * rank))
    transposed = draw(st.booleans())
    least = [d * (t - 1) + 1 for d, t in zip(dilation, taps, strict=True)]
    sides = tuple(draw(st.integers(size + 4, size + 12)) for size in least)
    first, second = groups * draw(SMALL), groups * draw(SMALL)
    weight = (first, second // groups, *taps) if transposed else (second, first // groups, *taps)
    return {
        "x": (draw(SMALL), first, *sides), "weight": weight, "stride": list(stride),
        "padding": list(padding), "dilation": list(dilation), "transposed": transposed,
        "groups": groups, "bias": second,
    }  # fmt: skip


@MANY
@given(case=convolutions(), biased=st.booleans())
def test_convolution(case: dict[str, Any], biased: bool) -> None:
    rank = len(case["stride"])
    expected, graph = count(
        "convolution", meta(*case["x"]), meta(*case["weight"]),
        meta(case["bias"]) if biased else None, case["stride"], case["padding"],
        case["dilation"], case["transposed"], [0] * rank, case["groups"],
    )  # fmt: skip
    launches = lower(graph)
    assert total_flops(launches) == expected
    assert len(launches) == 1 + biased


@MANY
@given(case=convolutions(), mask=st.lists(st.booleans(), min_size=2, max_size=2))
def test_convolution_backward(case: dict[str, Any], mask: list[bool]) -> None:
    rank = len(case["stride"])
    x, weight = meta(*case["x"]), meta(*case["weight"])
    rest = (case["stride"], case["padding"], case["dilation"], case["transposed"], [0] * rank,
            case["groups"])  # fmt: skip
    out = torch.ops.aten.convolution(x, weight, None, *rest)

    def counted(wanted: list[bool]) -> tuple[int, int]:
        arguments = (torch.empty_like(out), x, weight, [0], *rest, wanted)
        expected, graph = count("convolution_backward", *arguments)
        return expected, total_flops(lower(graph))

    expected, found = counted([mask[0], False, False])
    assert found == expected
    # PyTorch's counter multiplies all channels of the weight gradient, as if there were one group
    expected, found = counted([False, mask[1], False])
    assert found * case["groups"] == expected


@MANY
@given(b=SMALL, heads=SMALL, q_len=st.integers(1, 90), kv_len=st.integers(1, 90),
       width=st.sampled_from([8, 16, 64]), values=st.sampled_from([8, 32]),
       kind=st.sampled_from(["flash", "efficient"]))  # fmt: skip
def test_attention(
    b: int, heads: int, q_len: int, kv_len: int, width: int, values: int, kind: str
) -> None:
    values = width if kind == "flash" else values
    dtype = torch.float16
    q, k = meta(b, heads, q_len, width, dtype=dtype), meta(b, heads, kv_len, width, dtype=dtype)
    v = meta(b, heads, kv_len, values, dtype=dtype)
    name = f"_scaled_dot_product_{kind}_attention"
    extra = (None, True) if kind == "efficient" else ()
    expected, graph = count(name, q, k, v, *extra)
    assert total_flops(lower(graph)) == expected
    assert expected == 2 * b * heads * q_len * kv_len * (width + values)


@MANY
@given(b=SMALL, heads=SMALL, length=st.integers(1, 90), width=st.sampled_from([8, 16, 64]),
       kind=st.sampled_from(["flash", "efficient"]))  # fmt: skip
def test_attention_backward(b: int, heads: int, length: int, width: int, kind: str) -> None:
    shape = (b, heads, length, width)
    inputs = [Tensor(shape, "float16")] * 5 + [Tensor((b, heads, length), "float32")]
    graph = one_op(
        f"_scaled_dot_product_{kind}_attention_backward", inputs, inputs[:3], is_causal=False
    )
    from torch.utils.flop_counter import sdpa_backward_flop_count

    assert total_flops(lower(graph)) == sdpa_backward_flop_count(shape, shape, shape, shape)


def test_every_elementwise_operator_of_pytorch_has_a_rule() -> None:
    """Operators tagged pointwise, but for special functions that models do not use."""
    from tilecast.kernels.rules import RULES

    left_out = ("special_", "__i", "igamma", "mvlgamma", "polygamma", "nextafter", "lcm", "frexp",
                "deg2rad", "rad2deg", "_foreach", "i0_")  # fmt: skip
    missing = set()
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if space != "aten" or name.startswith(left_out) or not hasattr(torch.ops.aten, name):
            continue
        packet = getattr(torch.ops.aten, name)
        tags = {tag for o in packet.overloads() for tag in getattr(packet, o).tags}
        if torch.Tag.pointwise in tags and name not in RULES:
            missing.add(name)
    assert missing <= {"rrelu", "equal"}
