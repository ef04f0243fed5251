"""Optimizer steps as the multi-tensor kernels that PyTorch launches (`foreach=True`).

Defaults of `torch.optim`: no amsgrad, no momentum in SGD, weight decay only where the optimizer
has it by default (AdamW). Step counters live on the CPU and launch nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from tilecast.workload.blueprint.tape import Tape
from tilecast.workload.graph import Kind, Phase

_Group = tuple[int, ...]


def sgd(tape: Tape, parameters: _Group, gradients: _Group) -> None:
    """`torch.optim.SGD(lr)`: one fused multiply-add a parameter."""
    _in_place(tape, "aten._foreach_add_", parameters, gradients)


def adam(tape: Tape, parameters: _Group, gradients: _Group) -> None:
    """`torch.optim.Adam()`."""
    first = _states(tape, parameters, "exp_avg")
    second = _states(tape, parameters, "exp_avg_sq")
    _in_place(tape, "aten._foreach_lerp_", first, gradients)
    _in_place(tape, "aten._foreach_mul_", second)
    _in_place(tape, "aten._foreach_addcmul_", second, gradients, gradients)
    roots = tuple(tape.new(tape.shapes[s], tape.dtypes[s]) for s in second)
    tape.emit("aten._foreach_sqrt", second, roots)
    _in_place(tape, "aten._foreach_div_", roots)
    _in_place(tape, "aten._foreach_add_", roots)
    _in_place(tape, "aten._foreach_addcdiv_", parameters, first, roots)


def adamw(tape: Tape, parameters: _Group, gradients: _Group) -> None:
    """`torch.optim.AdamW()`: Adam after decaying the weights in place."""
    _in_place(tape, "aten._foreach_mul_", parameters)
    adam(tape, parameters, gradients)


OPTIMIZERS: dict[str, Callable[[Tape, _Group, _Group], None]] = {
    "sgd": sgd, "adam": adam, "adamw": adamw,
}  # fmt: skip


def step(tape: Tape, name: str) -> None:
    """Emit one step of the optimizer `name` over every parameter that has a gradient.

    Each dtype is a group with kernels of its own; PyTorch takes the one it met last first.
    """
    tape.phase = Phase.OPTIMIZER
    tape.module = ""
    groups: dict[str, list[int]] = {}
    for parameter in tape.parameters.values():
        if parameter in tape.gradients:
            groups.setdefault(tape.dtypes[parameter], []).append(parameter)
    for group in reversed(groups.values()):
        OPTIMIZERS[name](tape, tuple(group), tuple(tape.gradients[p] for p in group))


def _states(tape: Tape, parameters: _Group, what: str) -> _Group:
    return tuple(
        tape.new(
            tape.shapes[p], tape.dtypes[p], kind=Kind.OPTIMIZER_STATE,
            name=f"{tape.tensors[p].name}.{what}",
        )
        for p in parameters
    )  # fmt: skip


def _in_place(tape: Tape, name: str, written: _Group, *others: _Group) -> None:
    """A multi-tensor operator that overwrites its first list."""
    results = tuple(tape.view_of(w, tape.shapes[w], tape.strides[w]) for w in written)
    inputs = written
    for group in others:
        inputs += group
    tape.emit(name, inputs, results)
