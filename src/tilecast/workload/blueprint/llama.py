"""Llama, Mistral, Mixtral, Qwen2 and Qwen3 as Transformers' `...ForCausalLM`."""

from __future__ import annotations

from dataclasses import dataclass

from tilecast.workload.blueprint import experts
from tilecast.workload.blueprint.builder import Builder
from tilecast.workload.blueprint.fields import Fields


@dataclass(frozen=True, slots=True)
class Variant:
    """Where the models of this family differ.

    Attributes:
        qkv_bias: query, key and value projections have a bias whatever the config says.
        attention_bias: the config says whether the projections of attention have one.
        head_norm: queries and keys are normalised head by head.
        window: the config's `sliding_window` applies to every layer.
        layered_window: it applies from `max_window_layers` on, if `use_sliding_window`.
        default_head_dim: size of a head where the config does not say (None: hidden / heads).
        experts: each layer has several MLPs, of which a token takes a few.
    """

    qkv_bias: bool = False
    attention_bias: bool = False
    head_norm: bool = False
    window: bool = False
    layered_window: bool = False
    default_head_dim: int | None = None
    experts: bool = False


ACTIVATIONS = ("silu", "swish", "gelu", "gelu_pytorch_tanh", "relu")
VARIANTS = {
    "llama": Variant(attention_bias=True),
    "mistral": Variant(window=True),
    "mixtral": Variant(window=True, experts=True),
    "qwen2": Variant(qkv_bias=True, layered_window=True),
    "qwen3": Variant(
        attention_bias=True, head_norm=True, layered_window=True, default_head_dim=128
    ),
}


def rms_norm(b: Builder, x: int, name: str) -> int:
    """RMSNorm as eager Transformers writes it: in fp32, one kernel an operation."""
    outer = b.module
    b.module = name
    weight = b.parameter(f"{name}.weight", b.shapes[x][-1])
    wide = b.cast(x, "float32")
    variance = b.mean_last(b.pow(wide, 2))
    wide = b.mul(wide, b.rsqrt(b.add_scalar(variance, 1e-6)))
    out = b.mul(weight, b.cast(wide, b.dtype))
    b.module = outer
    return out


