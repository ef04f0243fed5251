"""Switch Transformers as Transformers' `SwitchTransformersForConditionalGeneration`.

T5 whose feed-forward layer is, in every few blocks, a choice among experts: each token goes to
one. Which one depends on data; a graph has an even split, of which an expert takes no more than
its capacity in each sequence. The experts run one after another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilecast.workload.blueprint.builder import Builder
from tilecast.workload.blueprint.encdec import ACTIVATIONS, Feed, Stack, translate
from tilecast.workload.blueprint.experts import MOST_EXPERTS, add_rows, pick, unbind, zeros_for
from tilecast.workload.blueprint.fields import Fields
from tilecast.workload.blueprint.strides import contiguous
from tilecast.workload.blueprint.t5 import read_stacks
from tilecast.workload.blueprint.tape import Attrs

ROUTER_DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class Routing:
    """A feed-forward layer.

    Attributes:
        width, inner: of the residual stream, and between the two projections.
        activation: name of the activation function.
        drop: dropout probability between the projections.
        experts: experts in a sparse layer.
        capacity: most tokens of one sequence that an expert takes.
        dtype: storage dtype that the router runs in.
        biased: the router has a bias.
        jitter: the router multiplies its input by noise in training.
    """

    width: int
    inner: int
    activation: str
    drop: float
    experts: int
    capacity: int
    dtype: str
    biased: bool
    jitter: bool

    def loads(self, batch: int, seq: int) -> list[int]:
        """Tokens of each expert that gets any; the first ones take what an even split leaves."""
        share, more = divmod(batch * seq, self.experts)
        most = batch * self.capacity
        counts = (min(share + (expert < more), most) for expert in range(self.experts))
        return [count for count in counts if count]


def build(b: Builder, config: Fields) -> int:
    """Emit the forward pass; source and target have the run's length.

    Returns:
        (batch, seq, vocabulary) logits; (batch, seq, width) for head `base`.
    """
    config.refuse("output_router_logits")
    tied = config.flag("tie_word_embeddings", True)
    route = _routing(config)
    stacks = []
    for stack in read_stacks(config, _feed(route, 0)):
        step = _sparse_step(config, stack.name, stack.layers)
        stacks.append(replace(stack, feed=_feed(route, step), tied=tied))
    base = b.run.head == "base"
    if b.run.head == "auto":
        for name in config.items("architectures"):
            if name == "SwitchTransformersEncoderModel":
                raise config.fail("architectures", "SwitchTransformersForConditionalGeneration")
            base = base or name == "SwitchTransformersModel"
    # The decoder appends to a cache whether or not anybody reads it.
    b.run = replace(b.run, fills_cache=True)
    return translate(b, (stacks[0], stacks[1]), scaled=tied, head=not base, masks=_masks)


def _routing(config: Fields) -> Routing:
    return Routing(
        width=config.size("d_model", "hidden_size"),
        inner=config.size("d_ff"),
        activation=config.choice("dense_act_fn", default="relu", allowed=ACTIVATIONS),
        drop=config.probability("dropout_rate", default=0.1),
        experts=config.size("num_experts", default=8, most=MOST_EXPERTS),
        capacity=config.size("expert_capacity", default=64),
        dtype=config.choice("router_dtype", default="float32", allowed=ROUTER_DTYPES),
        biased=config.flag("router_bias", False),
        jitter=config.number("router_jitter_noise", default=0.01, high=1.0) > 0,
    )


def _sparse_step(config: Fields, stack: str, layers: int) -> int:
    """Every how many blocks one is sparse; 0 where none is."""
    sparse = config.size(f"num_sparse_{stack}_layers", default=3, least=0)
    usual = layers // sparse if sparse else layers
    return config.size(f"{stack}_sparse_step", default=usual, least=0)


def _masks(b: Builder, stack: Stack) -> tuple[int, bool]:
    """Additive mask of a stack, made of ones: of padding, and causal in the decoder."""
    if stack.decoder:
        return b.padded_mask(), False
    ones = b.new((b.run.batch, b.run.seq), "float32")
    b.emit("aten.ones", (), (ones,))
    kept = b.cast(b.unsqueeze(b.unsqueeze(ones, 1), 2), b.dtype)
    return b.map("aten.mul", b.map("aten.rsub", kept)), False


def _feed(route: Routing, step: int) -> Feed:
    """The feed-forward layer of a stack that is sparse every `step` blocks."""

    def feed(b: Builder, x: int, name: str, layer: int) -> int:
        if step == 1 or (step and layer % step == 1):
            return _sparse(b, x, f"{name}.mlp", route)
        return _dense(b, x, f"{name}.mlp", route)

    return feed


def _dense(b: Builder, x: int, name: str, route: Routing) -> int:
    h = b.linear(x, f"{name}.wi", route.inner, bias=False)
    b.module = f"{name}.act"
    h = b.activation(h, route.activation)
    b.module = f"{name}.dropout"
    h = b.dropout(h, route.drop)
    return b.linear(h, f"{name}.wo", route.width, bias=False)


# ---- experts -----------------------------------------------------------------------------------


def _sparse(b: Builder, x: int, name: str, route: Routing) -> int:
    shape = b.shapes[x]
    x, choice, odds = _router(b, x, f"{name}.router", route)
    b.module = name
    rows = b.view(x, -1, route.width)
    choice = b.view(choice, -1, 1, route.experts)
    odds = b.view(odds, -1, 1)
    out = _one_by_one(b, rows, choice, odds, f"{name}.experts", route, route.loads(*shape[:2]))
    b.module = name
    return b.view(out, *shape)


def _router(b: Builder, x: int, name: str, route: Routing) -> tuple[int, int, int]:
    """Choose an expert for each token.

    Returns:
        x as the experts read it (noisy where the router needed no copy), (batch, seq, experts)
        int64 one-hot choices within capacity, (batch, seq, 1) odds of the chosen expert.
    """
    b.module = name
    shape = b.shapes[x]
    h = b.cast(x, route.dtype)
    if b.training and route.jitter:
        noisy = _noisy(b, h)
        x = noisy if h == x else x
        h = noisy
    _to_dtype(b, f"{name}.classifier", route)
    logits = b.linear(h, f"{name}.classifier", route.experts, bias=route.biased)
    odds = b.cast(b.softmax(logits), b.dtype)
    grid = (*shape[:2], route.experts)
    last: Attrs = (("dim", 2),)
    best = b.index("aten.argmax", odds, shape=shape[:2], attrs=(*last, ("keepdim", False)))
    zeros = b.index("aten.zeros", shape=grid)
    hot = b.view_of(zeros, grid, contiguous(grid))
    b.emit("aten.scatter_", (zeros, b.unsqueeze(best, 2)), (hot,), last)
    rank = b.index("aten.cumsum", hot, shape=grid, attrs=(("dim", 1),))
    within = b.index("aten.le", rank, shape=grid, dtype="bool")
    choice = b.index("aten.mul", hot, within, shape=grid)
    return x, choice, b.unsqueeze(_largest(b, odds), 2)


def _to_dtype(b: Builder, name: str, route: Routing) -> None:
    """The router's weights move to its precision the first time it runs."""
    b.parameter(f"{name}.weight", route.experts, route.width)
    if route.biased:
        b.parameter(f"{name}.bias", route.experts)
    for part in ("weight", "bias")[: 1 + route.biased]:
        b.converted(f"{name}.{part}", route.dtype)


