"""The one intermediate representation: operators in launch order over tensors.

Capture, blueprints and importers all make a `Graph`; every law prices the same one. Operator
names are PyTorch's ATen names without the overload (`aten.addmm`, `aten._softmax`,
`aten._foreach_add_`), because that is what eager PyTorch launches and what a trace records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import prod
from typing import Any

from tilecast.precision import itemsize


class Phase(StrEnum):
    """Part of a step that an operator belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


class Kind(StrEnum):
    """What a tensor is for: what a memory report groups by."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    INPUT = "input"
    ACTIVATION = "activation"
    GRADIENT = "gradient"
    OPTIMIZER_STATE = "optimizer_state"


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor value.

    Attributes:
        shape: sizes in elements.
        dtype: storage dtype by PyTorch's name (`float32`).
        strides: strides in elements, or None when contiguous (row-major).
        storage: id of the memory it lives in. Views and in-place results share their base's id.
        kind: what it is for.
        name: parameter or input name (`transformer.h.0.attn.c_attn.weight`); empty otherwise.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None
    storage: int = -1
    kind: Kind = Kind.ACTIVATION
    name: str = ""

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def bytes(self) -> float:
        """Bytes of its elements (not of its storage: a view may be smaller, or expanded)."""
        return self.elements * itemsize(self.dtype)


Scalar = int | float | bool | str | None
Attr = Scalar | tuple[Scalar, ...] | tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Op:
    """One framework operator as eager PyTorch dispatches it.

    Attributes:
        name: ATen name without overload (`aten.addmm`); other namespaces keep theirs.
        inputs: ids of its tensor arguments, in the schema's order (tensor lists flattened).
        outputs: ids of its tensor results (tensor lists flattened).
        attrs: its other arguments by schema name (`dim`, `keepdim`, `p`), sorted by name, where
            they change what runs or how long it takes.
        phase: forward, backward or optimizer.
        module: dotted path of the `nn.Module` that ran it (of its forward, for a backward op).
        stream: GPU stream it is queued on; 0 is the default stream.
    """

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attrs: tuple[tuple[str, Attr], ...] = ()
    phase: Phase = Phase.FORWARD
    module: str = ""
    stream: int = 0

    def attr(self, name: str, default: Any = None) -> Any:
        """Value of one attribute, or `default`."""
        for key, value in self.attrs:
            if key == name:
                return value
        return default


@dataclass(slots=True)
class Graph:
    """Operators in launch order and the tensors between them.

    Data edges are implicit: an op that lists a tensor id as input depends on the op that lists
    it as output, and on earlier writers of the same storage.

    Attributes:
        name: of the model.
        tensors: by id (the id is the position).
        ops: in the order in which the host issues them.
        saved: ids of tensors that autograd keeps from forward for backward.
        meta: how it was made (`mode`, `batch`, `seq`, `dtype`, `attention`, `source`, library
            versions): plain JSON values.
    """

    name: str = ""
    tensors: list[Tensor] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    saved: list[int] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)

    def add_tensor(self, tensor: Tensor) -> int:
        """Append a tensor and return its id; a storage of -1 gets an id of its own."""
        index = len(self.tensors)
        if tensor.storage < 0:
            tensor = Tensor(
                tensor.shape, tensor.dtype, tensor.strides, index, tensor.kind, tensor.name
            )
        self.tensors.append(tensor)
        return index

    def add_op(
        self,
        name: str,
        inputs: Iterable[int],
        outputs: Iterable[int],
        attrs: Mapping[str, Attr] | None = None,
        phase: Phase = Phase.FORWARD,
        module: str = "",
        stream: int = 0,
    ) -> Op:
        """Append an op in launch order and return it."""
        op = Op(
            name,
            tuple(inputs),
            tuple(outputs),
            tuple(sorted(attrs.items())) if attrs else (),
            phase,
            module,
            stream,
        )
        self.ops.append(op)
        return op

    def of_kind(self, kind: Kind) -> Iterator[Tensor]:
        """Tensors of one kind, each storage once (tied weights count once)."""
        seen: set[int] = set()
        for tensor in self.tensors:
            if tensor.kind is kind and tensor.storage not in seen:
                seen.add(tensor.storage)
                yield tensor

    @property
    def parameters(self) -> int:
        """Number of parameters, tied ones once."""
        return sum(tensor.elements for tensor in self.of_kind(Kind.PARAMETER))
