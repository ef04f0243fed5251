"""Elementwise kernels: every output element from the elements at its place.

    FLOPs   ops_per_element * elements
    read    inputs * elements * itemsize        (of a graph: each operand's unique bytes)
    written outputs * elements * itemsize

`OPERATIONS` counts the arithmetic of each ATen operator.
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from tilecast.kernels.formula import Size, columns, element_bytes
from tilecast.kernels.table import Kernel, KernelTable


def operations(elements: Size, ops_per_element: Size) -> Size:
    """Floating-point operations."""
    return ops_per_element * elements


def tensor_bytes(elements: Size, tensors: Size, itemsize: float) -> Size:
    """Bytes of `tensors` operands of the full shape."""
    return tensors * elements * itemsize


def kernel(
    elements: int,
    inputs: int = 1,
    outputs: int = 1,
    ops_per_element: float = 1.0,
    *,
    precision: str = "fp32",
    itemsize: float | None = None,
    read: float | None = None,
    written: float | None = None,
    name: str = "elementwise",
) -> Kernel:
    """One elementwise kernel.

    Args:
        elements: of the output.
        inputs, outputs: tensors read and written.
        ops_per_element: floating-point operations for each element.
        precision: of the arithmetic.
        itemsize: bytes of an element; by default what the precision implies.
        read, written: unique bytes where the tensors are known (mixed dtypes, broadcast operands);
            by default every operand is of the full shape.
        name: of the kernel.
    """
    size = element_bytes(precision) if itemsize is None else itemsize
    return Kernel(
        name,
        "elementwise",
        precision,
        (elements, inputs, outputs, round(ops_per_element)),
        float(operations(elements, ops_per_element)),
        tensor_bytes(elements, inputs, size) if read is None else read,
        tensor_bytes(elements, outputs, size) if written is None else written,
        size,
    )


def table(
    elements: ArrayLike,
    inputs: ArrayLike = 1,
    outputs: ArrayLike = 1,
    ops_per_element: ArrayLike = 1.0,
    *,
    precision: str = "fp32",
    name: str = "elementwise",
) -> KernelTable:
    """Elementwise kernels from columns of sizes; arguments as in `kernel`."""
    count, read, written, per_element = columns(elements, inputs, outputs, ops_per_element)
    size = element_bytes(precision)
    return KernelTable.from_columns(
        "elementwise",
        name,
        {"elements": count, "inputs": read, "outputs": written, "ops_per_element": per_element},
        flops=operations(count, per_element),
        bytes_read=tensor_bytes(count, read, size),
        bytes_written=tensor_bytes(count, written, size),
        precision=precision,
        itemsize=size,
    )
