"""What eager PyTorch dispatches on CUDA where fake tensors would dispatch something else.

Capture runs on meta tensors, which take the generic path of every operator. On CUDA a few
composite operators pick a fused kernel instead. This file is the whole list:

====================================  ==========================================================
operator                              on CUDA
====================================  ==========================================================
`dropout`                             `native_dropout` for 0 < p < 1
`scaled_dot_product_attention`        flash, memory-efficient or math, by PyTorch's own conditions
`batch_norm`                          `cudnn_batch_norm` where cuDNN takes it
`softmax`, `log_softmax` to fp32      one kernel from fp16 (`half_to_float`), no copy before it
`rms_norm`                            `_fused_rms_norm` (PyTorch 2.9 and later)
`one_hot`                             zeros and a scatter
====================================  ==========================================================

Each replacement is registered for fake tensors only (the `AutogradMeta` dispatch key) and only
while a capture runs, so calls from C++ (attention inside `nn.MultiheadAttention`) see it as well.
The conditions are those of PyTorch's `ATen/native` sources (Dropout.cpp, Normalization.cpp,
SoftMax.cpp, layer_norm.cpp, Onehot.cpp, transformers/cuda/sdp_utils.cpp) for an sm_80 GPU or later.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch

aten = torch.ops.aten

#: Largest head dimension of PyTorch's flash attention kernels.
FLASH_MAX_HEAD_DIM = 256
#: Largest batch that cuDNN's batch norm takes in inference (per-activation grid limit).
CUDNN_MAX_BATCH = {True: 880801, False: 65535}
#: Smallest epsilon that cuDNN's batch norm takes.
CUDNN_MIN_EPSILON = 1e-5

_HALVES = (torch.float16, torch.bfloat16)
_stand_ins: torch.library.Library | None = None


class CudaOperators:
    """Makes fake tensors dispatch what CUDA tensors dispatch while it is entered.

    Args:
        attention: `auto`, `sdpa` (PyTorch's choice), `flash` (that or an error) or `eager` (math).
        dropout: False turns every dropout off, as `p=0` would.
    """

    def __init__(self, attention: str = "auto", dropout: bool = True) -> None:
        self._attention = attention
        self._dropout = dropout
        self._library: Any = None
        #: Attention back ends that were chosen, for `graph.meta`.
        self.backends: set[str] = set()

    def __enter__(self) -> CudaOperators:
        _define_stand_ins()
        self._library = torch.library.Library("aten", "IMPL")
        replacements: dict[str, Callable[..., Any]] = {
            "dropout": self._native_dropout,
            "scaled_dot_product_attention": self._attend,
            "batch_norm": _batch_norm,
            "softmax.int": _softmax(aten.softmax.int, aten._softmax),
            "log_softmax.int": _softmax(aten.log_softmax.int, aten._log_softmax),
            "one_hot": _one_hot,
        }
        if hasattr(aten, "_fused_rms_norm"):
            replacements["rms_norm"] = _rms_norm
        if not self._dropout:
            for name in ("dropout_", "feature_dropout", "feature_dropout_", "alpha_dropout",
                         "alpha_dropout_", "feature_alpha_dropout",
                         "feature_alpha_dropout_"):  # fmt: skip
                replacements[name] = _no_dropout
        for name, replacement in replacements.items():
            self._library.impl(name, replacement, "AutogradMeta")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._library._destroy()

    def _native_dropout(self, input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
        if not self._dropout or p == 0 or not train:
            return input
        if p == 1:
            return input * torch.zeros_like(input)
        return torch.native_dropout(input, p, True)[0]

    def _attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
        attn_mask: torch.Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
        *, scale: float | None = None, enable_gqa: bool = False,
    ) -> torch.Tensor:  # fmt: skip
        if not self._dropout:
            dropout_p = 0.0
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            minus_infinity = torch.scalar_tensor(
                float("-inf"), dtype=query.dtype, device=query.device
            )
            attn_mask = torch.where(attn_mask, 0.0, minus_infinity)
        backend = self._backend(query, key, value, attn_mask, is_causal, enable_gqa)
        self.backends.add(backend)
        if backend == "flash":
            return _flash(query, key, value, dropout_p, is_causal, scale)
        if backend == "efficient":
            return _efficient(query, key, value, attn_mask, dropout_p, is_causal, scale)
        return aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )[0]

    def _backend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
        mask: torch.Tensor | None, is_causal: bool, enable_gqa: bool,
    ) -> str:  # fmt: skip
        if self._attention == "eager" or not query.dim() == key.dim() == value.dim() == 4:
            return "math"
        if any(t.stride(-1) != 1 and t.shape[-1] != 1 for t in (query, key, value)):
            return "math"
        head_dim = query.shape[-1]
        same_heads = query.shape[1] == key.shape[1] == value.shape[1]
        flash = (
            query.dtype in _HALVES
            and mask is None
            and head_dim == key.shape[-1] == value.shape[-1]
            and head_dim <= FLASH_MAX_HEAD_DIM
            and not (is_causal and query.shape[2] != key.shape[2])
            and (same_heads or (enable_gqa and query.shape[1] % key.shape[1] == 0))
        )
        if flash:
            return "flash"
        alignment = 16 // query.element_size()
        efficient = (
            query.dtype in (torch.float32, *_HALVES)
            and same_heads
            and head_dim == key.shape[-1]
            and head_dim % alignment == 0
            and value.shape[-1] % alignment == 0
        )
        return "efficient" if efficient else "math"


def _flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout_p: float,
    is_causal: bool, scale: float | None,
) -> torch.Tensor:  # fmt: skip
    head_dim = query.shape[-1]
    if scale is None:
        scale = head_dim**-0.5
    excess = -head_dim % 8
    if excess:  # the kernels take multiples of 8
        query, key, value = (torch.nn.functional.pad(t, (0, excess)) for t in (query, key, value))
    output = aten._scaled_dot_product_flash_attention(
        query, key, value, dropout_p, is_causal, False, scale=scale
    )[0]
    return output[..., :head_dim] if excess else output


def _efficient(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None,
    dropout_p: float, is_causal: bool, scale: float | None,
) -> torch.Tensor:  # fmt: skip
    if mask is not None:
        length = mask.shape[-1]
        if length != 1 and length % 8:  # rows of the bias must be aligned
            mask = torch.nn.functional.pad(mask, (0, -length % 8))[..., :length]
        mask = mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    keeps_logsumexp = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    return aten._scaled_dot_product_efficient_attention(
        query, key, value, mask, keeps_logsumexp, dropout_p, is_causal, scale=scale
    )[0]


def _batch_norm(
    input: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None,
    running_mean: torch.Tensor | None, running_var: torch.Tensor | None, training: bool,
    momentum: float, eps: float, cudnn_enabled: bool,
) -> torch.Tensor:  # fmt: skip
    statistics = (running_mean is not None, running_var is not None)
    takes = (
        weight is not None
        and bias is not None
        and input.dtype in (torch.float32, torch.float16, torch.float64)
        and (input.dtype != torch.float16 or weight.dtype == torch.float32)
        and (all(statistics) or (not any(statistics) and training))
        and input.dim() >= 3
        and input.shape[0] <= CUDNN_MAX_BATCH[training]
        and eps >= CUDNN_MIN_EPSILON
        and cudnn_enabled
        and input.numel() < 2**31
    )
    if takes:
        return aten.cudnn_batch_norm(
            input, weight, bias, running_mean, running_var, training, momentum, eps
        )[0]
    return aten.native_batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps
    )[0]


def _softmax(composite: Any, kernel: Any) -> Callable[..., torch.Tensor]:
    def softmax(input: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        if input.dtype == torch.float16 and dtype == torch.float32:
            return kernel(input, dim, True)
        return composite.decompose(input, dim, dtype)

    return softmax


def _one_hot(input: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    if num_classes < 0:  # as many as the largest value tells
        num_classes = int(input.max().item()) + 1
    zeros = torch.zeros((*input.shape, num_classes), dtype=torch.int64, device=input.device)
    return zeros.scatter_(-1, input.unsqueeze(-1), 1)


def _no_dropout(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    return input


def _rms_norm(
    input: torch.Tensor, normalized_shape: list[int], weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:  # fmt: skip
    if weight is not None and weight.dtype != input.dtype:
        return aten.rms_norm.default.decompose(input, normalized_shape, weight, eps)
    return torch.ops.tilecast._fused_rms_norm(input, normalized_shape, weight, eps)[0]


def _define_stand_ins() -> None:
    """Stand-ins for fused operators that PyTorch gives no shape function; recorded as `aten.*`."""
    global _stand_ins
    if _stand_ins is not None:
        return
    library = _stand_ins = torch.library.Library("tilecast", "DEF")
    library.define(
        "_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float? eps)"
        " -> (Tensor, Tensor)"
    )
    library.define(
        "_fused_rms_norm_backward(Tensor grad_out, Tensor input, int[] normalized_shape,"
        " Tensor rstd, Tensor? weight, bool[2] output_mask) -> (Tensor, Tensor)"
    )

    def forward(
        input: torch.Tensor, normalized_shape: list[int], weight: Any, eps: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rows = input.shape[: input.dim() - len(normalized_shape)]
        rstd = input.new_empty((*rows, *[1] * len(normalized_shape)), dtype=torch.float32)
        return torch.empty_like(input, memory_format=torch.contiguous_format), rstd

    def backward(
        grad_out: torch.Tensor, input: torch.Tensor, normalized_shape: list[int],
        rstd: torch.Tensor, weight: Any, output_mask: list[bool],
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        return torch.empty_like(input), input.new_empty(tuple(normalized_shape))

    def save(ctx: Any, inputs: Any, output: Any) -> None:
        input, normalized_shape, weight, _ = inputs
        ctx.save_for_backward(input, weight, output[1])
        ctx.normalized_shape = normalized_shape

    def differentiate(ctx: Any, grad: torch.Tensor, _: Any) -> tuple[Any, ...]:
        input, weight, rstd = ctx.saved_tensors
        wanted = [ctx.needs_input_grad[0], weight is not None and ctx.needs_input_grad[2]]
        grads = torch.ops.tilecast._fused_rms_norm_backward(
            grad, input, ctx.normalized_shape, rstd, weight, wanted
        )
        return grads[0] if wanted[0] else None, None, grads[1] if wanted[1] else None, None

    library.impl("_fused_rms_norm", forward, "Meta")
    library.impl("_fused_rms_norm_backward", backward, "Meta")
    torch.library.register_autograd(
        "tilecast::_fused_rms_norm", differentiate, setup_context=save, lib=library
    )
