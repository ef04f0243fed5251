"""What can be known about values although tensors have none.

Models look at data now and then (positions that start a new sequence, the experts that got a
token). Two things are known without data: integer tensors made from constants only, which are
computed alongside on the CPU, and how full a one-hot mask is, from which balanced routing follows.
"""

from __future__ import annotations

from math import inf
from types import TracebackType
from typing import Any

import torch

from tilecast.errors import InputError

#: Largest integer tensor that is computed alongside (a causal mask of 1024 tokens).
_LIMIT = 2**20

_FACTORIES = frozenset({
    "aten::arange", "aten::zeros", "aten::ones", "aten::full", "aten::scalar_tensor",
    "aten::tril_indices", "aten::triu_indices", "aten::eye",
})  # fmt: skip
#: Operators whose result is as full as their input, when experts share the tokens evenly.
_KEEP_FILL = frozenset({
    "aten::view", "aten::_unsafe_view", "aten::permute", "aten::transpose", "aten::t",
    "aten::select", "aten::index", "aten::squeeze", "aten::unsqueeze", "aten::clone",
    "aten::_to_copy", "aten::mul", "aten::bitwise_and", "aten::logical_and", "aten::gt",
    "aten::ne", "aten::expand", "aten::detach", "aten::alias", "aten::slice",
})  # fmt: skip
#: Of those, the ones that keep every element of a mask.
_WHOLE = frozenset({"aten::view", "aten::permute", "aten::transpose", "aten::_to_copy"})
#: Operators that turn boolean masks among their indices into positions.
_INDEXED = frozenset({"aten::index", "aten::index_put", "aten::index_put_"})
#: Operators that choose along a dimension: their indices stay below its size.
_CHOICES = frozenset({"aten::topk", "aten::argmax"})
_REDUCE_FILL = frozenset({"aten::sum", "aten::any"})


