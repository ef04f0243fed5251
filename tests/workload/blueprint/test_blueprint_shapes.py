"""Parameters and FLOPs of blueprints against published counts and closed forms."""

from __future__ import annotations

from typing import Any

import pytest
from blueprint_counting import SMALL, gemm_flops, layers_of, total_flops
from hypothesis import given, settings
from hypothesis import strategies as st

from tilecast.workload import presets
from tilecast.workload.blueprint import blueprint

#: Trainable parameters that the published checkpoints have (tied embeddings once).
PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "opt-125m": 125_239_296,
    "opt-350m": 331_196_416,
    "opt-1.3b": 1_315_758_080,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "switch-base-8": 619_339_008,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-3b": 2_851_598_336,
    "t5-11b": 11_307_321_344,
}


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters_are_the_published_ones(name: str, count: int) -> None:
    head = "base" if name.startswith("bert") else "auto"
    assert blueprint(presets.load(name), seq=1, head=head).parameters == count


def test_gpt3_sizes_are_the_papers() -> None:
    # Brown et al. 2020, table 2.1, rounded there to two or three digits.
    for name, millions in (("gpt3-xl", 1320), ("gpt3-6.7b", 6660), ("gpt3-175b", 174_600)):
        got = blueprint(presets.load(name), seq=1).parameters / 1e6
        assert got == pytest.approx(millions, rel=0.005)


def _gpt2_forward(width: int, layers: int, vocabulary: int, tokens: int) -> int:
    """c_attn 3 w^2, c_proj w^2, two MLP products of 4 w^2, and the head: 2 FLOPs a weight."""
    return 2 * tokens * (layers * 12 * width * width + width * vocabulary)


@pytest.mark.parametrize("name", ["gpt2", "gpt2-large", "gpt3-xl"])
def test_gpt2_products_match_the_closed_form(name: str) -> None:
    config = presets.load(name)
    width, layers = config["n_embd"], config["n_layer"]
    forward = _gpt2_forward(width, layers, 50257, 4 * 512)
    options: dict[str, Any] = {"batch": 4, "seq": 512}
    graph = blueprint(config, **options)
    assert gemm_flops(graph) == forward
    assert total_flops(graph) - forward == 4 * 4 * 512 * 512 * width * layers
    # Backward does two products for each of the forward's.
    assert gemm_flops(blueprint(config, mode="training", **options)) == 3 * forward
    eager = blueprint(config, attention="eager", **options)
    assert gemm_flops(eager) - forward == 4 * 4 * 512 * 512 * width * layers


def test_llama_products_match_the_closed_form() -> None:
    config = presets.load("llama-3-8b")
    width, inner, layers, groups = 4096, 14336, 32, 8
    attention = 2 * width * width + 2 * width * groups * 128
    weights = layers * (attention + 3 * width * inner)
    tokens, head = 2 * 1024, width * 128256
    graph = blueprint(config, batch=2, seq=1024, dtype="bf16")
    assert gemm_flops(graph) == 2 * tokens * (weights + head)
    # With a cache only the last token of each sequence gets logits.
    prefill = blueprint(config, batch=2, seq=1024, dtype="bf16", mode="prefill")
    assert gemm_flops(prefill) == 2 * tokens * weights + 2 * 2 * head
    decode = blueprint(config, batch=2, dtype="bf16", mode="decode", context=1024)
    assert gemm_flops(decode) == 2 * 2 * (weights + head)
    assert total_flops(decode) - gemm_flops(decode) == 4 * 2 * 1025 * width * layers


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_mixtral_products_match_the_closed_form(dtype: str) -> None:
    config = presets.load("mixtral-8x7b")
    width, inner, layers = 4096, 14336, 32
    attention = 2 * width * width + 2 * width * 8 * 128
    # A token takes two of the eight experts.
    weights = layers * (attention + width * 8 + 2 * 3 * width * inner) + width * 32000
    for tokens in (1, 3, 512):  # 1 and 3 leave experts without a token, or with fewer
        forward = 2 * 2 * tokens * weights
        options: dict[str, Any] = {"batch": 2, "seq": tokens, "dtype": dtype}
        assert gemm_flops(blueprint(config, **options)) == forward
        assert gemm_flops(blueprint(config, mode="training", **options)) == 3 * forward


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_parameters_and_flops_are_linear_in_layers(name: str, mode: str) -> None:
    graphs = [
        blueprint(layers_of(SMALL[name], layers), mode=mode, seq=8) for layers in (1, 2, 3, 5)
    ]
    for measure in (lambda g: g.parameters, gemm_flops, total_flops, lambda g: len(g.ops)):
        one, two, three, five = map(measure, graphs)
        assert two - one == three - two == (five - three) / 2 > 0


@given(
    name=st.sampled_from(sorted(SMALL)),
    batch=st.integers(1, 9),
    seq=st.integers(2, 40),
    dtype=st.sampled_from(["fp32", "bf16"]),
    mode=st.sampled_from(["inference", "training"]),
    attention=st.sampled_from(["auto", "eager"]),
)
@settings(max_examples=60, deadline=None)
def test_flops_are_linear_in_batch(
    name: str, batch: int, seq: int, dtype: str, mode: str, attention: str
) -> None:
    options: dict[str, Any] = {
        "seq": seq, "dtype": dtype, "mode": mode, "attention": attention,
    }  # fmt: skip
    one = blueprint(SMALL[name], batch=1, **options)
    many = blueprint(SMALL[name], batch=batch, **options)
    assert total_flops(many) == batch * total_flops(one)
    assert many.parameters == one.parameters
