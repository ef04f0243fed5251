"""Records the ATen operators that a run dispatches, with their tensors and data edges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tilecast.workload.capture.scopes import Scopes
from tilecast.workload.capture.values import Values
from tilecast.workload.graph import Attr, Graph, Kind, Op, Phase, Tensor

#: Arguments of ATen schemas that change what a GPU runs or for how long. Everything else (epsilons,
#: scalars, devices, memory formats) shows in the shapes, dtypes and strides or changes nothing.
KEPT_ATTRS = frozenset({
    "dim", "dims", "dim0", "dim1", "keepdim", "correction", "normalized_shape", "stride", "padding",
    "dilation", "transposed", "output_padding", "groups", "kernel_size", "ceil_mode",
    "count_include_pad", "output_size", "output_mask", "train", "training", "p", "dropout_p",
    "is_causal", "scale", "compute_log_sumexp", "compute_logsumexp", "half_to_float",
    "approximate", "reduction", "padding_idx", "num_weights", "accumulate", "k", "largest",
    "sorted", "descending", "exponent", "ord", "split_size", "split_sizes", "chunks", "start",
    "end", "step", "index", "N", "C", "HxW", "group", "num_groups", "align_corners",
    "bidirectional", "num_layers", "hidden_size", "batch_first", "mode", "window_size_left",
    "window_size_right",
})  # fmt: skip

#: Namespace of Tilecast's own stand-ins for ATen operators that have no shape function.
STAND_IN = "tilecast."

Key = tuple[int, int, Any, Any, torch.dtype]


@dataclass(frozen=True, slots=True)
class _Argument:
    """One argument of an operator's schema."""

    name: str
    written: bool
    kept: bool
    default: Any


@dataclass(frozen=True, slots=True)
class _Schema:
    """What the recorder needs of an operator's schema."""

    name: str
    arguments: tuple[_Argument, ...]
    fresh_results: tuple[bool, ...]
    writes: bool


def _read_schema(func: Any) -> _Schema:
    schema = func._schema
    name = schema.name.replace("::", ".")
    if name.startswith(STAND_IN):
        name = "aten." + name.removeprefix(STAND_IN)
    arguments = tuple(
        _Argument(
            a.name,
            a.alias_info is not None and a.alias_info.is_write,
            a.name in KEPT_ATTRS,
            a.default_value,
        )
        for a in schema.arguments
    )
    fresh = tuple(r.alias_info is None or not r.alias_info.is_write for r in schema.returns)
    return _Schema(name, arguments, fresh, any(a.written for a in arguments))


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Tensors of one operator argument or result: itself, or the members of a list."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            if isinstance(item, torch.Tensor):
                yield item


def _attr(value: Any) -> Attr:
    if isinstance(value, (list, tuple)):
        return tuple(item if isinstance(item, (bool, str)) else int(item) for item in value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value).removeprefix("torch.")


