"""Element-wise operators, reductions, normalisation, dropout and embeddings."""

from __future__ import annotations

from tilecast.workload.blueprint.strides import Sizes, broadcast, elementwise
from tilecast.workload.blueprint.tape import NONE, Attrs
from tilecast.workload.blueprint.views import Views

#: Functions of one tensor whose backward is one operator over (gradient, saved tensor):
#: name -> (backward operator, whether it saves its result rather than its input).
_UNARY: dict[str, tuple[str, bool]] = {
    "aten.tanh": ("aten.tanh_backward", True),
    "aten.gelu": ("aten.gelu_backward", False),
    "aten.relu": ("aten.threshold_backward", True),
    "aten.silu": ("aten.silu_backward", False),
}


class Pointwise(Views):
    """Element-wise operators, with the shapes and strides TensorIterator gives them."""

    def map(self, name: str, *operands: int, attrs: Attrs = (), dtype: str | None = None) -> int:
        """Emit one element-wise kernel over broadcast operands; nothing is recorded."""
        first = operands[0]
        shape = self.shapes[first]
        for other in operands[1:]:
            shape = broadcast(shape, self.shapes[other])
        layout = elementwise(tuple((self.shapes[i], self.strides[i]) for i in operands), shape)
        out = self.new(shape, dtype or self.dtypes[first], layout)
        self.emit(name, operands, (out,), attrs)
        return out

    def add(self, a: int, b: int) -> int:
        """`a + b`."""
        out = self.map("aten.add", a, b, dtype=self._promoted(a, b))
        self.record(lambda g: (g, g), (a, b), (out,))
        return out

    def add_scalar(self, x: int, value: float) -> int:
        """`x + value`."""
        out = self.map("aten.add", x)
        self.record(lambda g: (g,), (x,), (out,))
        return out

    def mul(self, a: int, b: int) -> int:
        """`a * b`."""
        out = self.map("aten.mul", a, b, dtype=self._promoted(a, b))
        tracked = self.tracked
        saves = (a if tracked[b] else NONE, b if tracked[a] else NONE)

        def backward(g: int) -> tuple[int, ...]:
            for_b = self.map("aten.mul", g, a) if tracked[b] else NONE
            for_a = self.map("aten.mul", g, b) if tracked[a] else NONE
            return for_a, for_b

        self.record(backward, (a, b), (out,), saves)
        return out

    def mul_scalar(self, x: int, value: float) -> int:
        """`x * value`."""
        out = self.map("aten.mul", x)
        self.record(lambda g: (self.map("aten.mul", g),), (x,), (out,))
        return out

    def pow(self, x: int, exponent: float) -> int:
        """`x ** exponent` for a number."""
        out = self.map("aten.pow", x, attrs=(("exponent", exponent),))

        def backward(g: int) -> tuple[int, ...]:
            slope = self.map("aten.pow", x, attrs=(("exponent", exponent - 1),))
            slope = self.map("aten.mul", slope)
            return (self.map("aten.mul", g, slope),)

        self.record(backward, (x,), (out,), (x,))
        return out

    def neg(self, x: int) -> int:
        """`-x`."""
        out = self.map("aten.neg", x)
        self.record(lambda g: (self.map("aten.neg", g),), (x,), (out,))
        return out

    def rsqrt(self, x: int) -> int:
        """`1 / sqrt(x)`; its backward is `-0.5 * g * out ** 3`."""
        out = self.map("aten.rsqrt", x)

        def backward(g: int) -> tuple[int, ...]:
            cube = self.map("aten.pow", out, attrs=(("exponent", 3),))
            half = self.map("aten.mul", cube)
            return (self.map("aten.mul", half, g),)

        self.record(backward, (x,), (out,), (out,))
        return out

    def unary(self, name: str, x: int, attrs: Attrs = ()) -> int:
        """One of `aten.tanh`, `aten.gelu`, `aten.relu`, `aten.silu`."""
        reverse, saves_result = _UNARY[name]
        out = self.map(name, x, attrs=attrs)
        kept = out if saves_result else x
        self.record(lambda g: (self.map(reverse, g, kept, attrs=attrs),), (x,), (out,), (kept,))
        return out

    def chosen(self, allowed: int, x: int) -> int:
        """`torch.where(allowed, x, lowest number)` of a bool mask that broadcasts with `x`."""
        dtype = self.dtypes[x]

        def scalar() -> int:
            out = self.new((), dtype)
            self.emit("aten.scalar_tensor", (), (out,))
            return out

        out = self.map("aten.where", allowed, x, scalar(), dtype=dtype)

        def backward(g: int) -> tuple[int, ...]:
            return (self.map("aten.where", allowed, g, scalar(), dtype=dtype),)

        self.record(backward, (x,), (out,), (allowed,))
        return out

    def mean_last(self, x: int) -> int:
        """Mean over the last dimension, kept as size 1."""
        shape = self.shapes[x]
        dim = len(shape) - 1
        out = self.new((*shape[:-1], 1), self.dtypes[x])
        self.emit("aten.mean", (x,), (out,), (("dim", (dim,)), ("keepdim", True)))

        def backward(g: int) -> tuple[int, ...]:
            spread = self.expand_gradient(g, shape)
            scaled = self.new(shape, self.dtypes[g])
            self.emit("aten.div", (spread,), (scaled,))
            return (scaled,)

        self.record(backward, (x,), (out,))
        return out

    def softmax(
        self, x: int, dim: int = -1, name: str = "aten._softmax", dtype: str | None = None
    ) -> int:
        """`aten._softmax` (or `_log_softmax`, `_safe_softmax`) along `dim`, written as `dtype`."""
        written = dtype or self.dtypes[x]
        dim %= len(self.shapes[x])
        attrs: Attrs = (("dim", dim),)
        if name != "aten._safe_softmax":
            attrs += (("half_to_float", written != self.dtypes[x]),)
        out = self.new(self.shapes[x], written)
        self.emit(name, (x,), (out,), attrs)
        reverse = f"{name.replace('_safe', '')}_backward_data"

        def backward(g: int) -> tuple[int, ...]:
            result = self.new(self.shapes[x], self.dtypes[x])
            self.emit(reverse, (g, out), (result,), (("dim", dim),))
            return (result,)

        self.record(backward, (x,), (out,), (out,))
        return out

    def dropout(self, x: int, p: float) -> int:
        """`nn.Dropout`: `aten.native_dropout` in training with p > 0, else nothing."""
        if not (self.training and self.drops) or p == 0:
            return x
        shape = self.shapes[x]
        layout = elementwise(((shape, self.strides[x]),), shape)
        out = self.new(shape, self.dtypes[x], layout)
        mask = self.new(shape, "bool", layout)
        scale: Attrs = (("scale", 1 / (1 - p)),)
        self.emit("aten.native_dropout", (x,), (out, mask), (("p", p), ("train", True)))

        def backward(g: int) -> tuple[int, ...]:
            return (self.map("aten.native_dropout_backward", g, mask, attrs=scale),)

        self.record(backward, (x,), (out,), (mask,))
        return out

    def layer_norm(self, x: int, name: str) -> int:
        """`nn.LayerNorm` over the last dimension, with weight and bias."""
        shape = self.shapes[x]
        outer = self.module
        self.module = name
        weight = self.parameter(f"{name}.weight", shape[-1])
        bias = self.parameter(f"{name}.bias", shape[-1])
        out = self.new(shape, self.dtypes[x])
        # Statistics of half-precision activations are kept in fp32.
        wide = "float64" if self.dtypes[x] == "float64" else "float32"
        mean = self.new((*shape[:-1], 1), wide)
        rstd = self.new((*shape[:-1], 1), wide)
        self.emit(
            "aten.native_layer_norm",
            (x, weight, bias),
            (out, mean, rstd),
            (("normalized_shape", (shape[-1],)),),
        )

        def backward(g: int) -> tuple[int, ...]:
            outputs = (
                self.new(shape, self.dtypes[x]),
                self.new(self.shapes[weight]),
                self.new(self.shapes[bias]),
            )
            self.emit(
                "aten.native_layer_norm_backward",
                (g, x, mean, rstd, weight, bias),
                outputs,
                (("normalized_shape", (shape[-1],)), ("output_mask", (True, True, True))),
            )
            return outputs

        self.record(backward, (x, weight, bias), (out,), (x, mean, rstd, weight, bias))
        self.module = outer
        return out

    def embedding(
        self, ids: int, name: str, rows: int, width: int, padding: int = NONE, *, tied: str = ""
    ) -> int:
        """`nn.Embedding` of `rows` vectors of `width`; `padding` is its `padding_idx`.

        `tied` names the parameter that is its table, where that is shared.
        """
        outer = self.module
        self.module = name
        table = self.parameter(tied or f"{name}.weight", rows, width)
        out = self.new((*self.shapes[ids], width))
        self.emit("aten.embedding", (table, ids), (out,), (("padding_idx", padding),))
        attrs: Attrs = (("num_weights", rows), ("padding_idx", padding))

        def backward(g: int) -> tuple[int, ...]:
            dense = self.new((rows, width))
            self.emit("aten.embedding_dense_backward", (g, ids), (dense,), attrs)
            return (dense,)

        self.record(backward, (table,), (out,), (ids,))
        self.module = outer
        return out

    def cross_entropy(self, logits: int, targets: int) -> int:
        """Mean cross-entropy of (rows, classes) logits and (rows,) int64 targets."""
        scores = self.softmax(logits, 1, "aten._log_softmax")
        mean: Attrs = (("reduction", 1),)
        loss = self.new((), self.dtypes[scores])
        weight = self.new((), self.dtypes[scores])
        self.emit("aten.nll_loss_forward", (scores, targets), (loss, weight), mean)
        shape: Sizes = self.shapes[scores]

        def backward(g: int) -> tuple[int, ...]:
            out = self.new(shape, self.dtypes[scores])
            self.emit("aten.nll_loss_backward", (g, scores, targets, weight), (out,), mean)
            return (out,)

        self.record(backward, (scores,), (loss,), (scores, targets, weight))
        return loss

    def _promoted(self, a: int, b: int) -> str:
        """The wider floating dtype of two (a 0-dimensional tensor does not widen)."""
        first, second = self.dtypes[a], self.dtypes[b]
        if first == second or not self.shapes[b]:
            return first
        for wide in ("float64", "float32"):
            if wide in (first, second):
                return wide
        return first
