"""The parts of a step around the model: loss, backward and optimizer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn import functional as F

from tilecast.errors import InputError, UnknownNameError

#: Optimizers by the name that `--optimizer` takes, with PyTorch's defaults. All run their
#: multi-tensor (`foreach`) form, which PyTorch picks on CUDA by default.
OPTIMIZERS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"lr": 1e-3}),
    "sgd-momentum": ("SGD", {"lr": 1e-3, "momentum": 0.9}),
    "adam": ("Adam", {}),
    "adamw": ("AdamW", {}),
    "adagrad": ("Adagrad", {}),
    "adamax": ("Adamax", {}),
    "nadam": ("NAdam", {}),
    "radam": ("RAdam", {}),
    "rmsprop": ("RMSprop", {}),
}


def make_optimizer(name: str, parameters: Iterable[Any]) -> Any:
    """A multi-tensor PyTorch optimizer, or None for `none`.

    Raises:
        UnknownNameError: no such optimizer.
    """
    if name == "none":
        return None
    check_optimizer(name)
    cls, options = OPTIMIZERS[name]
    return getattr(torch.optim, cls)(list(parameters), foreach=True, **options)


def check_optimizer(name: str) -> None:
    """Refuse an optimizer that is not known.

    Raises:
        UnknownNameError: no such optimizer.
    """
    if name != "none" and name not in OPTIMIZERS:
        raise UnknownNameError("optimizer", name, ("none", *OPTIMIZERS))


def outputs_in(output: Any) -> list[tuple[str, torch.Tensor]]:
    """Floating-point tensors of a model's result, with their names where it has any."""
    if isinstance(output, torch.Tensor):
        return [("", output)] if output.is_floating_point() else []
    pairs: Iterable[tuple[Any, Any]]
    if hasattr(output, "items"):
        pairs = output.items()
    elif isinstance(output, (list, tuple)):
        pairs = (("", value) for value in output)
    else:
        pairs = vars(output).items() if hasattr(output, "__dict__") else ()
    found: list[tuple[str, torch.Tensor]] = []
    for name, value in pairs:
        inner = outputs_in(value) if isinstance(value, (torch.Tensor, list, tuple, dict)) else []
        found.extend((str(name), tensor) for _, tensor in inner)
    return found


def logits_of(output: Any) -> torch.Tensor:
    """What a cross-entropy is taken of: the output named logits, or else the first one.

    Raises:
        InputError: the model returns no floating-point tensor.
    """
    found = outputs_in(output)
    if not found:
        raise InputError("--loss: the model returns no floating-point tensor")
    for name, tensor in found:
        if name == "logits":
            return tensor
    for name, tensor in found:
        if name.endswith("logits"):
            return tensor
    return found[0][1]


def own_loss_of(output: Any) -> torch.Tensor:
    """The loss that a model computes itself: its `loss`, or its result where that is a scalar.

    Raises:
        InputError: it returns none.
    """
    for name, tensor in outputs_in(output):
        if name == "loss" or (isinstance(output, torch.Tensor) and tensor.dim() == 0):
            return tensor
    raise InputError("--loss model: the model returns no loss")


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of logits (..., classes) against labels (positions,)."""
    if logits.dim() == 0:
        raise InputError("--loss cross-entropy: the model returns a scalar, expected logits")
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels)
