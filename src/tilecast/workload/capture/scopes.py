"""Which module an operator belongs to, in forward and in backward."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

#: Autograd gives gradient accumulators the largest sequence number there is.
_ACCUMULATOR_SEQUENCE = 2**63


class Scopes:
    """Follows the modules that run, and finds the module of a backward operator.

    Forward: global hooks push and pop the path of the module being called. Backward: each autograd
    node has a sequence number that was handed out during forward, so remembering which module ran
    when a number was handed out gives the module of the node. Gradient accumulators have no
    number of their own; they belong to the owner of their parameter.
    """

    def __init__(self, paths: dict[int, str], owners: dict[int, str]) -> None:
        """`paths`: by id of a module; `owners`: module path by id of a parameter."""
        self._paths = paths
        self._owners = owners
        self._stack: list[str] = []
        self._first = torch.autograd._get_sequence_nr()
        self._by_sequence: list[str] = []
        self._handles: list[Any] = []

    def __enter__(self) -> Scopes:
        self._handles = [
            register_module_forward_pre_hook(self._push),
            register_module_forward_hook(self._pop, always_call=True),
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        for handle in self._handles:
            handle.remove()

    def _push(self, module: Any, _inputs: Any) -> None:
        current = self._stack[-1] if self._stack else ""
        self._stack.append(self._paths.get(id(module), current))

    def _pop(self, _module: Any, _inputs: Any, _outputs: Any) -> None:
        self._catch_up()
        self._stack.pop()

    def _catch_up(self) -> None:
        """Give the sequence numbers handed out since the last look to the module that runs."""
        missing = torch.autograd._get_sequence_nr() - self._first - len(self._by_sequence)
        if missing > 0:
            self._by_sequence.extend([self._stack[-1] if self._stack else ""] * missing)

    def of(self, node: Any) -> str:
        """Path of the module that runs now, or whose forward made the autograd node given."""
        if node is None or self._stack:
            self._catch_up()
            return self._stack[-1] if self._stack else ""
        sequence = node._sequence_nr()
        if sequence >= _ACCUMULATOR_SEQUENCE:
            return self._owners.get(id(node.variable), "")
        position = sequence - self._first
        return self._by_sequence[position] if 0 <= position < len(self._by_sequence) else ""

    def accumulates(self, node: Any) -> bool:
        """Whether an autograd node writes a parameter's gradient."""
        return bool(node._sequence_nr() >= _ACCUMULATOR_SEQUENCE)
