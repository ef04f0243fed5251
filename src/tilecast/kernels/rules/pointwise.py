"""Elementwise operators: one kernel each, over operands that may be broadcast."""

from __future__ import annotations

from typing import Final

from tilecast.kernels import elementwise, reduction
from tilecast.kernels.elementwise import GELU_TANH, OPERATIONS
from tilecast.kernels.formula import vector_precision
from tilecast.kernels.rules.call import Call, base_name, precision_of, rule, turned, unique_bytes
from tilecast.kernels.rules.copies import fill, move
from tilecast.kernels.table import Kernel
from tilecast.precision import itemsize
from tilecast.workload.graph import Tensor

#: Operators that overwrite or make their result without reading a tensor of its shape.
_ONLY_WRITES: Final = frozenset({
    "uniform", "normal", "random", "bernoulli", "exponential", "rand", "randn", "randint",
    "rand_like", "randn_like", "randint_like", "log_normal", "cauchy", "geometric", "arange",
    "linspace",
})  # fmt: skip
#: Whole exponents up to this are multiplications (`Pow.cuh` writes out 2 and 3, and -1, -2).
_SMALL_EXPONENT: Final = 3


def pointwise(
    name: str,
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    ops_per_element: float,
    read: float | None = None,
) -> Kernel:
    """A kernel over the shape of the first output (or input, where that is larger)."""
    main = outputs[0]
    elements = max((tensor.elements for tensor in (*inputs, *outputs)), default=0)
    widest = next((t for t in (*inputs, *outputs) if t.dtype == "float64"), main)
    return elementwise.kernel(
        elements,
        len(inputs),
        len(outputs),
        ops_per_element,
        transposed=max((turned(t, main) for t in inputs if t.elements == elements), default=0),
        precision=vector_precision(precision_of(widest)),
        itemsize=itemsize(main.dtype),
        read=sum(map(unique_bytes, inputs)) if read is None else read,
        written=sum(map(unique_bytes, outputs)),
        name=name,
    )


def operations_of(call: Call) -> float:
    """Operations for each element, by operator and the attributes that change them."""
    name = base_name(call.name)
    if call.attr("approximate") == "tanh" and name in GELU_TANH:
        return GELU_TANH[name]
    exponent = call.attr("exponent")
    if name == "pow" and isinstance(exponent, int | float):
        whole = float(exponent).is_integer() and abs(exponent) <= _SMALL_EXPONENT
        return max(1.0, abs(exponent) - 1 + (exponent < 0)) if whole else OPERATIONS[name]
    return OPERATIONS[name]


def elementwise_rule(call: Call) -> list[Kernel]:
    """One kernel; an element's arithmetic from `OPERATIONS`."""
    name = base_name(call.name)
    inputs = () if name in _ONLY_WRITES else call.inputs
    read = 0.0 if name in _ONLY_WRITES else call.read
    return [pointwise(name, inputs, call.outputs or call.inputs, operations_of(call), read)]


for _name in OPERATIONS:
    rule(_name, *(() if _name.startswith("__") else (f"{_name}_",)))(elementwise_rule)
# `max` and `min` of one tensor are reductions, which `reductions` registers.


@rule("_safe_softmax")
def safe_softmax(call: Call) -> list[Kernel]:
    """Softmax, then rows that were masked out whole are set to zero."""
    source, out = call.inputs[0], call.outputs[0]
    dim = int(call.attr("dim", -1)) % max(1, len(source.shape))
    columns = source.shape[dim] if source.shape else 1
    rows = source.elements // max(1, columns)
    masked = Tensor(source.shape, "bool")
    lines = Tensor((rows,), "bool")
    return [
        reduction.kernel(
            rows, columns, "softmax", precision=precision_of(source),
            itemsize=itemsize(source.dtype), read=unique_bytes(source), written=unique_bytes(out),
        ),
        pointwise("isneginf", (source,), (masked,), OPERATIONS["isneginf"]),
        reduction.kernel(
            rows, columns, "sum", itemsize=1.0, read=unique_bytes(masked),
            written=unique_bytes(lines), name="all",
        ),
        fill(Tensor((), out.dtype)),
        pointwise("where", (lines, out), (out,), OPERATIONS["where"]),
    ]  # fmt: skip


@rule("native_dropout")
def native_dropout(call: Call) -> list[Kernel]:
    """One kernel that draws, masks and scales; out of training a copy and a mask of ones."""
    if call.attr("train", True) is False:
        return [move(call.inputs[0], call.outputs[0]), *map(fill, call.outputs[1:])]
    return elementwise_rule(call)