def key_of(tensor: torch.Tensor) -> Key:
    """What identifies a tensor value: its memory and how it is laid out there.

    Autograd hands back saved tensors as new Python objects, so object identity would not do.
    """
    return (
        tensor.untyped_storage()._cdata,
        tensor.storage_offset(),
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
    )


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """A dispatch mode that writes every operator on fake GPU tensors into a graph.

    Attributes:
        phase: phase that operators are recorded under.
        paused: True while operators run without being recorded.
    """

    def __init__(self, scopes: Scopes, values: Values) -> None:
        super().__init__()
        self.phase = Phase.FORWARD
        self.paused = False
        self._scopes = scopes
        self._values = values
        self._ops: list[Op] = []
        self._tensors: list[tuple[tuple[int, ...], str, tuple[int, ...] | None, int]] = []
        self._ids: dict[Key, int] = {}
        # The storage objects are kept alive so that no address is used twice.
        self._storages: dict[int, tuple[Any, int]] = {}
        self._kinds: dict[int, Kind] = {}
        self._names: dict[int, str] = {}
        self._saved: dict[int, None] = {}
        self._schemas: dict[Any, _Schema] = {}

    def declare(self, tensor: torch.Tensor, kind: Kind, name: str = "") -> None:
        """Register a tensor that exists before the run (a second name for it is ignored)."""
        if not tensor.is_meta or key_of(tensor) in self._ids:
            return
        index = self._new_id(tensor)
        self._names[index] = name
        self._kinds.setdefault(self._tensors[index][3], kind)

    def set_kind(self, tensor: torch.Tensor, kind: Kind) -> None:
        """Say what the memory of a tensor is for, after the run that made it."""
        root = self._storages.get(tensor.untyped_storage()._cdata)
        if root is not None:
            self._kinds[root[1]] = kind

    def save(self, tensor: torch.Tensor) -> torch.Tensor:
        """Pack hook of autograd: note a tensor that it keeps for backward."""
        if tensor.is_meta and not self.paused and self.phase is Phase.FORWARD:
            index = self._id(tensor)
            # Saving a result makes autograd detach it, which only a dispatch mode sees as an op.
            if self._ops and self._ops[-1].name == "aten.detach":
                (source,), (copy,) = self._ops[-1].inputs, self._ops[-1].outputs
                if copy == index == len(self._tensors) - 1:
                    self._ops.pop()
                    self._tensors.pop()
                    self._ids[key_of(tensor)] = index = source
            self._saved[index] = None
        return tensor

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.paused:
            result = self._values.answer(func, args)
            if result is None:
                result = func(*args, **kwargs)
            self._values.note(func, args, kwargs, result)
            return result
        schema = self._schemas.get(func)
        if schema is None:
            schema = self._schemas[func] = _read_schema(func)
        node = torch._C._current_autograd_node()
        module = self._scopes.of(node)
        if schema.name == "aten.detach" and node is not None and not self._scopes.accumulates(node):
            # Unpacking a saved result, which only a dispatch mode sees as an op.
            return func(*args, **kwargs)
        inputs, written, attrs = self._arguments(schema, args, kwargs)
        result = self._values.answer(func, args)
        if result is None:
            result = func(*args, **kwargs)
        outputs = [self._new_id(tensor) for tensor in written]
        results = result if isinstance(result, (list, tuple)) else (result,)
        if not (schema.writes and len(schema.fresh_results) == 1 and not schema.fresh_results[0]):
            fresh = (
                schema.fresh_results
                if len(schema.fresh_results) == len(results)
                else (True,) * len(results)
            )
            for value, is_fresh in zip(results, fresh, strict=True):
                if is_fresh:
                    outputs.extend(self._new_id(t) for t in tensors_in(value) if t.is_meta)
        if inputs or outputs:  # otherwise it ran on the host
            self._ops.append(
                Op(
                    schema.name, tuple(inputs), tuple(outputs), tuple(sorted(attrs)), self.phase,
                    module,
                )
            )  # fmt: skip
        self._values.note(func, args, kwargs, result)
        return result

    def _arguments(
        self, schema: _Schema, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[int], list[torch.Tensor], list[tuple[str, Attr]]]:
        inputs: list[int] = []
        written: list[torch.Tensor] = []
        attrs: list[tuple[str, Attr]] = []
        given = len(args)
        for position, argument in enumerate(schema.arguments):
            if position < given:
                value = args[position]
            else:
                value = kwargs.get(argument.name, argument.default)
            if isinstance(value, torch.Tensor) or (
                isinstance(value, (list, tuple))
                and any(isinstance(item, torch.Tensor) for item in value)
            ):
                for tensor in tensors_in(value):
                    if tensor.is_meta:
                        inputs.append(self._id(tensor))
                        if argument.written:
                            written.append(tensor)
            elif argument.kept and value is not None:
                attrs.append((argument.name, _attr(value)))
        return inputs, written, attrs

    def _id(self, tensor: torch.Tensor) -> int:
        index = self._ids.get(key_of(tensor))
        if index is None:
            index = self._new_id(tensor)
            # Nobody declared it and no op made it: the run reads it from outside.
            root = self._tensors[index][3]
            if root == index:
                self._kinds.setdefault(root, Kind.INPUT)
        return index

    def _new_id(self, tensor: torch.Tensor) -> int:
        key = key_of(tensor)
        index = len(self._tensors)
        known = self._storages.get(key[0])
        if known is None:
            self._storages[key[0]] = known = (tensor.untyped_storage(), index)
        strides = None if tensor.is_contiguous() else tuple(key[3])
        dtype = str(tensor.dtype).removeprefix("torch.")
        self._tensors.append((tuple(key[2]), dtype, strides, known[1]))
        self._ids[key] = index
        return index

    def graph(self, name: str, meta: dict[str, Any]) -> Graph:
        """The graph of what was recorded so far."""
        kinds = self._kinds
        tensors = [
            Tensor(
                shape, dtype, strides, root, kinds.get(root, Kind.ACTIVATION),
                self._names.get(index, ""),
            )
            for index, (shape, dtype, strides, root) in enumerate(self._tensors)
        ]  # fmt: skip
        return Graph(name, tensors, self._ops, list(self._saved), meta)


def declare_all(
    recorder: Recorder, named: Iterable[tuple[str, Any]], kind: Kind | Callable[[Any], Kind]
) -> None:
    """Register the tensors of (name, tensor) pairs; anything that is no tensor is passed over."""
    for name, tensor in named:
        if isinstance(tensor, torch.Tensor):
            recorder.declare(tensor, kind if isinstance(kind, Kind) else kind(tensor), name)


def elements(shape: Iterable[int]) -> int:
    """Number of elements of a shape."""
    return prod(shape)
