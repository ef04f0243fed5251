"""Normalisation layers, forward and backward."""

from __future__ import annotations

from tilecast.kernels import reduction
from tilecast.kernels.formula import product
from tilecast.kernels.rules.call import Call, precision_of, rule, unique_bytes
from tilecast.kernels.rules.pointwise import pointwise
from tilecast.kernels.table import Kernel
from tilecast.precision import itemsize
from tilecast.workload.graph import Tensor


def _norm(
    kind: str, source: Tensor, rows: int, columns: int, inner: int, read: float, written: float,
    name: str = "",
) -> Kernel:  # fmt: skip
    return reduction.kernel(
        rows, columns, kind, inner=inner, precision=precision_of(source),
        itemsize=itemsize(source.dtype), read=read, written=written, name=name,
    )  # fmt: skip


def _rows(call: Call, source: Tensor) -> tuple[int, int]:
    """Rows and columns of a norm over the trailing dimensions."""
    shape = call.attr("normalized_shape")
    columns = product(shape) if shape else source.shape[-1]
    return source.elements // max(1, columns), columns


def _bytes(*tensors: Tensor) -> float:
    return sum(map(unique_bytes, tensors))


@rule("native_layer_norm", "layer_norm", "_fused_rms_norm", "rms_norm")
def row_norm(call: Call) -> list[Kernel]:
    """One kernel: statistics of each row, then the scaled row."""
    kind = "rms_norm" if "rms_norm" in call.name else "layer_norm"
    source = call.inputs[0]
    rows, columns = _rows(call, source)
    return [_norm(kind, source, rows, columns, 1, call.read, call.written)]


@rule("native_layer_norm_backward", "_fused_rms_norm_backward")
def row_norm_backward(call: Call) -> list[Kernel]:
    """A kernel over rows for the input's gradient, one over columns for weight and bias."""
    kind = "rms_norm_backward" if "rms" in call.name else "layer_norm_backward"
    gradient, source = call.inputs[:2]
    rows, columns = _rows(call, source)
    full = [tensor for tensor in call.outputs if tensor.elements == source.elements]
    mask = call.attr("output_mask") or (len(call.outputs) > 0, len(call.outputs) > 1)
    kernels = []
    outputs = call.outputs
    if mask[0]:
        into = full[:1] or outputs[:1]
        kernels.append(_norm(kind, source, rows, columns, 1, call.read, _bytes(*into)))
        outputs = outputs[1:]
    if any(mask[1:]) and outputs:
        statistics = [t for t in call.inputs[2:] if t.elements == rows]
        read = _bytes(gradient, source, *statistics)
        kernels.append(
            _norm(
                kind, source, columns, rows, columns, read, _bytes(*outputs), f"{kind}_weights"
            )
        )  # fmt: skip
    return kernels


def _channels(source: Tensor) -> tuple[int, int, int]:
    """Channels, elements of each, and the stride within one, of (N, C, ...)."""
    channels = source.shape[1] if len(source.shape) > 1 else source.elements
    last = source.strides is not None and len(source.shape) > 1 and source.strides[1] == 1
    return channels, source.elements // max(1, channels), channels if last else 1


@rule("cudnn_batch_norm", "miopen_batch_norm")
def fused_batch_norm(call: Call) -> list[Kernel]:
    """cuDNN: one kernel."""
    source = call.inputs[0]
    channels, each, inner = _channels(source)
    return [_norm("batch_norm", source, channels, each, inner, call.read, call.written)]


