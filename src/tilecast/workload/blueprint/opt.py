"""OPT as Transformers' `OPTForCausalLM`."""

from __future__ import annotations

from tilecast.workload.blueprint.builder import Builder
from tilecast.workload.blueprint.fields import Fields
from tilecast.workload.blueprint.tape import NONE

#: The position table starts with two rows that are never looked up.
OFFSET = 2
ACTIVATIONS = ("relu", "gelu", "gelu_new", "silu", "tanh")


def build(b: Builder, config: Fields) -> int:
    """Emit the forward pass.

    Returns:
        (batch, seq, vocabulary) logits; (batch, seq, width) for head `base`.
    """
    run = b.run
    width = config.size("hidden_size")
    layers = config.layers("num_hidden_layers")
    heads, head_dim = config.heads(width, "num_attention_heads")
    inner = config.size("ffn_dim")
    vocabulary = config.size("vocab_size")
    limit = config.size("max_position_embeddings", default=2048)
    embedded = config.size("word_embed_proj_dim", default=width)
    first = config.flag("do_layer_norm_before", True)
    drop = config.probability("dropout", default=0.1)
    attention_drop = config.probability("attention_dropout", default=0.0)
    activation = config.choice("activation_function", default="relu", allowed=ACTIVATIONS)
    biased = config.flag("enable_bias", True)
    last_norm = first and not config.flag("_remove_final_layer_norm", False)
    tied = config.flag("tie_word_embeddings", True)
    if not config.flag("layer_norm_elementwise_affine", True):
        raise config.fail("layer_norm_elementwise_affine", "true")
    run.check_positions(limit, "max_position_embeddings")
    root = "decoder" if run.head == "base" else "model.decoder"

    b.module = root
    ids = b.view(b.input("input_ids", (run.batch, run.seq)), run.batch, run.seq)
    x = b.embedding(ids, f"{root}.embed_tokens", vocabulary, embedded,
                    config.size("pad_token_id", default=1, least=0))  # fmt: skip
    b.module = root
    places = _positions(b)
    mask, causal = b.causal_mask(NONE)
    b.module = f"{root}.embed_positions"
    places = b.index("aten.add", places, shape=b.shapes[places])
    places = b.embedding(places, f"{root}.embed_positions", limit + OFFSET, width)
    if embedded != width:
        x = b.linear(x, f"{root}.project_in", width, bias=False)
    b.module = root
    x = b.add(x, places)

    split = (run.batch, run.seq, heads, head_dim)
    for layer in range(layers):
        name = f"{root}.layers.{layer}"
        h = b.layer_norm(x, f"{name}.self_attn_layer_norm") if first else x
        attention = f"{name}.self_attn"
        q = b.linear(h, f"{attention}.q_proj", width, bias=biased)
        b.module = attention
        q = b.transpose(b.view(b.mul_scalar(q, head_dim**-0.5), *split), 1, 2)
        k = b.linear(h, f"{attention}.k_proj", width, bias=biased)
        v = b.linear(h, f"{attention}.v_proj", width, bias=biased)
        b.module = attention
        k = b.transpose(b.view(k, *split), 1, 2)
        v = b.transpose(b.view(v, *split), 1, 2)
        k, v = b.cache(attention, k, v)
        # Queries are scaled before; the attention itself scales by one.
        h = b.attend(q, k, v, mask, 1.0, attention_drop, causal=causal, upcast=True)
        h = b.reshape(h, run.batch, run.seq, width)
        h = b.linear(h, f"{attention}.out_proj", width, bias=biased)
        b.module = name
        x = b.add(x, b.dropout(h, drop))
        if not first:
            x = b.layer_norm(x, f"{name}.self_attn_layer_norm")
        b.module = name
        rows = b.reshape(x, -1, width)
        h = b.layer_norm(rows, f"{name}.final_layer_norm") if first else rows
        h = b.linear(h, f"{name}.fc1", inner, bias=biased)
        b.module = f"{name}.activation_fn"
        h = b.activation(h, activation)
        h = b.linear(h, f"{name}.fc2", width, bias=biased)
        b.module = name
        x = b.view(b.add(rows, b.dropout(h, drop)), run.batch, run.seq, width)
        if not first:
            x = b.layer_norm(x, f"{name}.final_layer_norm")

    if last_norm:
        x = b.layer_norm(x, f"{root}.final_layer_norm")
    if embedded != width:
        x = b.linear(x, f"{root}.project_out", embedded, bias=False)
    if run.head == "base":
        return x
    b.module = ""
    x = b.kept_positions(x)
    weight = f"{root}.embed_tokens.weight" if tied else ""
    return b.linear(x, "lm_head", vocabulary, bias=False, tied=weight)


def _positions(b: Builder) -> int:
    """(batch, seq) positions, counted from a mask of ones over all tokens so far."""
    run = b.run
    shape = (run.batch, run.length)
    ones = b.new(shape, "float32")
    b.emit("aten.ones", (), (ones,))
    counted = b.new(shape, "float32")
    b.emit("aten.cumsum", (ones,), (counted,), (("dim", 1),))
    masked = b.map("aten.mul", counted, ones)
    places = b.cast(b.map("aten.sub", masked), "int64")
    return b.slice(places, 1, run.context, run.length) if run.context else b.alias(places)
