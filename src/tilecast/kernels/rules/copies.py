"""Copies, casts, concatenations, padding and fills."""

from __future__ import annotations

from typing import Final

from tilecast.kernels import copy
from tilecast.kernels.rules.call import Call, precision_of, rule, turned, unique_bytes
from tilecast.kernels.table import Kernel
from tilecast.precision import itemsize
from tilecast.workload.graph import Tensor

#: Tensors that one concatenation kernel takes (`CAT_ARRAY_BATCH_SIZE` in ATen's Shape.cu).
CAT_TENSORS: Final = 128


def move(source: Tensor, target: Tensor, name: str = "copy") -> Kernel:
    """A kernel that writes all of `target` from `source` (broadcast where it is smaller)."""
    return copy.kernel(
        target.elements,
        transposed=turned(source, target),
        precision=precision_of(target),
        itemsize=itemsize(target.dtype),
        read=unique_bytes(source),
        written=unique_bytes(target),
        name="cast" if source.dtype != target.dtype and name == "copy" else name,
    )


def fill(target: Tensor, name: str = "fill") -> Kernel:
    """A kernel that writes one value everywhere."""
    return copy.kernel(
        target.elements,
        precision=precision_of(target),
        itemsize=itemsize(target.dtype),
        read=0.0,
        written=unique_bytes(target),
        name=name,
    )


@rule(
    "clone", "_to_copy", "contiguous", "reshape", "flatten", "to", "type_as", "reshape_as", "ravel",
    "view_copy", "expand_copy", "permute_copy", "transpose_copy", "slice_copy", "t_copy",
    "alias_copy", "detach_copy", "select_copy", "unsqueeze_copy", "squeeze_copy", "as_strided_copy",
    "lift_fresh_copy", "_copy_from", "repeat", "tile", "roll", "flip", "rot90", "pixel_shuffle",
    "pixel_unshuffle", "channel_shuffle", "unfold_copy", "im2col", "diag_embed",
)  # fmt: skip
def copied(call: Call) -> list[Kernel]:
    """One copy from the first input to the result."""
    return [move(call.inputs[0], call.outputs[0])]


@rule("copy_", "copy")
def copy_(call: Call) -> list[Kernel]:
    """The destination is written, not read."""
    return [move(call.inputs[-1], call.outputs[0])]


@rule(
    "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones",
    "new_full", "zero_", "fill_", "fill", "zero", "scalar_tensor", "eye", "tril_indices",
    "triu_indices",
)  # fmt: skip
def filled(call: Call) -> list[Kernel]:
    """One value written everywhere."""
    return [fill(call.outputs[0])]


@rule("cat", "concat", "concatenate", "_cat", "stack", "hstack", "vstack", "dstack")
def cat(call: Call) -> list[Kernel]:
    """One kernel for every `CAT_TENSORS` inputs; a launch writes what it reads."""
    out = call.outputs[0]
    parts = [tensor for tensor in call.inputs if tensor.elements]
    size = itemsize(out.dtype)
    kernels = []
    for first in range(0, len(parts), CAT_TENSORS):
        batch = parts[first : first + CAT_TENSORS]
        elements = sum(tensor.elements for tensor in batch)
        kernels.append(
            copy.kernel(
                elements, transposed=max(turned(tensor, out) for tensor in batch),
                precision=precision_of(out), itemsize=size,
                read=sum(map(unique_bytes, batch)), written=elements * size, name="cat",
            )
        )  # fmt: skip
    return kernels


@rule("constant_pad_nd", "_pad_enum", "pad")
def constant_pad(call: Call) -> list[Kernel]:
    """The result is filled, then the input is copied into it."""
    source, target = call.inputs[0], call.outputs[0]
    inner = source if source.elements <= target.elements else target
    return [fill(target), move(inner, Tensor(inner.shape, target.dtype))]


@rule(
    "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d",
    "replication_pad2d", "replication_pad3d",
)  # fmt: skip
def border_pad(call: Call) -> list[Kernel]:
    """Every result element is copied from the input."""
    return [move(call.inputs[0], call.outputs[0], "pad")]


@rule(
    "reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward",
    "replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward",
)  # fmt: skip
def border_pad_backward(call: Call) -> list[Kernel]:
    """Zeros of the input's shape, then every gradient added into its place."""
    return [fill(call.outputs[0]), move(call.inputs[0], call.inputs[0], "pad_backward")]


@rule("select_backward", "slice_backward", "diagonal_backward", "unfold_backward")
def view_backward(call: Call) -> list[Kernel]:
    """Zeros of the input's shape, with the gradient copied into its place."""
    gradient = call.inputs[0]
    return [fill(call.outputs[0]), move(gradient, Tensor(gradient.shape, gradient.dtype))]


@rule("select_scatter", "slice_scatter", "diagonal_scatter", "as_strided_scatter")
def view_scatter(call: Call) -> list[Kernel]:
    """A copy of the input with a part overwritten."""
    source, part = call.inputs[:2]
    return [move(source, call.outputs[0]), move(part, Tensor(part.shape, part.dtype))]


@rule("_local_scalar_dense", "item")
def to_host(call: Call) -> list[Kernel]:
    """One value copied to the host."""
    size = itemsize(call.inputs[0].dtype)
    return [copy.kernel(1, itemsize=size, name="copy_to_host")]


@rule("repeat_interleave")
def repeat_interleave(call: Call) -> list[Kernel]:
    """Copies of rows; with a tensor of counts the places are scanned first."""
    return [move(call.inputs[0], call.outputs[0], "repeat")]
