"""Fused attention (FlashAttention, memory-efficient, cuDNN): scores never leave the chip.

With B sequences, H query heads, G key heads, dimension D of queries and keys and E of values, and
`pairs` of query and key that the mask lets through:

    forward FLOPs   2 B H pairs (D + E)             Q K^T and P V
    backward FLOPs  2 B H pairs (3 D + 2 E)         recomputed scores, dP, dV, dQ, dK
    forward         reads Q, K, V; writes O and a log-sum-exp for each query
    backward        reads dO, Q, K, V, O, log-sum-exp; writes dQ, dK, dV

Without a mask `pairs` is q_len * kv_len, which is what PyTorch's FLOP counter takes whatever the
mask. Causal, kernels skip the blocks above the diagonal, so only pairs on and under it count.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from tilecast.kernels.formula import Size, clip, columns, element_bytes
from tilecast.kernels.table import Kernel, KernelTable

#: Bytes of a query's log-sum-exp: fp32.
LOG_SUM_BYTES: Final = 4.0
NAMES: Final[tuple[str, ...]] = ("attention", "attention_backward")


def pairs(
    q_len: Size, kv_len: Size, causal: bool = False, window: Any = 0, offset: Any = None
) -> Size:
    """Pairs of query and key that attend.

    Args:
        q_len, kv_len: queries and keys of a sequence.
        causal: query i sees keys up to i + offset.
        window: and of those only the last `window` (0: all); not causal, as many on each side.
        offset: position of the first query among the keys; by default the queries are the last
            ones (`kv_len - q_len`), as in a cache. PyTorch's `is_causal` means 0.
    """
    first = kv_len - q_len if offset is None else offset
    limit = _where_zero(window, q_len + kv_len + abs(first))
    end = first + (1 if causal else limit)
    seen: Size = _clipped_sum(end, q_len, kv_len) - _clipped_sum(first + 1 - limit, q_len, kv_len)
    return seen


def _where_zero(window: Any, unlimited: Any) -> Any:
    if isinstance(window, np.ndarray):
        return np.where(window == 0, unlimited, window)
    return window or unlimited


def _clipped_sum(first: Any, count: Any, top: Any) -> Any:
    """Sum of `clip(first + i, 0, top)` over i from 0 to count - 1."""

    def up_to(value: Any) -> Any:
        held = clip(value, 0, top)
        return held * (held + 1) / 2 + clip(value - top, 0, float("inf")) * top

    return up_to(first + count - 1) - up_to(first - 1)


def forward_flops(batch: Size, heads: Size, head_dim: Size, value_dim: Size, seen: Size) -> Size:
    """Floating-point operations of a forward pass; `seen` pairs for each head."""
    return 2 * batch * heads * seen * (head_dim + value_dim)


def backward_flops(batch: Size, heads: Size, head_dim: Size, value_dim: Size, seen: Size) -> Size:
    """Floating-point operations of a backward pass; `seen` pairs for each head."""
    return 2 * batch * heads * seen * (3 * head_dim + 2 * value_dim)


def query_elements(batch: Size, heads: Size, q_len: Size, width: Size) -> Size:
    """Elements of the queries (or of the output, with the values' width)."""
    return batch * heads * q_len * width


def kernel(
    batch: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    q_len: int,
    kv_len: int,
    *,
    value_dim: int | None = None,
    causal: bool = False,
    window: int = 0,
    offset: int | None = None,
    backward: bool = False,
    precision: str = "fp32",
    itemsize: float | None = None,
    read: float | None = None,
    written: float | None = None,
    name: str = "",
) -> Kernel:
    """One fused attention kernel; `offset` as in `pairs`, bytes given where tensors are known."""
    size = element_bytes(precision) if itemsize is None else itemsize
    values = head_dim if value_dim is None else value_dim
    seen = pairs(q_len, kv_len, causal, window, offset)
    count = backward_flops if backward else forward_flops
    took, gave = _bytes(batch, heads, kv_heads, head_dim, values, q_len, kv_len, size, backward)
    return Kernel(
        name or NAMES[backward],
        "attention",
        precision,
        (batch, heads, kv_heads, head_dim, q_len, kv_len, int(causal), window, int(backward)),
        float(count(batch, heads, head_dim, values, seen)),
        float(took) if read is None else read,
        float(gave) if written is None else written,
        size,
    )


def _bytes(
    batch: Size, heads: Size, kv_heads: Size, head_dim: Size, value_dim: Size, q_len: Size,
    kv_len: Size, itemsize: float, backward: bool,
) -> tuple[Size, Size]:  # fmt: skip
    """Unique bytes read and written."""
    query = query_elements(batch, heads, q_len, head_dim) * itemsize
    out = query_elements(batch, heads, q_len, value_dim) * itemsize
    keys = query_elements(batch, kv_heads, kv_len, head_dim) * itemsize
    values = query_elements(batch, kv_heads, kv_len, value_dim) * itemsize
    log_sum = batch * heads * q_len * LOG_SUM_BYTES
    if backward:
        return query + keys + values + 2 * out + log_sum, query + keys + values
    return query + keys + values, out + log_sum


def table(
    batch: ArrayLike,
    heads: ArrayLike,
    kv_heads: ArrayLike,
    head_dim: ArrayLike,
    q_len: ArrayLike,
    kv_len: ArrayLike,
    *,
    causal: bool = False,
    window: ArrayLike = 0,
    backward: bool = False,
    precision: str = "fp32",
) -> KernelTable:
    """Fused attention from columns of sizes.

    Args:
        batch: sequences.
        heads, kv_heads: query heads and key-value heads.
        head_dim: width of a head.
        q_len, kv_len: queries and keys; causal queries are the last ones.
        causal: later keys are masked.
        window: keys that a query sees (0: all).
        backward: the backward pass.
        precision: of all rows.
    """
    b, h, g, d, q, kv, width = columns(batch, heads, kv_heads, head_dim, q_len, kv_len, window)
    size = element_bytes(precision)
    seen = pairs(q, kv, causal, width)
    took, gave = _bytes(b, h, g, d, d, q, kv, size, backward)
    return KernelTable.from_columns(
        "attention",
        NAMES[backward],
        {"batch": b, "heads": h, "kv_heads": g, "head_dim": d, "q_len": q, "kv_len": kv,
         "causal": int(causal), "window": width, "backward": int(backward)},
        flops=(backward_flops if backward else forward_flops)(b, h, d, d, seen),
        bytes_read=took,
        bytes_written=gave,
        precision=precision,
        itemsize=size,
    )  # fmt: skip
