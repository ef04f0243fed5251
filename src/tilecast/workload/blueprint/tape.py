"""The recorder under every blueprint: tensors, operators and reverse-mode differentiation.

`Tape` keeps what eager PyTorch keeps: an operator list in launch order, the storage that each view
shares, the tensors that autograd saves. `backward` then replays the recorded nodes in the order of
PyTorch's engine (the newest first), so that gradients are produced and added up in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilecast.workload.blueprint.strides import (
    Sizes,
    contiguous,
    elementwise,
    expanded,
    is_contiguous,
)
from tilecast.workload.graph import Attr, Graph, Kind, Op, Phase, Tensor

Attrs = tuple[tuple[str, Attr], ...]
#: Takes the gradient of each output (NONE where there is none), returns one for each input.
Backward = Callable[..., tuple[int, ...]]

#: Stands for a tensor that is not there.
NONE = -1


class Tape:
    """Records operators; a tensor is named by its id in the graph.

    Args:
        name: of the model.
        dtype: storage dtype of weights and activations (`float32`, `bfloat16`).
        training: dropout is active and gradients are recorded.
        accumulate: parameters already hold a gradient that this step adds to.
    """

    def __init__(
        self, name: str, dtype: str = "float32", *, training: bool = False, accumulate: bool = False
    ) -> None:
        self.graph = Graph(name=name)
        self.dtype = dtype
        self.training = training
        #: Whether dropout layers drop.
        self.drops = training
        self.accumulate = accumulate
        self.module = ""
        self.phase = Phase.FORWARD
        self.tensors = self.graph.tensors
        self.shapes: list[Sizes] = []
        self.strides: list[Sizes] = []
        self.dtypes: list[str] = []
        #: Whether a gradient is wanted for the tensor.
        self.tracked: list[bool] = []
        self.parameters: dict[str, int] = {}
        #: Gradients that were there before, of parameters whose forward already used them.
        self._held: dict[int, int] = {}
        #: Gradient of each parameter, once `backward` has run.
        self.gradients: dict[int, int] = {}
        self._nodes: list[tuple[Backward, tuple[int, ...], tuple[int, ...], str]] = []
        self._saved: dict[int, None] = {}
        self._ops = self.graph.ops

    # ---- tensors ---------------------------------------------------------------------------

    def new(
        self,
        shape: Sizes,
        dtype: str | None = None,
        strides: Sizes | None = None,
        storage: int = NONE,
        kind: Kind = Kind.ACTIVATION,
        name: str = "",
    ) -> int:
        """Add a tensor; `storage` names the memory it shares, else it has its own."""
        index = len(self.shapes)
        dtype = dtype or self.dtype
        if strides is None:
            strides = contiguous(shape)
            shown = None
        else:
            shown = None if is_contiguous(shape, strides) else strides
        self.tensors.append(
            Tensor(shape, dtype, shown, index if storage < 0 else storage, kind, name)
        )
        self.shapes.append(shape)
        self.strides.append(strides)
        self.dtypes.append(dtype)
        self.tracked.append(False)
        return index

    def parameter(self, name: str, *shape: int) -> int:
        """A trainable weight, made once for each name."""
        found = self.parameters.get(name)
        if found is None:
            found = self.new(shape, kind=Kind.PARAMETER, name=name)
            self.tracked[found] = self.training
            self.parameters[name] = found
        return found

    def converted(self, name: str, dtype: str) -> int:
        """A weight after `module.to(dtype)`, which writes it anew and trains the new one.

        A gradient that is already there is written anew as well.
        """
        found = self.parameters[name]
        if self.dtypes[found] == dtype:
            return found
        out = self.new(self.shapes[found], dtype, name=name)
        self.emit("aten._to_copy", (found,), (out,))
        self.tracked[out] = self.tracked[found]
        self.parameters[name] = out
        if self.accumulate and self.tracked[out]:
            held = self._held_gradient(found)
            self._held[out] = self.new(self.shapes[out], dtype, kind=Kind.GRADIENT, name=name)
            self.emit("aten._to_copy", (held,), (self._held[out],))
        return out

    def buffer(self, name: str, shape: Sizes, dtype: str) -> int:
        """A tensor of the model's state that is not trained."""
        return self.new(shape, dtype, kind=Kind.BUFFER, name=name)

    def input(self, name: str, shape: Sizes, dtype: str = "int64") -> int:
        """A tensor that the caller hands to the model."""
        return self.new(shape, dtype, kind=Kind.INPUT, name=name)

    def view_of(self, base: int, shape: Sizes, strides: Sizes) -> int:
        """A tensor over the memory of `base`."""
        tensor = self.tensors[base]
        return self.new(shape, tensor.dtype, strides, tensor.storage, tensor.kind)

    # ---- operators -------------------------------------------------------------------------

    def emit(
        self, name: str, inputs: tuple[int, ...], outputs: tuple[int, ...], attrs: Attrs = ()
    ) -> None:
        """Append an operator (attributes sorted by name)."""
        self._ops.append(Op(name, inputs, outputs, attrs, self.phase, self.module))

    def record(
        self,
        backward: Backward,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        saved: tuple[int, ...] = (),
    ) -> None:
        """Note how to differentiate what was just emitted, and what that keeps in memory."""
        tracked = self.tracked
        if not self.training or not any(tracked[i] for i in inputs):
            return
        for output in outputs:
            tracked[output] = True
        self._nodes.append((backward, inputs, outputs, self.module))
        for tensor in saved:
            if tensor >= 0:
                self._saved[tensor] = None

    # ---- backward --------------------------------------------------------------------------

    def backward(self, loss: int, *, given: bool = False) -> None:
        """Emit the backward pass; fills `gradients`.

        Args:
            loss: the scalar it starts from, or any output if its gradient is `given`.
            given: the caller hands in the gradient of `loss`; else it is one.
        """
        self.phase = Phase.BACKWARD
        self.module = ""
        if given:
            root = self.new(self.shapes[loss], self.dtypes[loss], kind=Kind.INPUT)
        else:
            root = self.new(self.shapes[loss], self.dtypes[loss])
            self.emit("aten.ones_like", (loss,), (root,))
        waiting = self._uses(loss)
        pending = {loss: root}
        tracked = self.tracked
        parameters = set(self.parameters.values())
        for backward, inputs, outputs, module in reversed(self._nodes):
            arriving = [pending.pop(output, NONE) for output in outputs]
            if max(arriving) < 0:
                continue
            self.module = module
            # The engine first gives every gradient its tensor's shape and dtype, then adds them up.
            results = [
                (tensor, self._fitted(gradient, tensor))
                for tensor, gradient in zip(inputs, backward(*arriving), strict=True)
                if gradient >= 0 and tracked[tensor]
            ]
            complete = []
            for tensor, gradient in results:
                earlier = pending.get(tensor)
                if earlier is not None:
                    gradient = self._add(earlier, gradient)
                pending[tensor] = gradient
                if tensor in parameters:
                    waiting[tensor] -= 1
                    if not waiting[tensor]:
                        complete.append(tensor)
            for tensor in complete:
                self._finish(tensor, pending.pop(tensor))
        self.module = ""
        if self.accumulate:  # what got nothing now keeps what it had
            for parameter in self.parameters.values():
                if parameter not in self.gradients:
                    self.gradients[parameter] = self._held_gradient(parameter)

    def _uses(self, loss: int) -> dict[int, int]:
        """How many gradients each parameter will receive."""
        reached = {loss}
        uses: dict[int, int] = dict.fromkeys(self.parameters.values(), 0)
        for _, inputs, outputs, _ in reversed(self._nodes):
            if not reached.isdisjoint(outputs):
                for tensor in inputs:
                    if self.tracked[tensor]:
                        reached.add(tensor)
                        if tensor in uses:
                            uses[tensor] += 1
        return uses

    def _add(self, a: int, b: int) -> int:
        shape = self.shapes[a]
        layout = elementwise(((shape, self.strides[a]), (self.shapes[b], self.strides[b])), shape)
        out = self.new(shape, self.dtypes[a], layout)
        self.emit("aten.add", (a, b), (out,))
        return out

    def _finish(self, parameter: int, gradient: int) -> None:
        """Hand a complete gradient to its parameter."""
        self.module = self.tensors[parameter].name.rpartition(".")[0]
        if self.accumulate:
            held = self._held.get(parameter)
            if held is None:
                held = self._held_gradient(parameter)
            updated = self.view_of(held, self.shapes[held], self.strides[held])
            self.emit("aten.add_", (held, gradient), (updated,))
            self.gradients[parameter] = updated
            return
        # Autograd hands over a detached view, which eager PyTorch dispatches as an operator.
        kept = self.view_of(gradient, self.shapes[gradient], self.strides[gradient])
        self.emit("aten.detach", (gradient,), (kept,))
        root = self.tensors[gradient].storage
        self.tensors[root] = replace(self.tensors[root], kind=Kind.GRADIENT)
        self.gradients[parameter] = kept

    def _held_gradient(self, parameter: int) -> int:
        """A gradient of an earlier step."""
        name = self.tensors[parameter].name
        shape, dtype = self.shapes[parameter], self.dtypes[parameter]
        return self.new(shape, dtype, kind=Kind.GRADIENT, name=name)

    def _fitted(self, gradient: int, tensor: int) -> int:
        """A gradient in the shape and dtype of its tensor."""
        gradient = self.sum_to(gradient, self.shapes[tensor])
        if self.dtypes[gradient] == self.dtypes[tensor]:
            return gradient
        shape = self.shapes[gradient]
        layout = elementwise(((shape, self.strides[gradient]),), shape)
        out = self.new(shape, self.dtypes[tensor], layout)
        self.emit("aten._to_copy", (gradient,), (out,))
        return out

    def sum_to(self, gradient: int, shape: Sizes) -> int:
        """Reduce a gradient over the dimensions along which its tensor was broadcast."""
        have = self.shapes[gradient]
        if have == shape:
            return gradient
        lead = len(have) - len(shape)
        dims = tuple(
            d for d in range(len(have)) if d < lead or (shape[d - lead] == 1 and have[d] != 1)
        )
        kept = tuple(1 if d in dims else size for d, size in enumerate(have))
        out = self.new(kept, self.dtypes[gradient])
        self.emit("aten.sum", (gradient,), (out,), (("dim", dims), ("keepdim", True)))
        if lead:
            out, summed = self.view_of(out, shape, contiguous(shape)), out
            self.emit("aten.view", (summed,), (out,))
        return out

    def expand_gradient(self, gradient: int, shape: Sizes) -> int:
        """`aten.expand` of a gradient (no node: gradients are not differentiated)."""
        out = self.view_of(
            gradient, shape, expanded(self.shapes[gradient], self.strides[gradient], shape)
        )
        self.emit("aten.expand", (gradient,), (out,))
        return out

    def finish(self) -> Graph:
        """The graph: saved tensors listed, views of a gradient's memory marked as such."""
        tensors = self.tensors
        for index, tensor in enumerate(tensors):
            if tensor.storage != index and tensors[tensor.storage].kind is not tensor.kind:
                tensors[index] = replace(tensor, kind=tensors[tensor.storage].kind)
        self.graph.saved = list(self._saved)
        return self.graph
