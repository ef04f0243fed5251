"""Convolutions: forward, data gradient and weight gradient, grouped, dilated and transposed.

With input (N, C, H, W), weight (K, C/g, R, S) and output (N, K, P, Q), each of the three passes
multiplies every output element by every tap of its group:

    FLOPs   2 N K P Q (C/g) R S
    forward          reads input and weight, writes output
    data gradient    reads output gradient and weight, writes input gradient
    weight gradient  reads output gradient and input, writes weight gradient

A transposed convolution is the data gradient of the convolution that it transposes, and its
gradients are a forward pass and a weight gradient of that convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from numpy.typing import ArrayLike

from tilecast.kernels.formula import Size, columns, element_bytes, product
from tilecast.kernels.table import Kernel, KernelTable

FORWARD, DATA_GRADIENT, WEIGHT_GRADIENT = range(3)
NAMES: Final[tuple[str, ...]] = ("conv", "conv_data_gradient", "conv_weight_gradient")


def output_size(size: Size, kernel: Size, stride: Size, padding: Size, dilation: Size) -> Size:
    """Output positions along one dimension."""
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def flops(
    batch: Size, in_channels: Size, out_channels: Size, out_pixels: Size, taps: Size, groups: Size
) -> Size:
    """Floating-point operations of one pass.

    Args:
        batch: images.
        in_channels, out_channels: of the (not transposed) convolution.
        out_pixels: positions of its output, P * Q.
        taps: positions of its kernel, R * S.
        groups: groups of channels.
    """
    return 2 * batch * out_channels * out_pixels * (in_channels / groups) * taps


def input_elements(batch: Size, in_channels: Size, pixels: Size) -> Size:
    """Elements of the input."""
    return batch * in_channels * pixels


def weight_elements(in_channels: Size, out_channels: Size, taps: Size, groups: Size) -> Size:
    """Elements of the weight."""
    return out_channels * (in_channels / groups) * taps


def output_elements(batch: Size, out_channels: Size, out_pixels: Size) -> Size:
    """Elements of the output."""
    return batch * out_channels * out_pixels


def kernel(
    in_shape: Sequence[int],
    out_shape: Sequence[int],
    kernel_size: Sequence[int],
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int = 1,
    direction: int = FORWARD,
    precision: str = "fp32",
    itemsize: float | None = None,
    extra_read: float = 0.0,
) -> Kernel:
    """One pass of one convolution in one to three dimensions.

    Args:
        in_shape: (N, C, ...) of the input.
        out_shape: (N, K, ...) of the output.
        kernel_size: taps along each dimension.
        stride, padding, dilation: along each dimension.
        groups: groups of channels.
        direction: 0 forward, 1 data gradient, 2 weight gradient.
        precision: of the arithmetic.
        itemsize: bytes of an element; by default what the precision implies.
        extra_read: bytes of a bias.

    The table's columns have two dimensions with one stride. A convolution in one dimension has a
    height of 1; of one in three, depth goes into the batch (positions) and the input channels
    (taps). Where the two dimensions differ in stride, padding or dilation, the columns describe
    the padded input that gives the same output.
    """
    size = element_bytes(precision) if itemsize is None else itemsize
    batch, channels, *pixels = in_shape
    _, features, *out_pixels = out_shape
    taps, positions = product(kernel_size), product(out_pixels)
    of_input = input_elements(batch, channels, product(pixels))
    of_weight = weight_elements(channels, features, taps, groups)
    of_output = output_elements(batch, features, positions)
    read, written = (
        (of_input + of_weight, of_output),
        (of_output + of_weight, of_input),
        (of_output + of_input, of_weight),
    )[direction]
    sizes = [list(pixels), list(kernel_size), list(out_pixels), list(stride), list(padding),
             list(dilation)]  # fmt: skip
    if len(pixels) == 1:
        for values, alone in zip(sizes, (1, 1, 1, stride[0], 0, 1), strict=True):
            values.insert(0, alone)
    images, depth = batch, 1
    if len(pixels) == 3:
        images, depth = batch * out_pixels[0], kernel_size[0]
        sizes = [values[1:] for values in sizes]
    plane, window, out_plane, steps, pads, spread = sizes
    if len(set(steps)) > 1 or len(set(pads)) > 1 or len(set(spread)) > 1:
        steps, pads, spread = [steps[-1]] * 2, [0, 0], [spread[-1]] * 2
        plane = [
            (out - 1) * steps[0] + spread[0] * (tap - 1) + 1
            for out, tap in zip(out_plane, window, strict=True)
        ]
    return Kernel(
        NAMES[direction],
        "conv",
        precision,
        (images, channels * depth, features, *plane, *window, steps[0], pads[0], spread[0],
         groups, direction),
        flops(batch, channels, features, positions, taps, groups),
        read * size + extra_read,
        written * size,
        size,
    )  # fmt: skip


def table(
    batch: ArrayLike,
    in_channels: ArrayLike,
    out_channels: ArrayLike,
    height: ArrayLike,
    width: ArrayLike,
    kernel_h: ArrayLike,
    kernel_w: ArrayLike,
    *,
    stride: ArrayLike = 1,
    padding: ArrayLike = 0,
    dilation: ArrayLike = 1,
    groups: ArrayLike = 1,
    direction: int = FORWARD,
    precision: str = "fp32",
) -> KernelTable:
    """Convolutions of one pass from columns of sizes.

    Args:
        batch: images.
        in_channels, out_channels: channels of input and output.
        height, width: of the input.
        kernel_h, kernel_w: taps.
        stride, padding, dilation: in both dimensions.
        groups: groups of channels.
        direction: 0 forward, 1 data gradient, 2 weight gradient.
        precision: of all rows.
    """
    n, c, k, h, w, r, s, step, pad, spread, g = columns(
        batch, in_channels, out_channels, height, width, kernel_h, kernel_w, stride, padding,
        dilation, groups,
    )  # fmt: skip
    size = element_bytes(precision)
    pixels = output_size(h, r, step, pad, spread) * output_size(w, s, step, pad, spread)
    of_input = input_elements(n, c, h * w)
    of_weight = weight_elements(c, k, r * s, g)
    of_output = output_elements(n, k, pixels)
    read, written = (
        (of_input + of_weight, of_output),
        (of_output + of_weight, of_input),
        (of_output + of_input, of_weight),
    )[direction]
    return KernelTable.from_columns(
        "conv",
        NAMES[direction],
        {"batch": n, "in": c, "out": k, "height": h, "width": w, "kernel_h": r, "kernel_w": s,
         "stride": step, "padding": pad, "dilation": spread, "groups": g, "pass": direction},
        flops=flops(n, c, k, pixels, r * s, g),
        bytes_read=read * size,
        bytes_written=written * size,
        precision=precision,
        itemsize=size,
    )  # fmt: skip
