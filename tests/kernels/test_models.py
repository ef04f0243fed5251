"""Whole models: nothing is estimated, and what is known of them adds up."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from op_graphs import total_flops

from tilecast.kernels import estimated_ops, lower
from tilecast.kernels.lower import kernels_of
from tilecast.workload.blueprint import blueprint
from tilecast.workload.graph import Graph

COMMON: dict[str, Any] = {
    "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100, "hidden_size": 32,
    "max_position_embeddings": 64, "intermediate_size": 64,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {"model_type": "gpt2", "n_embd": 32, "n_head": 4, "n_layer": 2, "vocab_size": 100,
             "n_positions": 64},
    "bert": {"model_type": "bert", **COMMON},
    "opt": {"model_type": "opt", "ffn_dim": 64, "word_embed_proj_dim": 32, **COMMON},
    "llama": {"model_type": "llama", "num_key_value_heads": 2, **COMMON},
    "mistral": {"model_type": "mistral", "num_key_value_heads": 2, "sliding_window": 6, **COMMON},
    "qwen3": {"model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 16, **COMMON},
}  # fmt: skip


def training(kind: str, dtype: str = "fp32", **options: Any) -> Graph:
    sizes = {"batch": 2, "seq": 16, "optimizer": "adamw"} | options
    return blueprint(CONFIGS[kind], mode="training", dtype=dtype, **sizes)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_no_operator_of_a_blueprint_is_estimated(kind: str, dtype: str) -> None:
    for attention in ("sdpa", "eager"):
        graph = training(kind, dtype, attention=attention)
        launches = lower(graph)
        assert estimated_ops(graph, launches) == {}
        assert np.all(np.diff(launches.op) >= 0)
        assert np.all(launches.table.footprint > 0)


@pytest.mark.parametrize("kind", ["gpt2", "opt", "llama"])
def test_no_operator_of_a_decoding_step_is_estimated(kind: str) -> None:
    graph = blueprint(CONFIGS[kind], mode="decode", batch=2, context=8, dtype="bf16")
    assert estimated_ops(graph, lower(graph)) == {}


def test_signatures_do_not_change_what_is_launched() -> None:
    """The same as lowering every operator on its own."""
    graph = training("gpt2")
    launches = lower(graph)
    table = launches.table
    at = 0
    for position, op in enumerate(graph.ops):
        for kernel in kernels_of(op, graph.tensors):
            row = int(launches.kernel[at])
            assert launches.op[at] == position
            assert (table.name_of(row), table.flops[row]) == (kernel.name, kernel.flops)
            assert table.bytes_read[row] == kernel.bytes_read
            at += 1
    assert at == len(launches)


def test_kernels_write_at_least_the_results() -> None:
    """Operators that overwrite a part of a tensor excepted."""
    for kind in CONFIGS:
        graph = training(kind)
        for op in graph.ops:
            made = kernels_of(op, graph.tensors)
            if made and "index" not in op.name:
                # random states of attention are a few bytes that no kernel is charged for
                results = sum(
                    graph.tensors[i].bytes for i in op.outputs if "64" not in graph.tensors[i].dtype
                )
                assert sum(k.bytes_written for k in made) >= results, op.name


def test_flops_are_additive_in_the_batch() -> None:
    one, three = (total_flops(lower(training("gpt2", batch=batch))) for batch in (1, 3))
    assert three == 3 * one


def test_products_of_gpt2_by_the_textbook() -> None:
    """6 x weights x tokens for forward and backward, all layers and the logits."""
    graph = training("gpt2", attention="sdpa")
    width, layers, tokens = 32, 2, 2 * 16
    weights = layers * 12 * width**2 + 100 * width
    assert total_flops(lower(graph), ["gemm"]) == 6 * weights * tokens
    pairs = 16 * 17 // 2
    assert total_flops(lower(graph), ["attention"]) == layers * 14 * 2 * width * pairs


def test_a_deep_model_has_few_distinct_kernels_and_lowers_fast() -> None:
    """GPT-2 large: thousands of operators."""
    config = {**CONFIGS["gpt2"], "n_embd": 1280, "n_head": 20, "n_layer": 36,
              "vocab_size": 50257, "n_positions": 1024}  # fmt: skip
    graph = blueprint(config, mode="training", batch=4, seq=1024, optimizer="adamw")
    times = []
    for _ in range(3):
        begin = time.process_time()
        launches = lower(graph)
        times.append(time.process_time() - begin)
    assert len(graph.ops) > 3000
    assert len(launches.table) < 300
    assert min(times) < 0.06


def test_no_operator_of_a_captured_model_is_estimated() -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from tilecast.workload.capture import capture

    small = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2,
             "intermediate_size": 64, "num_labels": 10}  # fmt: skip
    for config in (
        transformers.ResNetConfig(
            embedding_size=16, hidden_sizes=[16, 32], depths=[1, 2], layer_type="bottleneck",
            architectures=["ResNetForImageClassification"],
        ),
        transformers.ViTConfig(
            image_size=32, patch_size=8, architectures=["ViTForImageClassification"], **small
        ),
        transformers.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4),
    ):  # fmt: skip
        sizes = {} if hasattr(config, "num_channels") else {"seq": 16}
        for dtype in ("fp32", "amp-bf16"):
            graph = capture(
                config, mode="training", batch=2, dtype=dtype, optimizer="adamw", **sizes
            )
            assert estimated_ops(graph, lower(graph)) == {}