def _noisy(b: Builder, x: int) -> int:
    """`x *= noise`, in place."""
    empty = b.map("aten.empty_like", x)
    noise = b.view_of(empty, b.shapes[empty], b.strides[empty])
    b.emit("aten.uniform_", (empty,), (noise,))
    out = b.view_of(x, b.shapes[x], b.strides[x])
    b.emit("aten.mul_", (x, noise), (out,))
    b.record(lambda g: (b.map("aten.mul", g, noise),), (x,), (out,), (noise,))
    return out


def _largest(b: Builder, x: int) -> int:
    """`x.max(-1)` of (batch, seq, classes)."""
    shape = b.shapes[x]
    values = b.new(shape[:2], b.dtypes[x])
    places = b.new(shape[:2], "int64")
    b.emit("aten.max", (x,), (values, places), (("dim", 2), ("keepdim", False)))

    def backward(g: int) -> tuple[int, ...]:
        column = b.unsqueeze(g, 2)
        places_column = b.unsqueeze(places, 2)
        out = b.new(shape, b.dtypes[g])
        zeros = zeros_for(b, column, shape)
        b.emit("aten.scatter", (zeros, places_column, column), (out,), (("dim", 2),))
        return (out,)

    b.record(backward, (x,), (values,), (places,))
    return values


def _one_by_one(
    b: Builder, x: int, choice: int, odds: int, name: str, route: Routing, loads: list[int]
) -> int:
    """A loop over the experts that got a token; each adds its rows to the result in place.

    Args:
        b: the builder.
        x: (tokens, width).
        choice: (tokens, 1, experts) one-hot.
        odds: (tokens, 1).
        name: module path.
        route: sizes.
        loads: tokens of each expert that runs.

    Returns:
        (tokens, width).
    """
    b.module = name
    tokens = b.shapes[x][0]
    result = b.new(b.shapes[x])
    b.emit("aten.zeros_like", (x,), (result,))
    masks = b.permute(choice, 2, 1, 0)
    both: Attrs = (("dim", (2, 1)), ("keepdim", False))
    counts = b.index("aten.sum", masks, shape=(route.experts,), attrs=both)
    hit = b.index("aten.gt", counts, shape=(route.experts,), dtype="bool")
    found = b.index("aten.nonzero", hit, shape=(len(loads), 1))
    numbers = unbind(b, found, 0)
    for expert in range(len(loads), route.experts):  # these have nothing to do
        b.parameter(f"{name}.expert_{expert}.wi.weight", route.inner, route.width)
        b.parameter(f"{name}.expert_{expert}.wo.weight", route.width, route.inner)
    for expert, (number, load) in enumerate(zip(numbers, loads, strict=True)):
        b.module = name
        mask = b.index("aten.index", masks, number, shape=(1, 1, tokens))
        mask = b.squeeze(mask, 0)
        slot, token = unbind(b, b.index("aten.nonzero", mask, shape=(load, 2)), 1)
        h = b.view(pick(b, b.unsqueeze(x, 0), token, dim=1), -1, route.width)
        b.select(number, 0, 0)
        h = _dense(b, h, f"{name}.expert_{expert}", route)
        b.module = name
        h = b.mul(h, pick(b, b.unsqueeze(odds, 2), token, slot))
        result = add_rows(b, result, token, h)
    return result
