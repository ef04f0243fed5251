"""What T5 and Switch Transformers share: blocks of an encoder and of a decoder that reads it.

Attention does not scale its scores; a learned bias for the distance between two tokens is added
to them. The first layer of a stack makes that bias, the others read it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilecast.workload.blueprint.builder import Builder
from tilecast.workload.blueprint.strides import contiguous
from tilecast.workload.blueprint.tape import NONE
from tilecast.workload.graph import Kind

ACTIVATIONS = ("relu", "gelu", "gelu_new", "silu", "swish", "tanh", "gelu_pytorch_tanh")
#: Emits a feed-forward layer: (builder, its input, name of the layer, number of the block).
Feed = Callable[[Builder, int, str, int], int]


@dataclass(frozen=True, slots=True)
class Stack:
    """Sizes of an encoder or a decoder.

    Attributes:
        name: module path.
        layers: number of blocks.
        width: of the residual stream.
        heads, head_dim: of attention; their product need not be the width.
        vocabulary: rows of the embedding that both stacks share.
        buckets: rows of the table of position biases.
        drop: dropout probability, of attention weights too.
        decoder: attends causally and reads the encoder.
        tied: its embedding is the one of both stacks.
        feed: emits the feed-forward layer of a block.
    """

    name: str
    layers: int
    width: int
    heads: int
    head_dim: int
    vocabulary: int
    buckets: int
    drop: float
    decoder: bool
    feed: Feed
    tied: bool = True


#: Makes the mask of self-attention: (additive or bool mask, or NONE; whether to mask causally).
Masks = Callable[[Builder, Stack], tuple[int, bool]]


@dataclass(slots=True)
class _Reading:
    """What the layers of a stack hand on to each other.

    Attributes:
        mask: additive or bool mask of self-attention, or NONE.
        causal: self-attention is causal although there is no mask.
        bias: (1, heads, seq, length) position bias, once the first layer made it.
        cross_bias: the one of cross-attention (zeros).
    """

    mask: int = NONE
    causal: bool = False
    bias: int = NONE
    cross_bias: int = NONE


def translate(
    b: Builder,
    stacks: tuple[Stack, Stack],
    *,
    scaled: bool,
    head: bool,
    masks: Masks | None = None,
) -> int:
    """Emit encoder, decoder and head.

    With tokens in the cache, the encoder has run before: its output and the keys and values that
    cross-attention makes of it are inputs of that length.

    Args:
        b: the builder.
        stacks: (encoder, decoder).
        scaled: the decoder's output is scaled before the head.
        head: there is one, over the vocabulary; tied stacks share their embedding with it.
        masks: makes the mask of a stack where the model does not use the usual one.

    Returns:
        (batch, seq, vocabulary) logits; (batch, seq, width) without a head.
    """
    encoder, decoder = stacks
    run = b.run
    b.shifts_labels = False
    b.parameter("shared.weight", decoder.vocabulary, decoder.width)
    ids = b.input("input_ids", (run.batch, run.seq))
    if run.context:
        encoded = b.new((run.batch, run.context, encoder.width), kind=Kind.INPUT, name="encoded")
        unused = Builder("", b.dtype)
        run_stack(unused, encoder, unused.input("input_ids", (1, 1)))
        for name, index in unused.parameters.items():
            b.parameter(name, *unused.shapes[index])
    else:
        encoded = run_stack(b, encoder, ids, masks=masks)
    ids = b.input("decoder_input_ids", (run.batch, run.seq))
    x = run_stack(b, decoder, ids, encoded, masks)
    if not head:
        return x
    if scaled:
        b.module = ""
        x = b.mul_scalar(x, decoder.width**-0.5)
    weight = "shared.weight" if decoder.tied else ""
    return b.linear(x, "lm_head", decoder.vocabulary, bias=False, tied=weight)


def run_stack(
    b: Builder, stack: Stack, ids: int, encoded: int = NONE, masks: Masks | None = None
) -> int:
    """Emit an encoder or a decoder.

    Args:
        b: the builder.
        stack: its sizes.
        ids: (batch, seq) token ids.
        encoded: (batch, length, width) output of the encoder, for a decoder.
        masks: makes the mask of self-attention where the model does not use the usual one.

    Returns:
        (batch, seq, width).
    """
    x = b.embedding(ids, f"{stack.name}.embed_tokens", stack.vocabulary, stack.width,
                    tied="shared.weight" if stack.tied else "")  # fmt: skip
    b.module = stack.name
    reading = _Reading()
    if masks is not None:
        reading.mask, reading.causal = masks(b, stack)
    elif stack.decoder:
        reading.mask, reading.causal = b.causal_mask(NONE)
    x = _drop(b, x, stack, f"{stack.name}.dropout")
    for layer in range(stack.layers):
        x = _block(b, x, stack, layer, reading, encoded)
    x = rms_norm(b, x, f"{stack.name}.final_layer_norm")
    return _drop(b, x, stack, f"{stack.name}.dropout")


def _block(
    b: Builder, x: int, stack: Stack, layer: int, reading: _Reading, encoded: int
) -> int:  # fmt: skip
    block = f"{stack.name}.block.{layer}"
    name = f"{block}.layer.0"
    h = rms_norm(b, x, f"{name}.layer_norm")
    h = _self_attention(b, h, stack, f"{name}.SelfAttention", reading)
    x = _clamped(b, _residual(b, x, h, stack, name), block)
    last = 1
    if encoded >= 0:
        name = f"{block}.layer.1"
        h = rms_norm(b, x, f"{name}.layer_norm")
        h = _cross_attention(b, h, encoded, stack, f"{name}.EncDecAttention", reading)
        x = _clamped(b, _residual(b, x, h, stack, name), block)
        last = 2
    name = f"{block}.layer.{last}"
    h = rms_norm(b, x, f"{name}.layer_norm")
    h = stack.feed(b, h, name, layer)
    return _clamped(b, _residual(b, x, h, stack, name), block)


def _drop(b: Builder, x: int, stack: Stack, name: str) -> int:
    b.module = name
    return b.dropout(x, stack.drop)


def _residual(b: Builder, x: int, h: int, stack: Stack, name: str) -> int:
    h = _drop(b, h, stack, f"{name}.dropout")
    b.module = name
    return b.add(x, h)


def _clamped(b: Builder, x: int, name: str) -> int:
    """In fp16 a block keeps its output below the largest number; other precisions do nothing."""
    if b.dtype != "float16":
        return x
    b.module = name
    infinite = b.index("aten.any", b.map("aten.isinf", x, dtype="bool"), shape=(), dtype="bool")
    usual, lower = (b.index("aten.scalar_tensor", shape=(), dtype="float32") for _ in range(2))
    high = b.index("aten.where", infinite, lower, usual, shape=(), dtype="float32")
    low = b.index("aten.neg", high, shape=(), dtype="float32")
    out = b.map("aten.clamp", x, low, high)

    def backward(g: int) -> tuple[int, ...]:
        zero = b.index("aten.scalar_tensor", shape=(), dtype=b.dtypes[g])
        above = b.map("aten.ge", x, low, dtype="bool")
        below = b.map("aten.le", x, high, dtype="bool")
        inside = b.map("aten.logical_and", above, below)
        return (b.map("aten.where", inside, g, zero, dtype=b.dtypes[g]),)

    b.record(backward, (x,), (out,), (x, low, high))
    return out


def rms_norm(b: Builder, x: int, name: str) -> int:
    """T5's RMSNorm: statistics in fp32, the weights' precision out."""
    b.module = name
    weight = b.parameter(f"{name}.weight", b.shapes[x][-1])
    variance = b.mean_last(b.pow(b.cast(x, "float32"), 2))
    h = b.mul(x, b.rsqrt(b.add_scalar(variance, 1e-6)))
    return b.mul(weight, b.cast(h, b.dtype))


# ---- attention ---------------------------------------------------------------------------------


def _projected(b: Builder, x: int, stack: Stack, name: str, part: str) -> int:
    """(batch, heads, length, head_dim) of one of q, k, v."""
    h = b.linear(x, f"{name}.{part}", stack.heads * stack.head_dim, bias=False)
    b.module = name
    batch, length, _ = b.shapes[x]
    return b.transpose(b.view(h, batch, length, stack.heads, stack.head_dim), 1, 2)


def _self_attention(b: Builder, x: int, stack: Stack, name: str, reading: _Reading) -> int:
    q, k, v = (_projected(b, x, stack, name, part) for part in "qkv")
    if stack.decoder:
        k, v = b.cache(name, k, v)
    if reading.bias < 0:
        reading.bias = _position_bias(b, stack, name, b.shapes[q][2], b.shapes[k][2])
    return _attended(b, q, k, v, stack, name, reading.bias, reading.mask, causal=reading.causal)


def _cross_attention(
    b: Builder, x: int, encoded: int, stack: Stack, name: str, reading: _Reading
) -> int:
    q = _projected(b, x, stack, name, "q")
    if b.run.context:
        shape = (b.run.batch, stack.heads, b.run.context, stack.head_dim)
        k, v = (
            b.new(shape, kind=Kind.INPUT, name=f"{name}.cache.{part}")
            for part in ("keys", "values")
        )
        for part in "kv":
            b.parameter(f"{name}.{part}.weight", stack.heads * stack.head_dim, stack.width)
    else:
        k, v = (_projected(b, encoded, stack, name, part) for part in "kv")
        k, v = b.cache(name, k, v)
    if reading.cross_bias < 0:
        shape = (1, stack.heads, b.shapes[q][2], b.shapes[k][2])
        reading.cross_bias = b.new(shape)
        b.emit("aten.zeros", (), (reading.cross_bias,))
    return _attended(b, q, k, v, stack, name, reading.cross_bias, NONE, causal=False)


def _attended(
    b: Builder, q: int, k: int, v: int, stack: Stack, name: str, bias: int, mask: int, *,
    causal: bool,
) -> int:  # fmt: skip
    """Attention with a position bias, and the output projection."""
    if b.run.attention == "eager":
        h = b.attend(q, k, v, mask, 1.0, stack.drop, causal=False, bias=bias)
    else:
        h = b.attend(q, k, v, _fused_mask(b, bias, mask, causal), 1.0, stack.drop, causal=False)
    batch, length = b.shapes[h][:2]
    h = b.reshape(h, batch, length, stack.heads * stack.head_dim)
    return b.linear(h, f"{name}.o", stack.width, bias=False)


def _fused_mask(b: Builder, bias: int, mask: int, causal: bool) -> int:
    """Position bias and mask in the one additive mask that a fused kernel takes."""
    if mask < 0 and causal:
        length, keys = b.shapes[bias][2:]
        places = b.unsqueeze(b.arange(length), 1)
        allowed = b.index("aten.ge", places, b.unsqueeze(b.arange(keys), 0),
                          shape=(length, keys), dtype="bool")  # fmt: skip
        mask = b.view(allowed, 1, 1, length, keys)
    if mask >= 0:
        bias = b.chosen(mask, bias) if b.dtypes[mask] == "bool" else b.add(bias, mask)
    return b.contiguous(bias)


def _position_bias(b: Builder, stack: Stack, name: str, length: int, keys: int) -> int:
    """(1, heads, length, keys) bias by the bucket that a distance falls in."""
    table = f"{name}.relative_attention_bias"
    ids = _buckets(b, length, keys, both_ways=not stack.decoder)
    values = b.embedding(ids, table, stack.buckets, stack.heads)
    return b.unsqueeze(b.permute(values, 2, 0, 1), 0)


def _buckets(b: Builder, length: int, keys: int, *, both_ways: bool) -> int:
    """(length, keys) number of the bucket of each distance, logarithmic for the far ones."""
    places = b.unsqueeze(b.arange(length), 1)
    places = b.index("aten.add", places, shape=(length, 1))
    others = b.unsqueeze(b.arange(keys), 0)
    grid = (length, keys)

    def each(name: str, *inputs: int, dtype: str = "int64") -> int:
        return b.index(name, *inputs, shape=grid, dtype=dtype)

    distance = each("aten.sub", others, places)
    side = NONE
    if both_ways:
        later = each("aten._to_copy", each("aten.gt", distance, dtype="bool"))
        side = each("aten.add", each("aten.mul", later))
        distance = each("aten.abs", distance)
    else:
        distance = each(
            "aten.neg", each("aten.minimum", distance, each("aten.zeros_like", distance))
        )
    near = each("aten.lt", distance, dtype="bool")
    far = each("aten._to_copy", distance, dtype="float32")
    for step in ("div", "log", "div", "mul"):
        far = each(f"aten.{step}", far, dtype="float32")
    far = each("aten.add", each("aten._to_copy", far))
    far = each("aten.minimum", far, each("aten.full_like", far))
    bucket = each("aten.where", near, distance, far)
    if not both_ways:
        return each("aten.add", bucket)
    out = b.view_of(side, grid, contiguous(grid))
    b.emit("aten.add_", (side, bucket), (out,))
    return out
