"""FLOPs of a graph's matrix products and attention, from shapes alone, and small configs."""

from __future__ import annotations

from typing import Any

from tilecast.workload.graph import Graph, Op

_COMMON = {
    "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100, "hidden_size": 32,
    "max_position_embeddings": 64, "intermediate_size": 64,
}  # fmt: skip
_ENCODER_DECODER = {
    "d_model": 32, "d_ff": 64, "d_kv": 16, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4,
    "vocab_size": 100, "relative_attention_num_buckets": 8,
}  # fmt: skip
SMALL: dict[str, dict[str, Any]] = {
    "gpt2": {
        "model_type": "gpt2", "n_embd": 32, "n_head": 4, "n_layer": 2, "vocab_size": 100,
        "n_positions": 64,
    },
    "bert": {"model_type": "bert", **_COMMON},
    "bert-decoder": {"model_type": "bert", "is_decoder": True, **_COMMON},
    "opt": {"model_type": "opt", "ffn_dim": 64, "word_embed_proj_dim": 32, **_COMMON},
    "opt-postnorm": {
        "model_type": "opt", "ffn_dim": 64, "word_embed_proj_dim": 16,
        "do_layer_norm_before": False, **_COMMON,
    },
    "llama": {"model_type": "llama", "num_key_value_heads": 2, **_COMMON},
    "llama-mha": {"model_type": "llama", "tie_word_embeddings": True, **_COMMON},
    "mistral": {
        "model_type": "mistral", "num_key_value_heads": 2, "sliding_window": 6, **_COMMON,
    },
    "mixtral": {
        "model_type": "mixtral", "num_key_value_heads": 2, "num_local_experts": 4, **_COMMON,
    },
    "qwen2": {"model_type": "qwen2", "num_key_value_heads": 2, **_COMMON},
    "qwen3": {"model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 16, **_COMMON},
    "switch": {
        "model_type": "switch_transformers", "num_experts": 4, "num_sparse_encoder_layers": 1,
        "num_sparse_decoder_layers": 2, **_ENCODER_DECODER,
    },
    "switch-tight": {
        "model_type": "switch_transformers", "num_experts": 4, "num_sparse_encoder_layers": 2,
        "num_sparse_decoder_layers": 0, "expert_capacity": 2, "router_bias": True,
        "router_dtype": "bfloat16", "tie_word_embeddings": False, "dense_act_fn": "gelu_new",
        **_ENCODER_DECODER,
    },
    "t5": {"model_type": "t5", **_ENCODER_DECODER},
    "t5-gated": {
        # Heads that no fused half-precision kernel takes with a mask.
        "model_type": "t5", "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
        **_ENCODER_DECODER, "num_decoder_layers": 1, "d_kv": 12,
    },
}  # fmt: skip


def layers_of(config: dict[str, Any], layers: int) -> dict[str, Any]:
    """A config with another number of layers (of encoder and decoder each)."""
    counts = ("n_layer", "num_layers", "num_decoder_layers", "num_hidden_layers",
              "num_sparse_encoder_layers", "num_sparse_decoder_layers")  # fmt: skip
    return {**config, **{name: layers for name in counts if name in config}}


def op_flops(graph: Graph, op: Op) -> int:
    """2 M N K of a product; 4 B H Q K D (forward) or 10 (backward) of fused attention."""
    shapes = [graph.tensors[i].shape for i in op.inputs]
    name = op.name.removeprefix("aten.")
    if name in ("mm", "addmm", "bmm"):
        left, right = shapes[-2:]
        batch = left[0] if name == "bmm" else 1
        return 2 * batch * left[-2] * left[-1] * right[-1]
    if name == "_grouped_mm":
        left, right = shapes[:2]
        return 2 * left[0] * left[1] * right[-1]  # every row is in one group
    if name.startswith("_scaled_dot_product"):
        factor, (q, k) = (10, shapes[1:3]) if name.endswith("_backward") else (4, shapes[:2])
        return factor * q[0] * q[1] * q[2] * k[2] * q[3]
    return 0


def gemm_flops(graph: Graph) -> int:
    """FLOPs of all matrix products outside fused attention."""
    products = ("aten.mm", "aten.addmm", "aten.bmm", "aten._grouped_mm")
    return sum(op_flops(graph, op) for op in graph.ops if op.name in products)


def total_flops(graph: Graph) -> int:
    """FLOPs of all matrix products and of fused attention (causality not counted)."""
    return sum(op_flops(graph, op) for op in graph.ops)
