"""Convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilecast.kernels import conv, pool
from tilecast.kernels.formula import ceil_div
from tilecast.kernels.rules.call import Call, precision_of, rule
from tilecast.kernels.rules.copies import fill, move
from tilecast.kernels.rules.pointwise import pointwise
from tilecast.kernels.rules.reductions import reduce
from tilecast.kernels.table import Kernel
from tilecast.precision import itemsize
from tilecast.workload.graph import Tensor


def _each(value: Any, rank: int, default: int) -> tuple[int, ...]:
    """An attribute as one value for each spatial dimension."""
    if value is None or value == ():
        return (default,) * rank
    if isinstance(value, int):
        return (value,) * rank
    return tuple(value) * rank if len(value) == 1 else tuple(value)


def _pass(
    call: Call, in_shape: Sequence[int], out_shape: Sequence[int], weight: Tensor, direction: int
) -> Kernel:
    rank = len(weight.shape) - 2
    missing = rank + 2 - len(in_shape)
    precision = precision_of(weight)
    return conv.kernel(
        (1,) * missing + tuple(in_shape),
        (1,) * missing + tuple(out_shape),
        weight.shape[2:],
        stride=_each(call.attr("stride"), rank, 1),
        padding=_each(call.attr("padding"), rank, 0),
        dilation=_each(call.attr("dilation"), rank, 1),
        groups=int(call.attr("groups", 1)),
        direction=direction,
        precision=call.context.conv_fp32 if precision == "fp32" else precision,
        itemsize=itemsize(weight.dtype),
    )


@rule("convolution", "_convolution", "cudnn_convolution", "_conv_depthwise2d", "conv1d", "conv2d",
      "conv3d", "cudnn_convolution_transpose", "convolution_overrideable", "thnn_conv2d",
      "_slow_conv2d_forward", "conv_depthwise3d", "slow_conv3d")  # fmt: skip
def convolution(call: Call) -> list[Kernel]:
    """One kernel, and one that adds the bias."""
    source, weight, *bias = call.inputs
    out = call.outputs[0]
    if call.attr("transposed") or "transpose" in call.name:
        kernels = [_pass(call, out.shape, source.shape, weight, conv.DATA_GRADIENT)]
    else:
        kernels = [_pass(call, source.shape, out.shape, weight, conv.FORWARD)]
    if bias:
        kernels.append(pointwise("conv_bias", (out, bias[0]), (out,), 1.0))
    return kernels


@rule("convolution_backward", "convolution_backward_overrideable", "_slow_conv2d_backward")
def convolution_backward(call: Call) -> list[Kernel]:
    """One kernel for each gradient asked for: data, weight, bias."""
    gradient, source, weight = call.inputs[:3]
    transposed = call.attr("transposed", False)
    mask = call.attr("output_mask") or tuple(i < len(call.outputs) for i in range(3))
    kernels = []
    if mask[0]:
        kernels.append(
            _pass(call, gradient.shape, source.shape, weight, conv.FORWARD)
            if transposed
            else _pass(call, source.shape, gradient.shape, weight, conv.DATA_GRADIENT)
        )
    if mask[1]:
        first, second = (gradient, source) if transposed else (source, gradient)
        kernels.append(_pass(call, first.shape, second.shape, weight, conv.WEIGHT_GRADIENT))
    if mask[2]:
        channel = len(gradient.shape) - (len(weight.shape) - 2) - 1
        dims = tuple(d for d in range(len(gradient.shape)) if d != channel)
        bias = Tensor((gradient.shape[channel],), gradient.dtype)
        kernels.append(reduce("conv_bias_gradient", "sum", gradient, (bias,), dims))
    return kernels


def _pooled(
    call: Call, source: Tensor, out: Tensor, kind: str, backward: bool, read: float, written: float
) -> Kernel:
    rank = 1 if "1d" in call.name else 3 if "3d" in call.name else 2
    window = call.attr("kernel_size")
    if window is None:  # adaptive: windows that cover the input
        pairs = zip(source.shape[-rank:], out.shape[-rank:], strict=True)
        window = tuple(ceil_div(size, max(1, result)) for size, result in pairs)
    window = _each(window, rank, 1)
    stride = _each(call.attr("stride"), rank, 0)
    lead = source.shape[: len(source.shape) - rank]
    return pool.kernel(
        (*((1,) * (2 - len(lead))), *lead, *source.shape[-rank:]), out.elements, window,
        kind=kind, stride=stride[-1] or window[-1],
        padding=_each(call.attr("padding"), rank, 0)[-1], backward=backward,
        precision=precision_of(source), itemsize=itemsize(source.dtype), read=read,
        written=written,
    )  # fmt: skip


_FORWARD = {
    **dict.fromkeys(
        ("max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool1d_with_indices",
         "max_pool2d", "max_pool3d", "max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
         "adaptive_max_pool1d"),
        "max",
    ),
    **dict.fromkeys(
        ("avg_pool2d", "avg_pool3d", "avg_pool1d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d",
         "_adaptive_avg_pool3d", "adaptive_avg_pool3d", "adaptive_avg_pool1d"),
        "average",
    ),
}  # fmt: skip
_BACKWARD = {
    **dict.fromkeys(
        ("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward",
         "adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward"),
        "max",
    ),
    **dict.fromkeys(
        ("avg_pool2d_backward", "avg_pool3d_backward", "_adaptive_avg_pool2d_backward",
         "_adaptive_avg_pool3d_backward"),
        "average",
    ),
}  # fmt: skip


@rule(*_FORWARD)
def pool_forward(call: Call) -> list[Kernel]:
    """One kernel."""
    source, out = call.inputs[0], call.outputs[0]
    return [_pooled(call, source, out, _FORWARD[call.name], False, call.read, call.written)]


@rule(*_BACKWARD)
def pool_backward(call: Call) -> list[Kernel]:
    """One kernel; for max pooling the gradient is zeroed first, and the input itself not read."""
    gradient, source = call.inputs[:2]
    out = call.outputs[0]
    kind = _BACKWARD[call.name]
    read = sum(
        t.elements * itemsize(t.dtype)
        for t in call.inputs
        if t is gradient or (kind == "max" and t.dtype == "int64")
    )
    made = _pooled(call, source, gradient, kind, True, read, call.written)
    return [fill(out), made] if kind == "max" else [made]


@rule("col2im")
def col2im(call: Call) -> list[Kernel]:
    """Every column value is added into its place."""
    return [move(call.inputs[0], call.outputs[0], "col2im")]
