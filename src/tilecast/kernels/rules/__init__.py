"""What each ATen operator becomes on a GPU: one file for each kind of operator."""

from __future__ import annotations

from tilecast.kernels.rules import (
    attention,
    convolutions,
    copies,
    foreach,
    indexing,
    norms,
    pointwise,
    products,
    reductions,
    sorting,
)
from tilecast.kernels.rules.call import RULES, Call, Context, Rule

__all__ = [
    "NO_KERNEL", "RULES", "VIEW_OR_COPY", "Call", "Context", "Rule",
    # imported for the rules that they register
    "attention", "convolutions", "copies", "foreach", "indexing", "norms", "pointwise", "products",
    "reductions", "sorting",
]  # fmt: skip

#: Operators that only make tensors or views of them, or run on the host.
NO_KERNEL = frozenset({
    "view", "_unsafe_view", "unsafe_view", "_reshape_alias", "view_as", "expand", "expand_as", "t",
    "transpose", "transpose_", "t_", "permute", "numpy_T", "mT", "mH", "adjoint", "swapaxes",
    "swapdims", "movedim", "select", "slice", "split", "split_with_sizes", "chunk", "unbind",
    "unsafe_split", "unsafe_chunk", "unsafe_split_with_sizes", "tensor_split", "narrow",
    "unsqueeze", "unsqueeze_", "squeeze", "squeeze_", "unflatten", "unfold", "diagonal",
    "as_strided", "as_strided_", "detach", "detach_", "alias", "view_as_real", "view_as_complex",
    "real", "imag", "_conj", "_neg_view", "resolve_conj", "resolve_neg", "lift_fresh", "lift",
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted",
    "_efficientzerotensor", "resize_", "resize_as_", "set_", "set_data", "requires_grad_",
    "is_same_size", "sym_size", "sym_stride", "sym_numel", "sym_storage_offset", "size", "stride",
    "numel", "_version", "result_type", "can_cast", "is_pinned", "record_stream",
    "_has_compatible_shallow_copy_type", "_assert_async", "_assert_tensor_metadata",
    "_functional_assert_async", "slice_inverse", "_nested_view_from_buffer", "_values",
    "_local_tensor", "_unwrap_tensor", "sym_constrain_range", "_print",
})  # fmt: skip

#: Operators whose result is a view of their first input where its strides allow, else a copy.
VIEW_OR_COPY = frozenset({
    "reshape", "reshape_as", "contiguous", "flatten", "ravel", "to", "type_as",
})  # fmt: skip
