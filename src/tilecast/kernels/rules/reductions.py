"""Reductions over dimensions, softmax and losses."""

from __future__ import annotations

from typing import Final

from tilecast.kernels import index, reduction
from tilecast.kernels.formula import product
from tilecast.kernels.rules.call import Call, precision_of, rule, strides_of, unique_bytes
from tilecast.kernels.rules.copies import fill
from tilecast.kernels.rules.pointwise import elementwise_rule, pointwise
from tilecast.kernels.table import Kernel
from tilecast.precision import itemsize
from tilecast.workload.graph import Tensor

#: ATen reductions to the kind that counts their work.
_SIMPLE: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("sum", "nansum", "mean", "nanmean", "prod", "amax", "amin", "aminmax", "any", "all",
         "count_nonzero", "is_nonzero", "trace"),
        "sum",
    ),
    **dict.fromkeys(("norm", "linalg_vector_norm", "frobenius_norm", "dist"), "dot"),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), "variance"),
    **dict.fromkeys(("argmax", "argmin"), "argmax"),
    **dict.fromkeys(("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"), "cumsum"),
}  # fmt: skip
_SCANS: Final = frozenset({"cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"})


def reduced_dims(source: Tensor, target: Tensor, dim: object) -> tuple[int, ...]:
    """Dimensions that are reduced: as asked for, else those in which the result is smaller."""
    rank = len(source.shape)
    if isinstance(dim, int) and not isinstance(dim, bool):
        dim = (dim,)
    if isinstance(dim, tuple) and dim and rank:
        return tuple(int(d) % rank for d in dim)
    if len(target.shape) == rank and target.elements != 1:
        return tuple(d for d in range(rank) if target.shape[d] != source.shape[d])
    return tuple(range(rank))


def row_stride(source: Tensor, dims: tuple[int, ...]) -> int:
    """Stride between neighbours of a row: the smallest of the reduced dimensions."""
    strides = strides_of(source)
    steps = [strides[d] for d in dims if source.shape[d] > 1 and strides[d]]
    return min(steps, default=1)


def reduce(
    name: str, kind: str, source: Tensor, outputs: tuple[Tensor, ...], dims: tuple[int, ...],
    read: float | None = None,
) -> Kernel:  # fmt: skip
    """One reduction of `source` over `dims`."""
    columns = product([source.shape[d] for d in dims])
    return reduction.kernel(
        source.elements // max(1, columns),
        columns,
        kind,
        inner=row_stride(source, dims),
        precision=precision_of(source),
        itemsize=itemsize(source.dtype),
        read=unique_bytes(source) if read is None else read,
        written=sum(map(unique_bytes, outputs)),
        name=name,
    )


@rule(*_SIMPLE)
def simple(call: Call) -> list[Kernel]:
    """One kernel over the dimensions asked for."""
    source = call.inputs[0]
    target = call.main
    if call.name in _SCANS:
        dims: tuple[int, ...] = (int(call.attr("dim", -1)) % max(1, len(source.shape)),)
    else:
        dims = reduced_dims(source, target, call.attr("dim"))
    if not source.shape:
        dims = ()
    made = reduce(call.name, _SIMPLE[call.name], source, call.outputs, dims, call.read)
    return [made]


@rule("max", "min")
def extremum(call: Call) -> list[Kernel]:
    """Of a tensor, of each row with its position, or of two tensors element by element."""
    if len(call.inputs) == 2:
        return elementwise_rule(call)
    source = call.inputs[0]
    kind = "argmax" if len(call.outputs) == 2 else "sum"
    return [reduce(call.name, kind, source, call.outputs,
                   reduced_dims(source, call.main, call.attr("dim")))]  # fmt: skip


@rule("logsumexp")
def logsumexp(call: Call) -> list[Kernel]:
    """Maxima, exponentials of the differences, their sum, and its logarithm with the maximum."""
    source, target = call.inputs[0], call.outputs[0]
    dims = reduced_dims(source, target, call.attr("dim"))
    wide = Tensor(source.shape, source.dtype)
    return [
        reduce("amax", "sum", source, (target,), dims),
        pointwise("sub", (source, target), (wide,), 1.0),
        pointwise("exp", (wide,), (wide,), 1.0),
        reduce("sum", "sum", wide, (target,), dims),
        pointwise("log", (target,), (target,), 1.0),
        pointwise("add", (target, target), (target,), 1.0, unique_bytes(target) * 2),
    ]


def _softmax(call: Call, kind: str, source: Tensor) -> list[Kernel]:
    dim = int(call.attr("dim", -1)) % max(1, len(source.shape))
    dims = (dim,) if source.shape else ()
    return [reduce(kind, kind, source, call.outputs, dims, call.read)]


@rule("_softmax", "softmax", "_log_softmax", "log_softmax")
def softmax(call: Call) -> list[Kernel]:
    """One kernel along `dim`."""
    return _softmax(call, call.name.removeprefix("_"), call.inputs[0])


@rule("_softmax_backward_data", "_log_softmax_backward_data")
def softmax_backward(call: Call) -> list[Kernel]:
    """One kernel along `dim`, over the gradient and the result."""
    kind = call.name.removeprefix("_").removesuffix("_data")
    return _softmax(call, kind, call.inputs[0])


@rule("_masked_softmax")
def masked_softmax(call: Call) -> list[Kernel]:
    """One kernel along `dim` that reads a mask."""
    return _softmax(call, "softmax", call.inputs[0])


@rule("nll_loss_forward", "nll_loss2d_forward")
def nll_loss(call: Call) -> list[Kernel]:
    """One value of each row, added up in one kernel (or kept apart with reduction `none`)."""
    scores, target = call.inputs[:2]
    rows = target.elements
    picked = rows * itemsize(scores.dtype) + unique_bytes(target)
    if call.attr("reduction", 1) == 0:
        return [pointwise("nll_loss", (target,), call.outputs[:1], 1.0, picked)]
    return [
        reduction.kernel(
            1, rows, "nll_loss", precision=precision_of(scores), itemsize=itemsize(scores.dtype),
            read=picked, written=sum(map(unique_bytes, call.outputs)),
        )
    ]  # fmt: skip


@rule("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(call: Call) -> list[Kernel]:
    """Zeros of the scores' shape, then one value a row."""
    out = call.outputs[0]
    target = call.inputs[2]
    size = itemsize(out.dtype)
    rows = target.elements
    return [
        fill(out),
        index.kernel(
            rows, scatter=True, precision=precision_of(out), itemsize=size,
            read=unique_bytes(target) + unique_bytes(call.inputs[0]), written=rows * size,
            name="nll_loss_backward",
        ),
    ]  # fmt: skip


@rule("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "soft_margin_loss",
      "binary_cross_entropy_with_logits")  # fmt: skip
def loss(call: Call) -> list[Kernel]:
    """Element by element, then the mean or the sum."""
    source, target = call.inputs[0], call.outputs[0]
    if target.elements == source.elements or call.attr("reduction", 1) == 0:
        return elementwise_rule(call)
    each = Tensor(source.shape, source.dtype)
    whole = Call(call.name, call.inputs, (each,), call.attrs, call.repeated)
    dims = tuple(range(len(each.shape)))
    return [*elementwise_rule(whole), reduce("mean", "sum", each, (target,), dims)]
