"""Copies, casts, concatenations and fills: bytes moved, nothing computed.

    read    elements * itemsize in (0 for a fill)
    written elements * itemsize out

`transposed` 1: source and destination disagree on which dimension is the contiguous one, so that
one of the two sides is not read or written in order.
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from tilecast.kernels.formula import columns, element_bytes, vector_precision
from tilecast.kernels.table import Kernel, KernelTable


def kernel(
    elements: int,
    *,
    transposed: int = 0,
    precision: str = "fp32",
    itemsize: float | None = None,
    read: float | None = None,
    written: float | None = None,
    name: str = "copy",
) -> Kernel:
    """One copy of `elements`; `read` and `written` bytes where the two sides differ."""
    size = element_bytes(precision) if itemsize is None else itemsize
    moved = elements * size
    return Kernel(
        name,
        "copy",
        vector_precision(precision),
        (elements, transposed),
        0.0,
        moved if read is None else read,
        moved if written is None else written,
        size,
    )


def table(
    elements: ArrayLike, *, transposed: ArrayLike = 0, precision: str = "fp32", name: str = "copy"
) -> KernelTable:
    """Copies from columns of sizes; arguments as in `kernel`."""
    count, turned = columns(elements, transposed)
    size = element_bytes(precision)
    return KernelTable.from_columns(
        "copy",
        name,
        {"elements": count, "transposed": turned},
        flops=0.0 * count,
        bytes_read=count * size,
        bytes_written=count * size,
        precision=vector_precision(precision),
        itemsize=size,
    )
