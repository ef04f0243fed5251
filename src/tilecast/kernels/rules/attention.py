"""Fused attention, forward and backward."""

from __future__ import annotations

from tilecast.kernels import attention, copy, reduction
from tilecast.kernels.rules.call import Call, precision_of, rule
from tilecast.kernels.rules.copies import move
from tilecast.kernels.rules.pointwise import pointwise
from tilecast.kernels.rules.reductions import reduce
from tilecast.kernels.table import Kernel
from tilecast.precision import itemsize
from tilecast.workload.graph import Tensor

#: Accumulators of gradients: fp32 whatever the tensors are.
_WIDE = "float32"


def _shape(call: Call, tensor: Tensor) -> tuple[int, int, int, int]:
    """(batch, heads, length, width) of a query, key or value."""
    if "scaled_dot_product" in call.name or "fused_attention" in call.name:
        batch, heads, length, width = tensor.shape
    elif len(tensor.shape) == 4:  # the low-level operators take (batch, length, heads, width)
        batch, length, heads, width = tensor.shape
    else:
        batch, (length, heads, width) = 1, tensor.shape
    return batch, heads, length, width


def _fused(
    call: Call, query: Tensor, key: Tensor, value: Tensor, backward: bool, name: str
) -> Kernel:
    batch, heads, q_len, head_dim = _shape(call, query)
    _, kv_heads, kv_len, _ = _shape(call, key)
    value_dim = _shape(call, value)[3]
    window = call.attr("window_size_left")
    return attention.kernel(
        batch, heads, kv_heads, head_dim, q_len, kv_len, value_dim=value_dim,
        causal=bool(call.attr("is_causal", False)),
        window=int(window) + 1 if isinstance(window, int) and window >= 0 else 0,
        # PyTorch's `is_causal` aligns the first query with the first key
        offset=0, backward=backward, precision=_precision(call, query),
        itemsize=itemsize(query.dtype), read=call.read, written=call.written, name=name,
    )  # fmt: skip


def _precision(call: Call, query: Tensor) -> str:
    precision = precision_of(query)
    return call.context.matmul_fp32 if precision == "fp32" else precision


def _backend(call: Call) -> str:
    for name in ("flash", "efficient", "cudnn"):
        if name in call.name:
            return name
    return "fused"


@rule(
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_fused_attention_overrideable",
    "_flash_attention_forward", "_efficient_attention_forward", "_cudnn_attention_forward",
    "scaled_dot_product_attention",
)  # fmt: skip
def forward(call: Call) -> list[Kernel]:
    """One kernel."""
    query, key, value = call.inputs[:3]
    return [_fused(call, query, key, value, False, f"{_backend(call)}_attention")]


@rule("_scaled_dot_product_flash_attention_backward", "_flash_attention_backward")
def flash_backward(call: Call) -> list[Kernel]:
    """Row sums of dO * O (which also zero an fp32 dQ), the main kernel, and dQ to its dtype.

    With fewer key heads than query heads, dK and dV come out for each query head and are summed.
    """
    gradient, query, key, value, out = call.inputs[:5]
    batch, heads, q_len, head_dim = _shape(call, query)
    _, kv_heads, kv_len, _ = _shape(call, key)
    rows = batch * heads * q_len
    size = itemsize(query.dtype)
    wide_query = Tensor(query.shape, _WIDE)
    kernels = [
        _row_sums(gradient, out, rows, 4.0 * rows + wide_query.bytes),
        _fused(call, query, key, value, True, "flash_attention_backward"),
        move(wide_query, Tensor(query.shape, query.dtype), "flash_attention_convert"),
    ]
    if kv_heads != heads:
        spread = Tensor((batch, kv_len, kv_heads, heads // kv_heads, head_dim), query.dtype)
        summed = Tensor((batch, kv_len, kv_heads, head_dim), query.dtype)
        kernels += [reduce("sum", "sum", spread, (summed,), (3,), spread.elements * size)] * 2
    return kernels


def _row_sums(gradient: Tensor, out: Tensor, rows: int, written: float) -> Kernel:
    return reduction.kernel(
        rows, out.elements // max(1, rows), "dot", precision=precision_of(out),
        itemsize=itemsize(out.dtype), read=gradient.bytes + out.bytes, written=written,
        name="attention_row_sums",
    )  # fmt: skip


@rule("_scaled_dot_product_efficient_attention_backward", "_efficient_attention_backward")
def efficient_backward(call: Call) -> list[Kernel]:
    """The main kernel; fp32 has the row sums of dO * O as a product, a sum and a transposition."""
    gradient, query, key, value = call.inputs[:4]
    made = _fused(call, query, key, value, True, "efficient_attention_backward")
    if query.dtype != "float32":
        return [made]
    batch, heads, q_len, _ = _shape(call, query)
    each = Tensor(gradient.shape, "float32", gradient.strides)
    sums = Tensor((batch, q_len, heads), "float32")
    rank = len(each.shape)
    return [
        pointwise("mul", (each, each), (each,), 1.0),
        reduce("sum", "sum", each, (sums,), (rank - 1,)),
        copy.kernel(sums.elements, transposed=1),
        made,
    ]


@rule(
    "_scaled_dot_product_cudnn_attention_backward", "_cudnn_attention_backward",
    "_scaled_dot_product_fused_attention_overrideable_backward",
)  # fmt: skip
def cudnn_backward(call: Call) -> list[Kernel]:
    """Row sums of dO * O, then the main kernel."""
    gradient, query, key, value, out = call.inputs[:5]
    batch, heads, q_len, _ = _shape(call, query)
    rows = batch * heads * q_len
    return [
        _row_sums(gradient, out, rows, 4.0 * rows),
        _fused(call, query, key, value, True, "cudnn_attention_backward"),
    ]
