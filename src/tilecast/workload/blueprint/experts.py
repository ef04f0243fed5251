"""The mixture-of-experts layer of Mixtral, as Transformers runs it.

bf16 sorts the tokens by expert and runs one grouped product for each projection (`grouped_mm`,
Transformers' default). Other precisions have no such kernel in capture's PyTorch, so the experts
run one after another (`eager`). Which expert a token goes to depends on data; a graph has an even
split, the sum of whose parts is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilecast.workload.blueprint.builder import Builder
from tilecast.workload.blueprint.fields import Fields
from tilecast.workload.blueprint.strides import Sizes, contiguous
from tilecast.workload.blueprint.tape import NONE, Attrs

#: No published model has more experts in a layer (Switch-C has 2048).
MOST_EXPERTS = 4096
#: Grouped products take rows that are multiples of 16 bytes.
GROUPED_MULTIPLE = 8


@dataclass(frozen=True, slots=True)
class Routing:
    """Sizes of one layer of experts.

    Attributes:
        experts: experts in a layer.
        chosen: experts that each token goes to.
        inner: width between the two projections of an expert.
        activation: name of its activation function.
    """

    experts: int
    chosen: int
    inner: int
    activation: str


def routing(b: Builder, config: Fields, width: int, inner: int, activation: str) -> Routing:
    """Read the routing of a config.

    Args:
        b: the builder (precision and mode).
        config: of a Mixtral model.
        width: hidden size.
        inner: width inside an expert.
        activation: checked name of the activation.

    Raises:
        InputError: sizes that do not fit, or options that add operators.
    """
    experts = config.size("num_local_experts", "num_experts", default=8, most=MOST_EXPERTS)
    chosen = config.size("num_experts_per_tok", default=2)
    if chosen > experts:
        raise config.fail("num_experts_per_tok", f"at most the {experts} experts")
    config.refuse("output_router_logits")
    if b.training and config.number("router_jitter_noise", default=0.0):
        raise config.fail("router_jitter_noise", "0: blueprints do not have it, capture does")
    if b.dtype == "bfloat16":
        for field, size in (("hidden_size", width), ("intermediate_size", inner)):
            if size % GROUPED_MULTIPLE:
                raise config.fail(field, f"a multiple of {GROUPED_MULTIPLE} in bf16")
    return Routing(experts, chosen, inner, activation)


def block(b: Builder, x: int, name: str, route: Routing) -> int:
    """The layer that stands where a dense model has its MLP.

    Args:
        x: (batch, seq, width).
        name: module path.

    Returns:
        (batch, seq, width).
    """
    b.module = name
    shape = b.shapes[x]
    rows = b.view(x, -1, shape[-1])
    weights, choice = _router(b, rows, f"{name}.gate", route)
    run = _grouped if b.dtype == "bfloat16" else _one_by_one
    b.module = f"{name}.experts"
    out = run(b, rows, weights, choice, f"{name}.experts", route)
    b.module = name
    return b.view(out, *shape)


def _router(b: Builder, x: int, name: str, route: Routing) -> tuple[int, int]:
    """Choose experts for (tokens, width) rows.

    Returns:
        (tokens, chosen) weights in fp32 that sum to one, and int64 expert numbers.
    """
    b.module = name
    x = b.view(x, -1, b.shapes[x][-1])
    logits = b.linear(x, name, route.experts, bias=False)
    odds = b.softmax(b.cast(logits, "float32"))
    best, choice = _top(b, odds, route.chosen)
    return _divided(b, best, _sum(b, best, 1, keep=True)), choice


# ---- the two ways to run experts ---------------------------------------------------------------


def _grouped(b: Builder, x: int, weights: int, choice: int, name: str, route: Routing) -> int:
    """Tokens sorted by expert, two grouped products, tokens put back."""
    tokens, width = b.shapes[x]
    pairs = tokens * route.chosen
    flat = b.view(weights, pairs)
    numbers = b.view(choice, pairs)
    by_expert = b.new((pairs,), "int64")
    order = b.new((pairs,), "int64")
    b.emit("aten.sort", (numbers,), (by_expert, order), (("descending", False), ("dim", 0)))
    source = b.index("aten.floor_divide", order, shape=(pairs,))
    rows = pick(b, x, source)
    shares = pick(b, flat, order)
    narrow = b.index("aten._to_copy", by_expert, shape=(pairs,), dtype="int32")
    counts = b.index("aten.histc", narrow, shape=(route.experts,), dtype="int32")
    ends = b.index(
        "aten.cumsum", counts, shape=(route.experts,), dtype="int32", attrs=(("dim", 0),)
    )
    weight = b.parameter(f"{name}.gate_up_proj", route.experts, 2 * route.inner, width)
    h = _grouped_product(b, rows, b.transpose(weight, 1, 2), ends)
    h = _gated(b, h, name, route)
    weight = b.parameter(f"{name}.down_proj", route.experts, width, route.inner)
    h = _grouped_product(b, h, b.transpose(weight, 1, 2), ends)
    h = b.mul(h, b.unsqueeze(shares, 1))
    empty = b.index("aten.empty_like", order, shape=(pairs,))
    steps = b.arange(pairs)
    back = b.view_of(empty, (pairs,), (1,))
    b.emit("aten.index_put_", (empty, order, steps), (back,), (("accumulate", False),))
    h = b.view(pick(b, h, back), tokens, route.chosen, width)
    return b.cast(_sum(b, h, 1, keep=False), b.dtype)


def _one_by_one(b: Builder, x: int, weights: int, choice: int, name: str, route: Routing) -> int:
    """A loop over the experts that got a token; each adds its rows to the result in place."""
    tokens, width = b.shapes[x]
    classes = route.experts + 1  # the last one stands for experts on other devices
    result = b.new((tokens, width))
    b.emit("aten.zeros_like", (x,), (result,))
    hot = b.index("aten.zeros", shape=(tokens, route.chosen, classes))
    places = b.unsqueeze(choice, 2)
    filled = b.view_of(hot, b.shapes[hot], b.strides[hot])
    b.emit("aten.scatter_", (hot, places), (filled,), (("dim", 2),))
    masks = b.view_of(filled, b.shapes[filled][::-1], b.strides[filled][::-1])
    b.emit("aten.permute", (filled,), (masks,), (("dims", (2, 1, 0)),))
    both: Attrs = (("dim", (2, 1)), ("keepdim", False))
    counts = b.index("aten.sum", masks, shape=(classes,), attrs=both)
    hit = b.index("aten.gt", counts, shape=(classes,), dtype="bool")
    share, more = divmod(tokens * route.chosen, route.experts)
    loads = [share + (expert < more) for expert in range(route.experts)]
    busy = [load for load in loads if load]
    found = b.index("aten.nonzero", hit, shape=(len(busy), 1))
    numbers = unbind(b, found, 0)
    for expert, load in enumerate(busy):
        b.module = name
        number = b.select(numbers[expert], 0, 0)
        outside = b.index("aten.eq", number, shape=(), dtype="bool")
        b.emit("aten._local_scalar_dense", (outside,), ())
        b.emit("aten._local_scalar_dense", (number,), ())
        mask = b.select(masks, 0, expert)
        slot, token = unbind(b, b.index("aten.nonzero", mask, shape=(load, 2)), 1)
        h = pick(b, x, token)
        for part, columns, rows in (
            ("gate_up_proj", width, 2 * route.inner), ("down_proj", route.inner, width),
        ):  # fmt: skip
            b.emit("aten._local_scalar_dense", (number,), ())
            weight = b.parameter(f"{name}.{part}", route.experts, rows, columns)
            h = b.mm(h, b.t(b.select(weight, 0, expert)))
            if part == "gate_up_proj":
                h = _gated(b, h, name, route)
        h = b.mul(h, pick(b, b.unsqueeze(weights, 2), token, slot))
        result = add_rows(b, result, token, b.cast(h, b.dtype))
    return result


def _gated(b: Builder, x: int, name: str, route: Routing) -> int:
    """activation(first half) * second half."""
    gate, up = b.split(x, route.inner, 1)
    b.module = f"{name}.act_fn"
    gate = b.activation(gate, route.activation)
    b.module = name
    return b.mul(gate, up)


# ---- operators that only experts need ----------------------------------------------------------


def _top(b: Builder, x: int, count: int) -> tuple[int, int]:
    """`topk` of the last dimension of a matrix: (values, int64 places)."""
    shape = b.shapes[x]
    values = b.new((shape[0], count), b.dtypes[x])
    places = b.new((shape[0], count), "int64")
    b.emit(
        "aten.topk", (x,), (values, places),
        (("dim", 1), ("k", count), ("largest", True), ("sorted", True)),
    )  # fmt: skip

    def backward(g: int) -> tuple[int, ...]:
        whole = zeros_for(b, g, shape)
        out = b.new(shape, b.dtypes[g])
        b.emit("aten.scatter", (whole, places, g), (out,), (("dim", 1),))
        return (out,)

    b.record(backward, (x,), (values,), (places,))
    return values, places


def _sum(b: Builder, x: int, dim: int, *, keep: bool) -> int:
    """Sum along one dimension."""
    shape = b.shapes[x]
    middle = (1,) if keep else ()
    out = b.new((*shape[:dim], *middle, *shape[dim + 1 :]), b.dtypes[x])
    b.emit("aten.sum", (x,), (out,), (("dim", (dim,)), ("keepdim", keep)))

    def backward(g: int) -> tuple[int, ...]:
        return (b.expand_gradient(g if keep else b.unsqueeze(g, dim), shape),)

    b.record(backward, (x,), (out,))
    return out


def _divided(b: Builder, x: int, by: int) -> int:
    """`x /= by`, in place; autograd keeps a copy of what `x` was."""
    before = NONE
    if b.tracked[x]:
        before = b.new(b.shapes[x], b.dtypes[x])
        b.emit("aten.clone", (x,), (before,))
    out = b.view_of(x, b.shapes[x], b.strides[x])
    b.emit("aten.div_", (x, by), (out,))

    def backward(g: int) -> tuple[int, ...]:
        ratio = b.map("aten.div", b.map("aten.div", before, by), by)
        for_divisor = b.map("aten.mul", b.map("aten.neg", g), ratio)
        return b.map("aten.div", g, by), for_divisor

    b.record(backward, (x, by), (out,), (before, by))
    return out


def pick(b: Builder, x: int, *places: int, dim: int = 0) -> int:
    """`x[places]`: dimensions from `dim` on indexed by (rows,) int64 tensors."""
    shape = b.shapes[x]
    chosen = (*shape[:dim], *b.shapes[places[0]], *shape[dim + len(places) :])
    out = b.new(chosen, b.dtypes[x])
    b.emit("aten.index", (x, *places), (out,))

    def backward(g: int) -> tuple[int, ...]:
        whole = zeros_for(b, g, shape)
        result = b.new(shape, b.dtypes[g])
        b.emit("aten.index_put", (whole, *places, g), (result,), (("accumulate", True),))
        return (result,)

    b.record(backward, (x,), (out,), places)
    return out


def zeros_for(b: Builder, gradient: int, shape: Sizes) -> int:
    out = b.new(shape, b.dtypes[gradient])
    b.emit("aten.new_zeros", (gradient,), (out,))
    return out


def add_rows(b: Builder, x: int, rows: int, values: int) -> int:
    """`x.index_add_(0, rows, values)`."""
    out = b.view_of(x, b.shapes[x], b.strides[x])
    b.emit("aten.index_add_", (x, rows, values), (out,), (("dim", 0),))
    shape, dtype = b.shapes[values], b.dtypes[values]

    def backward(g: int) -> tuple[int, ...]:
        picked = b.new(shape, dtype)
        b.emit("aten.index_select", (g, rows), (picked,), (("dim", 0),))
        return g, b.expand_gradient(picked, shape)

    b.record(backward, (x, values), (out,), (rows, values))
    return out


def unbind(b: Builder, x: int, dim: int) -> tuple[int, ...]:
    """The slices of a matrix along `dim`."""
    shape, strides = b.shapes[x], b.strides[x]
    parts = tuple(
        b.view_of(x, (shape[1 - dim],), (strides[1 - dim],)) for _ in range(shape[dim])
    )  # fmt: skip
    b.emit("aten.unbind", (x,), parts, (("dim", dim),))
    return parts


def _grouped_product(b: Builder, x: int, weight: int, ends: int) -> int:
    """(rows, K) times each group's own (K, N) of (experts, K, N), column-major."""
    out = _product(b, x, weight, ends)
    tracked = b.tracked

    def backward(g: int) -> tuple[int, ...]:
        for_weight = for_x = NONE
        if tracked[weight]:
            for_weight = b.transpose(_product(b, b.transpose(g, 0, 1), x, ends), 1, 2)
        if tracked[x]:
            for_x = _product(b, g, b.transpose(weight, 1, 2), ends)
        return for_x, for_weight

    b.record(backward, (x, weight), (out,), (x, weight, ends))
    return out


def _product(b: Builder, left: int, right: int, ends: int) -> int:
    """`aten._grouped_mm`, without a node; two matrices give one product a group."""
    rows, columns = b.shapes[left][0], b.shapes[right][-1]
    shape: Sizes = (rows, columns)
    if len(b.shapes[right]) == 2:
        shape = (b.shapes[ends][0], *shape)
    out = b.new(shape, None, contiguous(shape))
    b.emit("aten._grouped_mm", (left, right, ends), (out,))
    return out
