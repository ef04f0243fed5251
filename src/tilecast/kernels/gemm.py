"""Matrix products: B times [M, K] @ [K, N], where K is reduced.

    FLOPs   2 B M N K                           (a multiply-add is two)
    read    B (M K + K N) + bias, in the operands' dtype
    written B M N, in the result's dtype

`layout` says how A and B are stored: 0 NN, 1 NT, 2 TN, 3 TT (T: transposed, so that its first
dimension is the contiguous one). `epilogue` 1 adds a bias of N values in the same kernel.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from tilecast.kernels.formula import Size, columns, element_bytes, result_bytes
from tilecast.kernels.table import Kernel, KernelTable

LAYOUTS: Final[tuple[str, ...]] = ("nn", "nt", "tn", "tt")


def flops(batch: Size, m: Size, n: Size, k: Size) -> Size:
    """Floating-point operations of `batch` products [M, K] @ [K, N]."""
    return 2 * batch * m * n * k


def operand_elements(batch: Size, m: Size, n: Size, k: Size) -> Size:
    """Elements of both operands."""
    return batch * (m * k + k * n)


def bytes_read(
    batch: Size, m: Size, n: Size, k: Size, epilogue: Size, itemsize: float, result_itemsize: float
) -> Size:
    """Unique bytes of both operands and of a bias of N values."""
    return operand_elements(batch, m, n, k) * itemsize + epilogue * n * result_itemsize


def result_elements(batch: Size, m: Size, n: Size) -> Size:
    """Elements of the result."""
    return batch * m * n


def kernel(
    batch: int,
    m: int,
    n: int,
    k: int,
    *,
    layout: int = 0,
    epilogue: int = 0,
    precision: str = "fp32",
    itemsize: float | None = None,
    result_itemsize: float | None = None,
    read: float | None = None,
    name: str = "",
) -> Kernel:
    """One product.

    Args:
        batch, m, n, k: sizes.
        layout: 0 NN, 1 NT, 2 TN, 3 TT.
        epilogue: 1 when a bias of N values is added.
        precision: of the arithmetic.
        itemsize, result_itemsize: bytes of an element in and out; by default those that the
            precision implies.
        read: unique bytes read where the tensors are known; by default both operands and a bias.
        name: of the kernel; by its layout by default.
    """
    size = element_bytes(precision) if itemsize is None else itemsize
    out = result_bytes(precision) if result_itemsize is None else result_itemsize
    return Kernel(
        name or kernel_name(batch, layout, epilogue),
        "gemm",
        precision,
        (batch, m, n, k, layout, epilogue),
        float(flops(batch, m, n, k)),
        bytes_read(batch, m, n, k, epilogue, size, out) if read is None else read,
        result_elements(batch, m, n) * out,
        size,
    )


def kernel_name(batch: int, layout: int, epilogue: int = 0) -> str:
    """Name of a product: `gemm_nt`, `batched_gemm_nn`, `gemm_nt_bias`."""
    name = f"{'batched_' if batch > 1 else ''}gemm_{LAYOUTS[layout]}"
    return f"{name}_bias" if epilogue else name


def table(
    batch: ArrayLike,
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    layout: ArrayLike = 0,
    precision: str = "fp32",
    *,
    epilogue: ArrayLike = 0,
) -> KernelTable:
    """Products from columns of sizes (scalars are repeated); arguments as in `kernel`.

    Args:
        batch: products in one launch.
        m, n: rows and columns of the result.
        k: the reduced dimension.
        layout: 0 NN, 1 NT, 2 TN, 3 TT.
        precision: of all rows.
        epilogue: 1 where a bias of N values is added.
    """
    b, rows, cols, depth, order, bias = columns(batch, m, n, k, layout, epilogue)
    size, out = element_bytes(precision), result_bytes(precision)
    one_layout = np.ndim(layout) == 0
    return KernelTable.from_columns(
        "gemm",
        f"gemm_{LAYOUTS[int(order[0])]}" if one_layout and len(order) else "gemm",
        {"batch": b, "m": rows, "n": cols, "k": depth, "layout": order, "epilogue": bias},
        flops=flops(b, rows, cols, depth),
        bytes_read=bytes_read(b, rows, cols, depth, bias, size, out),
        bytes_written=result_elements(b, rows, cols) * out,
        precision=precision,
        itemsize=size,
    )
