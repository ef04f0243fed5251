"""Matrix products: every ATen form becomes one GEMM, and copies of operands it cannot take."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilecast.kernels import gemm
from tilecast.kernels.formula import ceil_div, element_bytes, product
from tilecast.kernels.rules.call import (
    Call,
    precision_of,
    rule,
    strides_of,
    unique_bytes,
    unique_elements,
)
from tilecast.kernels.rules.copies import move
from tilecast.kernels.table import Kernel
from tilecast.precision import itemsize
from tilecast.workload.graph import Tensor

#: Formats of weights only: the product itself runs in the activations' precision.
WEIGHT_ONLY: Final = frozenset({"int4"})


def _order(matrix: Tensor) -> int | None:
    """0 row-major, 1 column-major, None where BLAS cannot take the matrix as it lies."""
    rows, columns = matrix.shape[-2:]
    row_step, column_step = strides_of(matrix)[-2:]
    if (column_step == 1 or columns == 1) and (row_step >= max(1, columns) or rows == 1):
        return 0
    if (row_step == 1 or rows == 1) and (column_step >= max(1, rows) or columns == 1):
        return 1
    return None


def _gemm(
    call: Call,
    left: Tensor,
    right: Tensor,
    sizes: tuple[int, int, int, int],
    addend: Tensor | None = None,
    epilogue: int = 0,
    right_is_weight: bool = False,
    right_order: int | None = None,
) -> list[Kernel]:
    """One product of given (batch, M, N, K), after copies of operands of unusable strides."""
    batch, m, n, k = sizes
    kernels = []
    orders = []
    read = 0.0
    precision = precision_of(left)
    if left.dtype == "float32":
        precision = call.context.matmul_fp32
    narrow = call.context.weights if right_is_weight else ""
    if narrow and narrow not in WEIGHT_ONLY:
        precision = narrow
    for is_right, operand in enumerate((left, right)):
        order = _order(operand) if len(operand.shape) > 1 else 0
        if is_right and right_order is not None:
            order = right_order
        size = itemsize(operand.dtype)
        if narrow and (is_right or narrow not in WEIGHT_ONLY):
            size = min(size, element_bytes(narrow))
        if order is None:
            kernels.append(move(operand, Tensor(operand.shape, operand.dtype), "copy"))
            read += operand.elements * size
            order = 0
        else:
            read += unique_elements(operand) * size
        orders.append(order)
    if addend is not None:
        read += unique_bytes(addend)
    out = call.outputs[0]
    kernels.append(
        gemm.kernel(
            batch, m, n, k, layout=2 * orders[0] + orders[1], epilogue=epilogue,
            precision=precision,
            itemsize=element_bytes(narrow) if precision == narrow else itemsize(left.dtype),
            result_itemsize=itemsize(out.dtype), read=read,
        )
    )  # fmt: skip
    return kernels


def _with_addend(call: Call, addend: Tensor, kernels: list[Kernel]) -> list[Kernel]:
    """A matrix that is added is first copied into the result, which the product then adds to."""
    return [move(addend, call.outputs[0], "copy"), *kernels]


@rule("mm", "_int_mm", "_scaled_mm", "_scaled_mm_v2")
def mm(call: Call) -> list[Kernel]:
    """[M, K] @ [K, N]."""
    a, b = call.inputs[:2]
    return _gemm(
        call, a, b, (1, a.shape[0], b.shape[1], a.shape[1]), right_is_weight=1 in call.weight_inputs
    )


@rule("bmm")
def bmm(call: Call) -> list[Kernel]:
    """[B, M, K] @ [B, K, N]."""
    a, b = call.inputs[:2]
    return _gemm(call, a, b, (a.shape[0], a.shape[1], b.shape[2], a.shape[2]))


@rule("addmm", "_addmm_activation", "addmm_")
def addmm(call: Call) -> list[Kernel]:
    """A bias vector is added in the product's epilogue; a matrix is copied first."""
    added, a, b = call.inputs[:3]
    sizes = (1, a.shape[0], b.shape[1], a.shape[1])
    weight = 2 in call.weight_inputs
    if len(added.shape) <= 1 or added.shape[0] == 1:
        return _gemm(call, a, b, sizes, added, 1, right_is_weight=weight)
    product_ = _gemm(call, a, b, sizes, call.outputs[0], right_is_weight=weight)
    return product_ if call.name.endswith("_") else _with_addend(call, added, product_)


