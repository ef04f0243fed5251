"""GPT-2 and GPT-3 (dense) as Transformers' `GPT2LMHeadModel`."""

from __future__ import annotations

from tilecast.workload.blueprint.builder import Builder
from tilecast.workload.blueprint.fields import Fields

ACTIVATIONS = ("gelu_new", "gelu", "relu", "silu", "tanh", "gelu_pytorch_tanh")


def build(b: Builder, config: Fields) -> int:
    """Emit the forward pass.

    Returns:
        (batch, seq, vocabulary) logits; (batch, seq, hidden) for head `base`.
    """
    run = b.run
    width = config.size("n_embd", "hidden_size")
    layers = config.layers("n_layer", "num_hidden_layers")
    heads, head_dim = config.heads(width, "n_head", "num_attention_heads")
    vocabulary = config.size("vocab_size")
    limit = config.size("n_positions", "max_position_embeddings", "n_ctx")
    inner = config.size("n_inner", default=4 * width)
    activation = config.choice("activation_function", default="gelu_new", allowed=ACTIVATIONS)
    embedding_p = config.probability("embd_pdrop", default=0.1)
    attention_p = config.probability("attn_pdrop", default=0.1)
    residual_p = config.probability("resid_pdrop", default=0.1)
    tied = config.flag("tie_word_embeddings", True)
    config.refuse(
        "add_cross_attention", "reorder_and_upcast_attn", "scale_attn_by_inverse_layer_idx"
    )
    run.check_positions(limit, "n_positions")

    b.module = "transformer"
    ids = b.view(b.input("input_ids", (run.batch, run.seq)), run.batch, run.seq)
    x = b.embedding(ids, "transformer.wte", vocabulary, width)
    positions = b.positions()
    places = b.embedding(positions, "transformer.wpe", limit, width)
    x = b.add(x, places)
    mask, causal = b.causal_mask(positions)
    b.module = "transformer.drop"
    x = b.dropout(x, embedding_p)

    scale = head_dim**-0.5 if config.flag("scale_attn_weights", True) else 1.0
    split = (run.batch, run.seq, heads, head_dim)
    for layer in range(layers):
        name = f"transformer.h.{layer}"
        h = b.layer_norm(x, f"{name}.ln_1")
        h = b.conv1d(h, f"{name}.attn.c_attn", 3 * width)
        b.module = f"{name}.attn"
        q, k, v = b.split(h, width, 2)
        k = b.transpose(b.view(k, *split), 1, 2)
        v = b.transpose(b.view(v, *split), 1, 2)
        q = b.transpose(b.view(q, *split), 1, 2)
        k, v = b.cache(b.module, k, v)
        h = b.attend(q, k, v, mask, scale, attention_p, causal=causal, copy=False)
        h = b.reshape(h, run.batch, run.seq, width)
        h = b.conv1d(h, f"{name}.attn.c_proj", width)
        b.module = f"{name}.attn.resid_dropout"
        h = b.dropout(h, residual_p)
        b.module = name
        x = b.add(h, x)
        h = b.layer_norm(x, f"{name}.ln_2")
        h = b.conv1d(h, f"{name}.mlp.c_fc", inner)
        b.module = f"{name}.mlp.act"
        h = b.activation(h, activation)
        h = b.conv1d(h, f"{name}.mlp.c_proj", width)
        b.module = f"{name}.mlp.dropout"
        h = b.dropout(h, residual_p)
        b.module = name
        x = b.add(x, h)

    x = b.layer_norm(x, "transformer.ln_f")
    b.module = "transformer"
    x = b.view(x, run.batch, run.seq, width)
    if run.head == "base":
        return x
    b.module = ""
    x = b.kept_positions(x)
    weight = "transformer.wte.weight" if tied else ""
    return b.linear(x, "lm_head", vocabulary, bias=False, tied=weight)
