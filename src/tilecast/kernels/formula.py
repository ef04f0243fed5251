"""What every family's formulas share: sizes that are numbers or whole columns of them.

A formula is written once and takes either Python numbers (one kernel of a graph) or float64 arrays
(a column of what-ifs).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from tilecast.kernels.table import Floats
from tilecast.precision import STORAGE_OF, itemsize

#: One number, or a float64 column: a formula gives back what it was given.
Size = TypeVar("Size", float, Floats)

#: Bytes of an element that a product narrower than 16 bits writes: its sums leave as bf16.
NARROW_RESULT_BYTES: Final = 2.0


def columns(*values: ArrayLike) -> list[Floats]:
    """Columns of equal length (n,) in float64, so that no product of sizes overflows."""
    arrays = np.broadcast_arrays(*(np.atleast_1d(np.asarray(v, dtype=np.float64)) for v in values))
    return [np.ascontiguousarray(array) for array in arrays]


def element_bytes(precision: str) -> float:
    """Bytes of an element of the storage dtype that a precision implies."""
    return itemsize(STORAGE_OF[precision])


def result_bytes(precision: str) -> float:
    """Bytes of an element that a matrix product in a precision writes."""
    return max(element_bytes(precision), NARROW_RESULT_BYTES)


def vector_precision(precision: str) -> str:
    """What ordinary lanes compute in: fp64 for itself, fp32 for the rest.

    Eager kernels widen 16-bit operands to fp32 on load; integers run at the same rate.
    """
    return "fp64" if precision == "fp64" else "fp32"


def ceil_div(value: int, by: int) -> int:
    """Smallest whole number that is not below `value / by`."""
    return -(-value // by)


def clip(value: Any, low: float, high: Any) -> Any:
    """`value` held between `low` and `high`, for numbers and arrays alike."""
    if isinstance(value, np.ndarray) or isinstance(high, np.ndarray):
        return np.clip(value, low, high)
    return min(max(value, low), high)


def product(sizes: Sequence[int]) -> int:
    """Product of sizes (1 of none)."""
    total = 1
    for size in sizes:
        total *= size
    return total