@rule("baddbmm", "baddbmm_")
def baddbmm(call: Call) -> list[Kernel]:
    """Batched, the addend is copied into the result first."""
    added, a, b = call.inputs[:3]
    sizes = (a.shape[0], a.shape[1], b.shape[2], a.shape[2])
    product_ = _gemm(call, a, b, sizes, call.outputs[0])
    return product_ if call.name.endswith("_") else _with_addend(call, added, product_)


@rule("addbmm")
def addbmm(call: Call) -> list[Kernel]:
    """A batch of products summed is one product over batch times K."""
    added, a, b = call.inputs[:3]
    sizes = (1, a.shape[1], b.shape[2], a.shape[0] * a.shape[2])
    return _with_addend(call, added, _gemm(call, a, b, sizes, call.outputs[0]))


@rule("linear")
def linear(call: Call) -> list[Kernel]:
    """(..., K) times a weight (N, K), transposed, with or without a bias."""
    x, weight, *bias = call.inputs
    n, k = weight.shape if len(weight.shape) == 2 else (1, weight.shape[0])
    sizes = (1, product(x.shape[:-1]), n, k)
    flipped = {0: 1, 1: 0, None: 1}[_order(weight) if len(weight.shape) == 2 else 0]
    return _gemm(
        call, x, weight, sizes, bias[0] if bias else None, int(bool(bias)), 1 in call.weight_inputs,
        right_order=flipped,
    )  # fmt: skip


@rule("matmul")
def matmul(call: Call) -> list[Kernel]:
    """Any ranks: a matrix on the right folds the left one's batch into M."""
    a, b = call.inputs[:2]
    k = a.shape[-1]
    n = b.shape[-1] if len(b.shape) > 1 else 1
    if len(b.shape) <= 2:
        sizes = (1, product(a.shape[:-1]), n, k)
    else:
        m = a.shape[-2] if len(a.shape) > 1 else 1
        sizes = (call.outputs[0].elements // max(1, m * n), m, n, k)
    return _gemm(call, a, b, sizes)


@rule("mv", "addmv", "addmv_")
def mv(call: Call) -> list[Kernel]:
    """[M, K] @ [K]."""
    matrix, vector = call.inputs[-2:]
    addend = call.inputs[0] if len(call.inputs) == 3 else None
    return _gemm(call, matrix, vector, (1, matrix.shape[0], 1, matrix.shape[1]), addend)


@rule("dot", "vdot")
def dot(call: Call) -> list[Kernel]:
    """[K] @ [K]."""
    a, b = call.inputs[:2]
    return _gemm(call, a, b, (1, 1, 1, a.shape[-1]))


@rule("ger", "outer", "addr", "addr_")
def outer(call: Call) -> list[Kernel]:
    """[M] times [N]."""
    a, b = call.inputs[-2:]
    return _gemm(call, a, b, (1, a.shape[0], b.shape[0], 1))


@rule("_grouped_mm", "_scaled_grouped_mm")
def grouped_mm(call: Call) -> list[Kernel]:
    """Products of the rows that belong to each group (experts), which share them evenly.

    [T, K] @ [E, K, N], or [M, T] @ [T, N] summed within groups to [E, M, N]. With fewer rows than
    groups, the groups without a row have no product, and their matrices are not read.
    """
    a, b = call.inputs[:2]
    out = call.outputs[0]
    read = call.read
    rows: tuple[int, int, int]
    if len(a.shape) == 2 and len(b.shape) == 2:
        groups = out.shape[0]
        rows = (a.shape[0], b.shape[1], ceil_div(a.shape[1], groups))
        exact = gemm.flops(1, a.shape[0], b.shape[1], a.shape[1])
    elif len(a.shape) == 2:
        groups = max(1, min(b.shape[0], a.shape[0]))
        rows = (ceil_div(a.shape[0], groups), b.shape[2], a.shape[1])
        read -= unique_bytes(b) * (1 - groups / b.shape[0])
        exact = gemm.flops(1, a.shape[0], b.shape[2], a.shape[1])
    elif len(b.shape) == 2:
        groups = max(1, min(a.shape[0], b.shape[1]))
        rows = (a.shape[1], ceil_div(b.shape[1], groups), a.shape[2])
        read -= unique_bytes(a) * (1 - groups / a.shape[0])
        exact = gemm.flops(1, a.shape[1], b.shape[1], a.shape[2])
    else:
        return bmm(call)
    made = gemm.kernel(
        groups, *rows, layout=2 * (_order(a) or 0) + (_order(b) or 0), precision=precision_of(a),
        itemsize=itemsize(a.dtype), result_itemsize=itemsize(out.dtype), read=read,
        name="grouped_gemm",
    )  # fmt: skip
    # the last group is not full: what is computed is every row once
    return [replace(made, flops=float(exact), bytes_written=call.written)]
