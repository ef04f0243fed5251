"""Pooling: each output is the largest, or the mean, of a window of its channel.

FLOPs    window of each output (a comparison or an addition each)
forward  reads the input, writes the output (max: and an int64 index each)
backward reads the output's gradient (max: and the index), writes the input's
"""

from __future__ import annotations

from typing import Final

from numpy.typing import ArrayLike

from tilecast.kernels.formula import Size, columns, element_bytes, vector_precision
from tilecast.kernels.table import Kernel, KernelTable

#: Bytes of the position that max pooling keeps for each output.
INDEX_BYTES: Final = 8.0


def output_size(size: Size, window: Size, stride: Size, padding: Size) -> Size:
    """Output positions along one dimension."""
    return (size + 2 * padding - window) // stride + 1


def operations(outputs: Size, taps: Size) -> Size:
    """Floating-point operations over `outputs` windows of `taps` elements."""
    return outputs * taps


def _name(kind: str, backward: bool) -> str:
    return f"{kind}_pool_backward" if backward else f"{kind}_pool"


def kernel(
    in_shape: tuple[int, ...],
    outputs: int,
    window: tuple[int, ...],
    *,
    kind: str = "max",
    stride: int = 1,
    padding: int = 0,
    backward: bool = False,
    precision: str = "fp32",
    itemsize: float | None = None,
    read: float,
    written: float,
) -> Kernel:
    """One pooling kernel.

    Args:
        in_shape: (N, C, ...) of the input.
        outputs: elements of the output.
        window: size along each dimension.
        kind: `max` or `average`.
        stride, padding: of the last dimension.
        backward: the gradient.
        precision: of the tensors.
        itemsize: bytes of an element; by default what the precision implies.
        read, written: unique bytes.
    """
    batch, channels, *pixels = in_shape
    height = 1
    for size in pixels[:-1]:
        height *= size
    taps = 1
    for size in window:
        taps *= size
    return Kernel(
        _name(kind, backward),
        "pool",
        vector_precision(precision),
        (batch, channels, height, pixels[-1] if pixels else 1, window[-1], stride, padding,
         int(backward)),
        float(operations(outputs, taps)),
        read,
        written,
        element_bytes(precision) if itemsize is None else itemsize,
    )  # fmt: skip


def table(
    batch: ArrayLike,
    channels: ArrayLike,
    height: ArrayLike,
    width: ArrayLike,
    window: ArrayLike,
    *,
    stride: ArrayLike = 1,
    padding: ArrayLike = 0,
    kind: str = "max",
    backward: bool = False,
    precision: str = "fp32",
) -> KernelTable:
    """Pooling over square windows from columns of sizes; arguments as in `kernel`."""
    n, c, h, w, side, step, pad = columns(batch, channels, height, width, window, stride, padding)
    size = element_bytes(precision)
    inputs = n * c * h * w
    outputs = n * c * output_size(h, side, step, pad) * output_size(w, side, step, pad)
    of_output = outputs * (size + INDEX_BYTES * (kind == "max"))
    return KernelTable.from_columns(
        "pool",
        _name(kind, backward),
        {"batch": n, "channels": c, "height": h, "width": w, "kernel": side, "stride": step,
         "padding": pad, "backward": int(backward)},
        flops=operations(outputs, side * side),
        bytes_read=of_output if backward else inputs * size,
        bytes_written=inputs * size if backward else of_output,
        precision=vector_precision(precision),
        itemsize=size,
    )  # fmt: skip
