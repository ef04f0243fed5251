"""Embedding look-ups and their dense gradient.

forward   reads `tokens` rows of the table (each distinct one once) and the int64 indices,
          writes tokens * width
backward  reads the gradient (tokens * width) and sorted indices, adds it into the rows that
          occur: one addition an element
"""

from __future__ import annotations

from typing import Final

from numpy.typing import ArrayLike

from tilecast.kernels.formula import Size, clip, columns, element_bytes, vector_precision
from tilecast.kernels.table import Kernel, KernelTable

INDEX_BYTES: Final = 8.0
NAMES: Final[tuple[str, ...]] = ("embedding", "embedding_backward")


def rows_touched(tokens: Size, rows: Size) -> Size:
    """Most distinct rows that `tokens` indices can name."""
    touched: Size = clip(tokens, 0, rows)
    return touched


def operations(tokens: Size, width: Size, backward: bool) -> Size:
    """Floating-point operations: none forward, an addition for each element backward."""
    return tokens * width * int(backward)


def bytes_read(
    tokens: Size, width: Size, rows: Size, itemsize: float, backward: bool,
    index_bytes: float = INDEX_BYTES,
) -> Size:  # fmt: skip
    """Unique bytes read."""
    vectors = tokens if backward else rows_touched(tokens, rows)
    return vectors * width * itemsize + tokens * index_bytes


def bytes_written(tokens: Size, width: Size, rows: Size, itemsize: float, backward: bool) -> Size:
    """Unique bytes written."""
    vectors = rows_touched(tokens, rows) if backward else tokens
    return vectors * width * itemsize


def kernel(
    tokens: int,
    width: int,
    rows: int,
    *,
    backward: bool = False,
    precision: str = "fp32",
    itemsize: float | None = None,
    index_bytes: float = INDEX_BYTES,
) -> Kernel:
    """One look-up of `tokens` vectors of `width` in a table of `rows`, or its gradient."""
    size = element_bytes(precision) if itemsize is None else itemsize
    return Kernel(
        NAMES[backward],
        "embedding",
        vector_precision(precision),
        (tokens, width, rows, int(backward)),
        float(operations(tokens, width, backward)),
        bytes_read(tokens, width, rows, size, backward, index_bytes),
        bytes_written(tokens, width, rows, size, backward),
        size,
    )


def table(
    tokens: ArrayLike,
    width: ArrayLike,
    rows: ArrayLike,
    *,
    backward: bool = False,
    precision: str = "fp32",
) -> KernelTable:
    """Look-ups from columns of sizes; arguments as in `kernel`."""
    count, vector, height = columns(tokens, width, rows)
    size = element_bytes(precision)
    return KernelTable.from_columns(
        "embedding",
        NAMES[backward],
        {"tokens": count, "width": vector, "rows": height, "backward": int(backward)},
        flops=operations(count, vector, backward),
        bytes_read=bytes_read(count, vector, height, size, backward),
        bytes_written=bytes_written(count, vector, height, size, backward),
        precision=vector_precision(precision),
        itemsize=size,
    )
