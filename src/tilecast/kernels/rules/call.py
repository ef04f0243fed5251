"""One dispatched operator as the rules see it, and the register of rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tilecast.kernels.foreach import SMALL_ARGUMENTS, Limits
from tilecast.kernels.table import Kernel
from tilecast.precision import PRECISION_OF, itemsize
from tilecast.workload.graph import Tensor


@dataclass(frozen=True, slots=True)
class Context:
    """What the whole graph decides about every operator.

    Attributes:
        matmul_fp32: precision of products of float32 operands (`fp32` or `tf32`).
        conv_fp32: the same for convolutions.
        weights: precision of products with weights that are stored narrower than the graph's
            tensors say ("" if none).
        limits: of multi-tensor launches.
    """

    matmul_fp32: str = "fp32"
    conv_fp32: str = "fp32"
    weights: str = ""
    limits: Limits = SMALL_ARGUMENTS


@dataclass(frozen=True, slots=True)
class Call:
    """One operator with its tensors.

    Attributes:
        name: ATen name without the namespace (`add_`); others keep theirs.
        inputs, outputs: tensors in schema order.
        attrs: other arguments by schema name.
        repeated: positions of inputs that are an earlier input again.
        context: of the graph.
        weight_inputs: positions of inputs that are parameters, where `context.weights` is set.
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attrs: Mapping[str, Any]
    repeated: frozenset[int] = frozenset()
    context: Context = field(default_factory=Context)
    weight_inputs: frozenset[int] = frozenset()

    def attr(self, name: str, default: Any = None) -> Any:
        """One attribute, or `default`."""
        return self.attrs.get(name, default)

    @property
    def read(self) -> float:
        """Unique bytes of all inputs."""
        return sum(
            unique_bytes(tensor)
            for position, tensor in enumerate(self.inputs)
            if position not in self.repeated
        )

    @property
    def written(self) -> float:
        """Unique bytes of all outputs."""
        return sum(unique_bytes(tensor) for tensor in self.outputs)

    @property
    def main(self) -> Tensor:
        """The tensor that the operator is about: its first output, else its first input."""
        return self.outputs[0] if self.outputs else self.inputs[0]


Rule = Callable[[Call], list[Kernel]]
RULES: Final[dict[str, Rule]] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for operators by name."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register


def strides_of(tensor: Tensor) -> tuple[int, ...]:
    """Strides in elements, those of a row-major tensor where none are given."""
    if tensor.strides is not None:
        return tensor.strides
    strides = []
    step = 1
    for size in reversed(tensor.shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def unique_elements(tensor: Tensor) -> int:
    """Elements that differ in memory: a dimension of stride 0 counts once."""
    if tensor.strides is None:
        return tensor.elements
    count = 1
    for size, stride in zip(tensor.shape, tensor.strides, strict=True):
        if stride or not size:
            count *= size
    return count


def unique_bytes(tensor: Tensor) -> float:
    """Bytes that a kernel reading the tensor needs from memory."""
    return unique_elements(tensor) * itemsize(tensor.dtype)


def fast_dim(tensor: Tensor) -> int | None:
    """Position, from the last dimension, of the one whose elements lie closest together."""
    if tensor.strides is None:
        for back, size in enumerate(reversed(tensor.shape), 1):
            if size > 1:
                return back
        return None
    closest = [
        (stride, back)
        for back, (size, stride) in enumerate(
            zip(reversed(tensor.shape), reversed(tensor.strides), strict=True), 1
        )
        if size > 1 and stride
    ]
    return min(closest)[1] if closest else None


def turned(source: Tensor, target: Tensor) -> int:
    """1 where two tensors of one shape differ in which dimension is contiguous."""
    first, second = fast_dim(source), fast_dim(target)
    return int(first is not None and second is not None and first != second)


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill their memory without gaps or overlap, in any order."""
    if tensor.strides is None:
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.strides, tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def base_name(name: str) -> str:
    """Name of the functional form: `add` for `add_`."""
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def precision_of(tensor: Tensor) -> str:
    """Precision that the dtype of a tensor implies (integers: fp32, see `vector_precision`)."""
    return PRECISION_OF.get(tensor.dtype, "fp64" if tensor.dtype == "complex128" else "fp32")