def _flat(values: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(item for item in value if isinstance(item, torch.Tensor))
    return found


def _is_mask(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)


def _key(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (
        tensor.untyped_storage()._cdata, tensor.storage_offset(), tuple(tensor.shape),
        tensor.stride(),
    )  # fmt: skip


class Values:
    """Integer values computed alongside, and the fill of one-hot masks."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], torch.Tensor] = {}
        self._fill: dict[tuple[Any, ...], float] = {}
        self._choices: dict[tuple[Any, ...], float] = {}
        #: (classes that can be chosen, choices made, most that a class takes) of one-hot masks.
        self._one_hot: dict[tuple[Any, ...], tuple[int, int, float]] = {}
        #: Of running counts over a one-hot mask: how many separate counts a class has.
        self._ranks: dict[tuple[Any, ...], int] = {}
        #: Of masks of choices within a capacity: the most that a class takes.
        self._capacity: dict[tuple[Any, ...], float] = {}
        #: Choices of each class, of masks that list classes first; and of one class.
        self._counts: dict[tuple[Any, ...], torch.Tensor] = {}
        self._count: dict[tuple[Any, ...], int] = {}
        self._keep: list[Any] = []  # storages, so that no address is used twice
        self._format: Any = None
        self.balanced = False  # whether balanced routing was assumed

    def __enter__(self) -> Values:
        """Let models print the values that are known, as they would on a GPU.

        Some pick a module by name from an index (`experts[f"expert_{i}"]`), and PyTorch formats a
        tensor without data as text about itself.
        """
        original = self._format = torch.Tensor.__format__

        def format_value(tensor: Any, spec: str) -> str:
            value = self._known.get(_key(tensor)) if tensor.is_meta else None
            return str(original(tensor if value is None else value, spec))

        torch.Tensor.__format__ = format_value
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        torch.Tensor.__format__ = self._format

    def set(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        """Say what a fake tensor holds (small integer and boolean tensors only)."""
        if not value.dtype.is_floating_point and not value.is_meta and value.numel() <= _LIMIT:
            self._remember(tensor, value.detach().cpu().clone())

    def _remember(self, tensor: torch.Tensor, value: torch.Tensor) -> None:
        self._keep.append(tensor.untyped_storage())
        self._known[_key(tensor)] = value

    def answer(self, func: Any, args: tuple[Any, ...]) -> Any:
        """Result of an operator that reads data, or None where the operator does not.

        Raises:
            InputError: it reads data that shapes alone do not tell.
        """
        name = func._schema.name
        if name == "aten::_local_scalar_dense" and args[0].is_meta:
            value = self._known.get(_key(args[0]))
            if value is None:
                raise InputError(
                    "capture: the model reads a tensor's value on the host (.item(), bool(), an "
                    "if on a tensor), which shapes alone do not tell"
                )
            return value.item()
        if name == "aten::nonzero" and args[0].is_meta:
            return self._nonzero(args[0])
        if name in _INDEXED and any(_is_mask(index) for index in args[1]):
            indices: list[Any] = []
            for index in args[1]:
                indices.extend(self._nonzero(index).unbind(1) if _is_mask(index) else [index])
            return func(args[0], indices, *args[2:])
        return None

    def _nonzero(self, mask: torch.Tensor) -> torch.Tensor:
        value = self._known.get(_key(mask))
        count = self._count.get(_key(mask))
        if value is None and count is not None:
            self.balanced = True
            return mask.new_empty((count, mask.dim()), dtype=torch.int64)
        if value is None:
            fill = self._fill.get(_key(mask))
            if fill is None:
                raise InputError(
                    "capture: the model selects elements by a mask (nonzero, boolean indexing), "
                    "and how many it selects depends on data; only one-hot expert routing is "
                    "known, as an even split"
                )
            self.balanced = True
            if fill < 1:
                rows = max(1, round(mask.numel() * fill))
                return mask.new_empty((rows, mask.dim()), dtype=torch.int64)
            value = torch.ones(mask.shape, dtype=torch.bool)
        indices = value.nonzero()
        result = mask.new_empty(indices.shape, dtype=torch.int64)
        self._remember(result, indices)
        return result

    def note(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        """Follow one operator whose result is of integers or booleans."""
        results = _flat([result])
        if not results or not results[0].is_meta:
            return
        name = func._schema.name
        operands = [t for t in _flat(args) + _flat(kwargs.values()) if t.is_meta]
        floating = results[0].dtype.is_floating_point and name not in _CHOICES
        if floating and operands and not self._holds(operands):
            return
        values = [self._known.get(_key(t)) for t in operands]
        small = all(t.numel() <= _LIMIT for t in results)
        if small and all(v is not None for v in values) and (operands or name in _FACTORIES):
            self._compute(func, args, kwargs, results)
            return
        if func._schema.is_mutable:
            self._forget(results)
        for tensor in results:
            self._keep.append(tensor.untyped_storage())
            if name in _CHOICES and not tensor.dtype.is_floating_point:
                dim = args[2] if name == "aten::topk" and len(args) > 2 else -1
                self._choices[_key(tensor)] = operands[0].shape[dim]
            elif name in _KEEP_FILL:
                self._pass_on(self._choices, operands, tensor)
                self._pass_on(self._fill, operands, tensor)
                self._pass_choices(name, args, operands, tensor)
            elif name in _REDUCE_FILL:
                self._pass_on(
                    self._fill, operands, tensor, operands[0].numel() / max(1, tensor.numel())
                )
                self._count_choices(operands[0], tensor)
            elif name == "aten::cumsum" and _key(operands[0]) in self._one_hot:
                classes = operands[0].shape[-1]
                self._ranks[_key(tensor)] = tensor.numel() // classes // tensor.shape[args[1]]
            elif name == "aten::le" and _key(operands[0]) in self._ranks and len(operands) == 1:
                self._capacity[_key(tensor)] = self._ranks[_key(operands[0])] * float(args[1])
            elif name == "aten::scatter_" and len(operands) == 2 and operands[0].numel():
                one_hot, index = operands
                # A class that no choice can take (a sentinel) is left out of the average.
                classes = self._choices.get(_key(index), one_hot.shape[-1])
                rows = one_hot.numel() / one_hot.shape[-1]
                self._fill[_key(tensor)] = min(1.0, index.numel() / max(1.0, rows * classes))
                self._one_hot[_key(tensor)] = (int(classes), index.numel(), inf)

    @staticmethod
    def _pass_on(
        known: dict[tuple[Any, ...], float], operands: list[torch.Tensor], result: torch.Tensor,
        factor: float = 1,
    ) -> None:  # fmt: skip
        found = [known[_key(t)] for t in operands if _key(t) in known]
        if found:
            known[_key(result)] = min(found) if factor == 1 else min(1.0, min(found) * factor)

    def _count_choices(self, one_hot: torch.Tensor, result: torch.Tensor) -> None:
        """Know how often each class was chosen, once a mask is summed to one number a class.

        Classes share the choices evenly; the first ones get what is left over. A class that no
        choice can take (a sentinel after the others) gets none.
        """
        classes, choices, most = self._one_hot.get(_key(one_hot), (0, 0, inf))
        if classes and result.dim() == 1 and result.shape[0] - classes in (0, 1):
            share, more = divmod(choices, classes)
            counts = torch.full(result.shape, share, dtype=torch.int64)
            counts[:more] += 1
            counts[classes:] = 0
            if most < share + 1:
                counts.clamp_(max=int(most))
            self._remember(result, counts.to(result.dtype))
            if one_hot.shape[0] == result.shape[0]:
                self._counts[_key(one_hot)] = counts

    def _pass_choices(
        self, name: str, args: Any, operands: list[torch.Tensor], result: torch.Tensor
    ) -> None:
        """Follow a one-hot mask to the part of it that is one class's."""
        if not operands:
            return
        source = _key(operands[0])
        if name in _WHOLE and source in self._one_hot:
            self._one_hot[_key(result)] = self._one_hot[source]
        elif name == "aten::mul" and source in self._one_hot and len(operands) == 2:
            classes, choices, most = self._one_hot[source]
            most = min(most, self._capacity.get(_key(operands[1]), inf))
            self._one_hot[_key(result)] = classes, choices, most
        elif name in ("aten::select", "aten::index") and source in self._counts:
            place = args[2] if name == "aten::select" and args[1] == 0 else None
            if name == "aten::index" and len(args[1]) == 1 and args[1][0].numel() == 1:
                known = self._known.get(_key(args[1][0]))
                place = None if known is None else int(known)
            if place is not None:
                self._count[_key(result)] = int(self._counts[source][place])
        elif name == "aten::squeeze" and source in self._count:
            self._count[_key(result)] = self._count[source]

    def _holds(self, tensors: list[torch.Tensor]) -> bool:
        return any(_key(t) in self._known for t in tensors)

    def _forget(self, tensors: list[torch.Tensor]) -> None:
        storages = {t.untyped_storage()._cdata for t in tensors}
        for key in [key for key in self._known if key[0] in storages]:
            del self._known[key]

    def _compute(
        self, func: Any, args: Any, kwargs: dict[str, Any], results: list[torch.Tensor]
    ) -> None:
        def real(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return self._known[_key(value)] if value.is_meta else value
            if isinstance(value, torch.device):
                return torch.device("cpu")
            if isinstance(value, (list, tuple)):
                return type(value)(map(real, value))
            return value

        try:
            computed = _flat([func(*map(real, args), **{k: real(v) for k, v in kwargs.items()})])
        except (RuntimeError, IndexError, KeyError):  # no CPU kernel for it: the value is unknown
            self._forget(results)
            return
        for tensor, value in zip(results, computed, strict=True):
            self._remember(tensor, value)