@rule(
    "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional",
    "_batch_norm_with_update", "_native_batch_norm_legit_no_training",
    "_batch_norm_no_update", "batch_norm",
)  # fmt: skip
def batch_norm(call: Call) -> list[Kernel]:
    """Training: statistics, running averages, then the transform; otherwise the last two."""
    source = call.inputs[0]
    channels, each, inner = _channels(source)
    size = unique_bytes(source)
    of_channels = tuple(t for t in call.inputs[1:] if t.elements == channels)
    statistics = (Tensor((channels,), "float32"),) * 2
    out = call.outputs[0]
    kernels = [
        pointwise("batch_norm_update", (*statistics, *of_channels[2:]), statistics, 4.0),
        pointwise(
            "batch_norm_transform", (source, *statistics, *of_channels[:2]), (out,),
            reduction.KINDS["batch_norm"].per_element - reduction.KINDS["variance"].per_element,
        ),
    ]  # fmt: skip
    trains = call.attr("training", call.attr("train", "no_training" not in call.name))
    if trains:
        kernels.insert(
            0,
            _norm("variance", source, channels, each, inner, size, _bytes(*statistics),
                  "batch_norm_statistics"),
        )  # fmt: skip
    return kernels


@rule("native_batch_norm_backward", "cudnn_batch_norm_backward", "miopen_batch_norm_backward",
      "batch_norm_backward")  # fmt: skip
def batch_norm_backward(call: Call) -> list[Kernel]:
    """One kernel: sums over each channel, then the input's gradient."""
    source = call.inputs[0]
    channels, each, inner = _channels(source)
    return [_norm("batch_norm_backward", source, channels, each, inner, call.read, call.written)]


@rule("_weight_norm_interface", "_weight_norm_interface_backward")
def weight_norm(call: Call) -> list[Kernel]:
    """One kernel over the rows of a weight: their norms (or products), then the scaled rows."""
    weight = call.outputs[0]
    rows = weight.shape[0] if not call.attr("dim", 0) else weight.shape[-1]
    columns = weight.elements // max(1, rows)
    inner = 1 if not call.attr("dim", 0) else rows
    name = call.name.removeprefix("_").replace("_interface", "")
    return [_norm("dot", weight, rows, columns, inner, call.read, call.written, name)]


@rule("native_group_norm", "group_norm")
def group_norm(call: Call) -> list[Kernel]:
    """Statistics of each group, factors of each channel, then the transform."""
    source = call.inputs[0]
    batch, channels = source.shape[:2]
    groups = int(call.attr("group", call.attr("num_groups", 1)))
    rows = batch * groups
    statistics = (Tensor((rows,), "float32"),) * 2
    factors = (Tensor((batch, channels), "float32"),) * 2
    transform = reduction.KINDS["group_norm"].per_element - reduction.KINDS["variance"].per_element
    return [
        _norm("variance", source, rows, source.elements // max(1, rows), 1, unique_bytes(source),
              _bytes(*statistics), "group_norm_statistics"),
        pointwise("group_norm_factors", (*statistics, *call.inputs[1:]), factors, 3.0),
        pointwise("group_norm_transform", (source, *factors), call.outputs[:1], transform),
    ]  # fmt: skip


@rule("native_group_norm_backward")
def group_norm_backward(call: Call) -> list[Kernel]:
    """Sums over each channel, factors of each group, the input's gradient, weight and bias."""
    gradient, source = call.inputs[:2]
    batch, channels = source.shape[:2]
    groups = int(call.attr("group", 1))
    sums = (Tensor((batch, channels), "float32"),) * 2
    factors = (Tensor((batch * groups,), "float32"),) * 2
    each = source.elements // max(1, batch * channels)
    both = _bytes(gradient, source)
    mask = call.attr("output_mask") or (True, True, True)
    kernels = [
        _norm("dot", source, batch * channels, each, 1, both, _bytes(*sums),
              "group_norm_backward_sums")
    ]  # fmt: skip
    outputs = call.outputs
    if mask[0]:
        work = reduction.KINDS["group_norm_backward"].per_element - 3
        kernels.append(pointwise("group_norm_backward_factors", sums, factors, 4.0))
        kernels.append(
            pointwise(
                "group_norm_backward_transform", (gradient, source, *factors), outputs[:1], work
            )
        )
        outputs = outputs[1:]
    if any(mask[1:]) and outputs:
        kernels.append(
            _norm("sum", sums[0], channels, batch, channels, _bytes(*sums), _bytes(*outputs),
                  "group_norm_backward_weights")
        )  # fmt: skip
    return kernels