def rotary(b: Builder, positions: int, dim: int, name: str) -> tuple[int, int]:
    """Cosines and sines of (1, seq, dim) for the positions."""
    b.module = name
    seq = b.run.seq
    frequencies = b.buffer(f"{name}.inv_freq", (dim // 2,), "float32")
    b.buffer(f"{name}.original_inv_freq", (dim // 2,), "float32")
    places = b.cast(b.unsqueeze(positions, 2), "float32")
    angles = b.map("aten.mul", places, frequencies)
    doubled = b.new((1, seq, dim), "float32")
    b.emit("aten.cat", (angles, angles), (doubled,), (("dim", 2),))
    waves = [b.map("aten.mul", b.map(f"aten.{wave}", doubled)) for wave in ("cos", "sin")]
    cosine, sine = (b.cast(wave, b.dtype) for wave in waves)
    return cosine, sine


def rotate(b: Builder, x: int, cosine: int, sine: int) -> int:
    """x * cos + rotate_half(x) * sin on (batch, heads, seq, dim)."""
    half = b.shapes[x][-1] // 2
    straight = b.mul(x, cosine)
    left = b.slice(x, 3, 0, half)
    right = b.slice(x, 3, half, 2 * half)
    turned = b.cat((b.neg(right), left), 3)
    return b.add(straight, b.mul(turned, sine))


def build(b: Builder, config: Fields) -> int:
    """Emit the forward pass.

    Returns:
        (batch, seq, vocabulary) logits; (batch, seq, hidden) for head `base`.
    """
    run = b.run
    variant = VARIANTS[config.text("model_type")]
    width = config.size("hidden_size")
    layers = config.layers("num_hidden_layers")
    heads, head_dim = config.rotary_heads(width, variant.default_head_dim)
    kv_heads = config.size("num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise config.fail("num_key_value_heads", f"a divisor of the {heads} attention heads")
    inner = config.size("intermediate_size")
    vocabulary = config.size("vocab_size")
    limit = config.size("max_position_embeddings", default=LIMITS[config.text("model_type")])
    attention_drop = config.probability("attention_dropout", default=0.0)
    activation = config.choice("hidden_act", default="silu", allowed=ACTIVATIONS)
    biased = config.flag("attention_bias", False) if variant.attention_bias else False
    mlp_biased = config.flag("mlp_bias", False) if variant is VARIANTS["llama"] else False
    tied = config.flag("tie_word_embeddings", False)
    routing = experts.routing(b, config, width, inner, activation) if variant.experts else None
    windows = _windows(config, variant, layers)
    run.check_positions(limit, "max_position_embeddings")
    root = "" if run.head == "base" else "model."

    b.module = root.rstrip(".")
    ids = b.input("input_ids", (run.batch, run.seq))
    x = b.embedding(ids, f"{root}embed_tokens", vocabulary, width, config.padding())
    b.module = root.rstrip(".")
    positions = b.positions()
    masks = {window: b.causal_mask(positions, window) for window in dict.fromkeys(windows)}
    cosine, sine = rotary(b, positions, head_dim, f"{root}rotary_emb")

    for layer, window in enumerate(windows):
        name = f"{root}layers.{layer}"
        mask, causal = masks[window]
        h = rms_norm(b, x, f"{name}.input_layernorm")
        attention = f"{name}.self_attn"
        parts = []
        for part, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            p = b.linear(h, f"{attention}.{part}_proj", count * head_dim,
                         bias=biased or variant.qkv_bias)  # fmt: skip
            b.module = attention
            p = b.view(p, run.batch, run.seq, count, head_dim)
            if variant.head_norm and part != "v":
                p = rms_norm(b, p, f"{attention}.{part}_norm")
            parts.append(b.transpose(p, 1, 2))
        q, k, v = parts
        cos, sin = b.unsqueeze(cosine, 1), b.unsqueeze(sine, 1)
        q, k = rotate(b, q, cos, sin), rotate(b, k, cos, sin)
        k, v = b.cache(attention, k, v, window)
        h = b.attend(q, k, v, mask, head_dim**-0.5, attention_drop, causal=causal, upcast=True)
        h = b.reshape(h, run.batch, run.seq, heads * head_dim)
        h = b.linear(h, f"{attention}.o_proj", width, bias=biased)
        b.module = name
        x = b.add(x, h)
        h = rms_norm(b, x, f"{name}.post_attention_layernorm")
        if routing:
            h = experts.block(b, h, f"{name}.mlp", routing)
        else:
            h = _mlp(b, h, f"{name}.mlp", inner, activation, mlp_biased)
        b.module = name
        x = b.add(x, h)

    x = rms_norm(b, x, f"{root}norm")
    if run.head == "base":
        return x
    b.module = ""
    x = b.kept_positions(x)
    weight = "model.embed_tokens.weight" if tied else ""
    return b.linear(x, "lm_head", vocabulary, bias=False, tied=weight)


#: Longest sequence where the config does not say (the defaults of Transformers' configs).
LIMITS = {"llama": 2048, "mistral": 131072, "mixtral": 131072, "qwen2": 32768, "qwen3": 32768}


def _mlp(b: Builder, x: int, name: str, inner: int, activation: str, biased: bool) -> int:
    """down(activation(gate(x)) * up(x)) on (batch, seq, width)."""
    gate = b.linear(x, f"{name}.gate_proj", inner, bias=biased)
    b.module = f"{name}.act_fn"
    gate = b.activation(gate, activation)
    up = b.linear(x, f"{name}.up_proj", inner, bias=biased)
    b.module = name
    return b.linear(b.mul(gate, up), f"{name}.down_proj", b.shapes[x][-1], bias=biased)


def _windows(config: Fields, variant: Variant, layers: int) -> list[int | None]:
    """Sliding window of each layer, None where it sees everything."""
    if variant.window:
        return [config.optional_size("sliding_window")] * layers
    if variant.layered_window and config.flag("use_sliding_window", False):
        window = config.optional_size("sliding_window")
        full = config.size("max_window_layers", default=28, least=0)
        return [window if layer >= full else None for layer in range(layers)]
    return [None] * layers
