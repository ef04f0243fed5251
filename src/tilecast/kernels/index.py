"""Gathers and scatters: rows of `width` elements read from, or written to, places an index names.

gather   reads the rows named (at most the whole source) and the index, writes elements
scatter  reads elements and the index, writes elements; adding also reads what is there
"""

from __future__ import annotations

from typing import Final

from numpy.typing import ArrayLike

from tilecast.kernels.formula import Size, columns, element_bytes, vector_precision
from tilecast.kernels.table import Kernel, KernelTable

#: Bytes of an index: int64.
INDEX_BYTES: Final = 8.0
NAMES: Final[tuple[str, ...]] = ("gather", "scatter")


def bytes_read(elements: Size, width: Size, itemsize: float) -> Size:
    """Bytes of the elements moved and of one index for each row of `width`."""
    return elements * itemsize + elements / width * INDEX_BYTES


def kernel(
    elements: int,
    width: int = 1,
    *,
    scatter: bool = False,
    precision: str = "fp32",
    itemsize: float | None = None,
    read: float | None = None,
    written: float | None = None,
    adds: bool = False,
    name: str = "",
) -> Kernel:
    """One gather or scatter.

    Args:
        elements: moved.
        width: elements next to each other that one index moves.
        scatter: whether the index says where to write.
        precision: of the tensors.
        itemsize: bytes of an element; by default what the precision implies.
        read, written: unique bytes where the tensors are known.
        adds: to what is there: one addition an element.
        name: of the kernel.
    """
    size = element_bytes(precision) if itemsize is None else itemsize
    return Kernel(
        name or NAMES[scatter],
        "index",
        vector_precision(precision),
        (elements, max(width, 1), int(scatter)),
        float(elements * adds),
        bytes_read(elements, max(width, 1), size) if read is None else read,
        elements * size if written is None else written,
        size,
    )


def table(
    elements: ArrayLike, width: ArrayLike = 1, *, scatter: bool = False, precision: str = "fp32"
) -> KernelTable:
    """Gathers or scatters from columns of sizes; arguments as in `kernel`."""
    count, row = columns(elements, width)
    size = element_bytes(precision)
    return KernelTable.from_columns(
        "index",
        NAMES[scatter],
        {"elements": count, "width": row, "scatter": int(scatter)},
        flops=0.0 * count,
        bytes_read=bytes_read(count, row, size),
        bytes_written=count * size,
        precision=vector_precision(precision),
        itemsize=size,
    )
