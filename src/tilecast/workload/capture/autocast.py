"""Automatic mixed precision as CUDA applies it, for fake tensors.

PyTorch's autocast casts CUDA tensors only. Its operator list is read from the installed version
(every operator registered for autocast on CUDA); the policy of each is that of the Autocast Op
Reference in PyTorch's documentation.
"""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import Any

import torch

_KEY = torch._C.DispatchKey.AutocastCUDA
#: Run in the autocast dtype.
LOWER = frozenset({
    "_convolution", "_scaled_dot_product_flash_attention", "_thnn_fused_gru_cell",
    "_thnn_fused_lstm_cell", "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "chain_matmul",
    "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "convolution", "cudnn_convolution", "cudnn_convolution_transpose",
    "einsum", "gru_cell", "linalg_multi_dot", "linalg_vecdot", "linear", "lstm_cell", "matmul",
    "mm", "mv", "prelu", "rnn_relu_cell", "rnn_tanh_cell", "scaled_dot_product_attention",
})  # fmt: skip
#: Run in the widest dtype of their inputs.
PROMOTE = frozenset({
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "grid_sampler", "index_put",
    "scatter_add", "tensordot", "vdot",
})  # fmt: skip
#: Take their inputs as they are and compute in fp32 through their `dtype` argument.
SET_DTYPE = frozenset({
    "cumprod", "cumsum", "linalg_matrix_norm", "linalg_vector_norm", "log_softmax", "prod",
    "softmax", "sum",
})  # fmt: skip
#: Every other operator on the list casts its inputs to fp32.


class Autocast:
    """Casts the inputs of fake tensors' operators while it is entered, as `torch.autocast` would.

    Casts of parameters are made once and kept until it is left, as PyTorch caches them.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._cache: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._library: Any = None
        self._guard: Any = None
        self._before: tuple[bool, torch.dtype] | None = None

    def __enter__(self) -> Autocast:
        self._library = torch.library.Library("aten", "IMPL")
        names = torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the point is to replace PyTorch's CUDA-only kernels
            for full in names:
                if not full.startswith("aten::"):
                    continue
                name = full.removeprefix("aten::")
                packet, _, overload = name.partition(".")
                func = getattr(getattr(torch.ops.aten, packet), overload or "default")
                self._library.impl(name, self._policy(packet, func), "AutocastCUDA")
        self._before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", self._dtype)
        self._guard = torch._C._IncludeDispatchKeyGuard(_KEY)
        self._guard.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._guard.__exit__(kind, error, trace)
        if self._before is not None:
            torch.set_autocast_enabled("cuda", self._before[0])
            torch.set_autocast_dtype("cuda", self._before[1])
        self._library._destroy()
        self._cache.clear()

    def _policy(self, packet: str, func: Any) -> Any:
        disabled = torch._C.DispatchKeySet(_KEY)
        takes_dtype = any(a.name == "dtype" for a in func._schema.arguments)

        def run(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(disabled):
                if packet in SET_DTYPE and takes_dtype:
                    halves = any(_is_half(a) for a in args)
                    if halves and kwargs.get("dtype") is None:
                        kwargs["dtype"] = torch.float32
                        args = _without_dtype(func, args)
                    return func(*args, **kwargs)
                if packet in LOWER:
                    target = self._dtype
                elif packet in PROMOTE:
                    wide = any(getattr(a, "dtype", None) == torch.float32 for a in args)
                    target = torch.float32 if wide else self._dtype
                else:
                    target = torch.float32
                return func(
                    *(self._cast(a, target) for a in args),
                    **{k: self._cast(v, target) for k, v in kwargs.items()},
                )

        return run

    def _cast(self, value: Any, dtype: torch.dtype) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(self._cast(item, dtype) for item in value)
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        if value.dtype == dtype or value.dtype == torch.float64:
            return value
        if not (value.is_leaf and value.requires_grad and dtype == self._dtype):
            return value.to(dtype)
        known = self._cache.get(id(value))
        if known is None:
            known = self._cache[id(value)] = (value, value.to(dtype))
        return known[1]


def _is_half(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16)


def _without_dtype(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Positional arguments without a `dtype` of None among them."""
    position = next(i for i, a in enumerate(func._schema.arguments) if a.name == "dtype")
    return args[:position]
