"""Number formats: what a tensor is stored in and what a kernel computes in.

Two vocabularies, kept apart on purpose:

- a *storage dtype* is what a tensor's elements are (`float32`, `bfloat16`, `int64`, `bool`):
  the names that PyTorch prints;
- a *precision* is what the arithmetic runs in (`fp32`, `tf32`, `bf16`, `fp8`): the keys of the
  peak-FLOPS tables of a GPU and of `--dtype`.
"""

from __future__ import annotations

from typing import Final

#: Bits of one element of each storage dtype.
STORAGE_BITS: Final[dict[str, int]] = {
    "float64": 64, "float32": 32, "float16": 16, "bfloat16": 16,
    "float8_e4m3fn": 8, "float8_e5m2": 8, "float4_e2m1": 4,
    "int64": 64, "int32": 32, "int16": 16, "int8": 8, "uint8": 8, "int4": 4, "bool": 8,
    "uint16": 16, "uint32": 32, "uint64": 64, "complex64": 64, "complex128": 128,
}  # fmt: skip

#: Precisions, in the order of their codes in a kernel table.
PRECISIONS: Final[tuple[str, ...]] = (
    "fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp8-block", "mxfp8", "nvfp4", "mxfp4",
    "int8", "int4", "int32",
)  # fmt: skip
PRECISION_CODE: Final[dict[str, int]] = {name: code for code, name in enumerate(PRECISIONS)}

#: The storage dtype that `--dtype` implies for weights and activations.
STORAGE_OF: Final[dict[str, str]] = {
    "fp64": "float64", "fp32": "float32", "tf32": "float32", "fp16": "float16",
    "bf16": "bfloat16", "fp8": "float8_e4m3fn", "fp8-block": "float8_e4m3fn",
    "mxfp8": "float8_e4m3fn", "nvfp4": "float4_e2m1", "mxfp4": "float4_e2m1",
    "int8": "int8", "int4": "int4", "int32": "int32",
}  # fmt: skip

#: The precision in which arithmetic on a storage dtype runs unless told otherwise.
PRECISION_OF: Final[dict[str, str]] = {
    "float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16",
    "float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "float4_e2m1": "nvfp4", "int8": "int8",
    "int4": "int4",
}  # fmt: skip


def itemsize(dtype: str) -> float:
    """Bytes of one element of a storage dtype (0.5 for 4-bit formats).

    Raises:
        KeyError: the dtype is not in `STORAGE_BITS`.
    """
    return STORAGE_BITS[dtype] / 8
