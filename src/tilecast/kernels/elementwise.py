"""Elementwise kernels: every output element from the elements at its place.

    FLOPs   ops_per_element * elements
    read    inputs * elements * itemsize        (of a graph: each operand's unique bytes)
    written outputs * elements * itemsize

`OPERATIONS` counts the arithmetic of each ATen operator by its textbook formula: one for each
addition, multiplication, division, comparison, selection and elementary function (exp, log, sqrt,
tanh, erf, sin, ...). A GPU spends several instructions on a division or an exponential (the CUDA
programming guide has a quarter to an eighth of the rate for them); that is part of what a law
learns as the efficiency of the vector lanes, and seldom shows beside the bytes.
"""

from __future__ import annotations

from typing import Final

from numpy.typing import ArrayLike

from tilecast.kernels.formula import Size, columns, element_bytes, vector_precision
from tilecast.kernels.table import Kernel, KernelTable

#: Operations of an element by ATen name (without a trailing `_`); in-place forms are the same.
OPERATIONS: Final[dict[str, float]] = {
    **dict.fromkeys((
        "add", "sub", "rsub", "mul", "div", "true_divide", "floor_divide", "fmod", "remainder",
        "neg", "negative", "abs", "absolute", "sign", "sgn", "positive", "square", "reciprocal",
        "relu", "threshold", "maximum", "minimum", "max", "min", "fmax", "fmin", "clamp_min",
        "clamp_max", "where", "masked_fill", "eq", "ne", "lt", "le", "gt", "ge", "equal",
        "isnan", "isinf", "isfinite", "isneginf", "isposinf", "signbit", "logical_and",
        "logical_or", "logical_xor", "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor",
        "bitwise_not", "bitwise_left_shift", "bitwise_right_shift", "__and__", "__or__", "__xor__",
        "__lshift__", "__rshift__", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p",
        "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh",
        "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "ceil", "floor", "round",
        "trunc", "frac", "lgamma", "digamma", "copysign", "heaviside", "conj_physical",
        "_conj_physical", "tril", "triu", "arange", "linspace", "isin", "gcd", "ldexp", "hypot",
        "nan_to_num", "logaddexp", "logaddexp2", "i0", "masked_scale", "complex", "polar",
        "view_as_real_copy", "threshold_backward", "masked_fill_backward", "angle",
    ), 1.0),
    "clamp": 2.0, "hardtanh": 2.0, "relu6": 2.0, "clip": 2.0, "leaky_relu": 2.0, "xlogy": 2.0,
    "clamp_backward": 2.0, "hardtanh_backward": 3.0, "leaky_relu_backward": 2.0,
    "_prelu_kernel": 2.0, "_prelu_kernel_backward": 3.0,
    "pow": 2.0, "float_power": 2.0,  # log and exp; whole exponents are multiplications
    "addcmul": 3.0, "addcdiv": 3.0, "lerp": 3.0,
    # 1 / (1 + exp(-x)); g y (1 - y)
    "sigmoid": 4.0, "sigmoid_backward": 3.0, "log_sigmoid_forward": 5.0, "logit": 3.0,
    "log_sigmoid_backward": 6.0, "logit_backward": 4.0,
    "tanh_backward": 3.0,  # g (1 - y y)
    "silu": 5.0, "silu_backward": 9.0,  # x sigmoid(x); g s (1 + x (1 - s))
    # erf: x / 2 (1 + erf(x / sqrt 2)), the tanh form in `GELU_TANH`
    "gelu": 5.0, "gelu_backward": 12.0,
    "hardswish": 5.0, "hardswish_backward": 6.0, "hardsigmoid": 4.0, "hardsigmoid_backward": 3.0,
    "mish": 6.0, "mish_backward": 12.0, "softplus": 4.0, "softplus_backward": 5.0,
    "elu": 4.0, "elu_backward": 5.0, "celu": 4.0, "selu": 4.0, "hardshrink": 3.0,
    "softshrink": 3.0, "hardshrink_backward": 3.0, "softshrink_backward": 3.0,
    "rrelu_with_noise": 4.0, "rrelu_with_noise_backward": 2.0, "glu": 5.0, "glu_backward": 8.0,
    "_glu_jvp": 8.0, "sinc": 3.0,
    # a random number, a comparison, two multiplications
    "native_dropout": 4.0, "native_dropout_backward": 2.0, "_fused_dropout": 4.0,
    "mse_loss": 2.0, "mse_loss_backward": 3.0, "smooth_l1_loss": 5.0,
    "smooth_l1_loss_backward": 5.0, "huber_loss": 5.0, "huber_loss_backward": 5.0,
    "binary_cross_entropy": 7.0, "binary_cross_entropy_backward": 6.0,
    "binary_cross_entropy_with_logits": 7.0, "soft_margin_loss": 4.0,
    # a random number of a counter-based generator, shaped
    "uniform": 2.0, "normal": 4.0, "random": 1.0, "bernoulli": 2.0, "exponential": 3.0,
    "rand": 2.0, "randn": 4.0, "randint": 1.0, "rand_like": 2.0, "randn_like": 4.0,
    "randint_like": 1.0, "log_normal": 5.0, "cauchy": 4.0, "geometric": 4.0,
    # four products of neighbours, three additions
    "upsample_nearest1d": 1.0, "upsample_nearest2d": 1.0, "upsample_nearest3d": 1.0,
    "_upsample_nearest_exact2d": 1.0, "upsample_bilinear2d": 11.0, "upsample_linear1d": 5.0,
    "upsample_trilinear3d": 23.0, "upsample_bicubic2d": 40.0, "_upsample_bilinear2d_aa": 20.0,
    "_upsample_bicubic2d_aa": 40.0, "grid_sampler_2d": 20.0,
    "upsample_nearest2d_backward": 1.0, "upsample_bilinear2d_backward": 11.0,
    "upsample_bicubic2d_backward": 40.0, "grid_sampler_2d_backward": 30.0,
}  # fmt: skip
#: `gelu` and its gradient in the tanh approximation.
GELU_TANH: Final[dict[str, float]] = {"gelu": 9.0, "gelu_backward": 20.0}


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
    transposed: int = 0,
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
        transposed: 1 where an operand and the result differ in which dimension is contiguous.
        precision: of the tensors (halves are computed on as fp32).
        itemsize: bytes of an element; by default what the precision implies.
        read, written: unique bytes where the tensors are known (mixed dtypes, broadcast operands);
            by default every operand is of the full shape.
        name: of the kernel.
    """
    size = element_bytes(precision) if itemsize is None else itemsize
    return Kernel(
        name,
        "elementwise",
        vector_precision(precision),
        (elements, inputs, outputs, round(ops_per_element), transposed),
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
        precision=vector_precision(precision),
        itemsize=size,
    )
