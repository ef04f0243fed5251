"""Operators that move or rename elements: views, copies, concatenation, casts."""

from __future__ import annotations

from math import prod

from tilecast.workload.blueprint.strides import (
    Sizes,
    contiguous,
    elementwise,
    expanded,
    is_contiguous,
    view_strides,
)
from tilecast.workload.blueprint.tape import NONE, Attrs, Tape


class Views(Tape):
    """Shape operators of ATen, each with its backward."""

    def view(self, x: int, *shape: int) -> int:
        """`x.view(shape)`; one size may be -1.

        Raises:
            ValueError: the strides of `x` do not allow it.
        """
        old = self.shapes[x]
        target = _resolve(shape, old)
        strides = view_strides(old, self.strides[x], target)
        if strides is None:
            raise ValueError(f"cannot view {old} with strides {self.strides[x]} as {target}")
        out = self.view_of(x, target, strides)
        self.emit("aten.view", (x,), (out,))
        if self.tracked[x]:
            self.record(lambda g: (self._reshape(g, old),), (x,), (out,))
        return out

    def reshape(self, x: int, *shape: int) -> int:
        """`x.reshape(shape)`: a view where the strides allow it, else a copy."""
        target = _resolve(shape, self.shapes[x])
        if view_strides(self.shapes[x], self.strides[x], target) is not None:
            return self.view(x, *target)
        return self.unsafe_view(self.clone(x), target)

    def unsafe_view(self, x: int, shape: Sizes) -> int:
        """`aten._unsafe_view`: the view that matmul and reshape make of a fresh tensor."""
        old = self.shapes[x]
        out = self.view_of(x, shape, contiguous(shape))
        self.emit("aten._unsafe_view", (x,), (out,))
        if self.tracked[x]:
            self.record(lambda g: (self._reshape(g, old),), (x,), (out,))
        return out

    def _reshape(self, gradient: int, shape: Sizes) -> int:
        """Reshape a gradient, as the backward of a view does."""
        old, strides = self.shapes[gradient], self.strides[gradient]
        layout = view_strides(old, strides, shape)
        if layout is not None:
            out = self.view_of(gradient, shape, layout)
            self.emit("aten.view", (gradient,), (out,))
            return out
        copy = self.new(old, self.dtypes[gradient])
        self.emit("aten.clone", (gradient,), (copy,))
        out = self.view_of(copy, shape, contiguous(shape))
        self.emit("aten._unsafe_view", (copy,), (out,))
        return out

    def clone(self, x: int) -> int:
        """A contiguous copy (`aten.clone` with `contiguous_format`)."""
        out = self.new(self.shapes[x], self.dtypes[x])
        self.emit("aten.clone", (x,), (out,))
        self.record(lambda g: (g,), (x,), (out,))
        return out

    def contiguous(self, x: int) -> int:
        """`x` itself when it is contiguous, else a copy."""
        return x if is_contiguous(self.shapes[x], self.strides[x]) else self.clone(x)

    def t(self, x: int) -> int:
        """`aten.t`: the transpose of a matrix, as a view."""
        out = self._turned(x)
        if self.tracked[x]:
            self.record(lambda g: (self._turned(g),), (x,), (out,))
        return out

    def _turned(self, x: int) -> int:
        shape, strides = self.shapes[x], self.strides[x]
        out = self.view_of(x, shape[::-1], strides[::-1])
        self.emit("aten.t", (x,), (out,))
        return out

    def transpose(self, x: int, first: int, second: int) -> int:
        """`aten.transpose` of two dimensions."""
        out = self._swapped(x, first, second)
        if self.tracked[x]:
            self.record(lambda g: (self._swapped(g, first, second),), (x,), (out,))
        return out

    def _swapped(self, x: int, first: int, second: int) -> int:
        shape, strides = list(self.shapes[x]), list(self.strides[x])
        shape[first], shape[second] = shape[second], shape[first]
        strides[first], strides[second] = strides[second], strides[first]
        out = self.view_of(x, tuple(shape), tuple(strides))
        self.emit("aten.transpose", (x,), (out,), (("dim0", first), ("dim1", second)))
        return out

    def permute(self, x: int, *dims: int) -> int:
        """`aten.permute`: dimension `dims[i]` becomes the i-th."""
        out = self._permuted(x, dims)
        back = tuple(dims.index(dim) for dim in range(len(dims)))
        self.record(lambda g: (self._permuted(g, back),), (x,), (out,))
        return out

    def _permuted(self, x: int, dims: Sizes) -> int:
        shape, strides = self.shapes[x], self.strides[x]
        out = self.view_of(x, tuple(shape[d] for d in dims), tuple(strides[d] for d in dims))
        self.emit("aten.permute", (x,), (out,), (("dims", dims),))
        return out

    def expand(self, x: int, *shape: int) -> int:
        """`aten.expand`; -1 keeps a size."""
        old = self.shapes[x]
        lead = len(shape) - len(old)
        target = tuple(old[d - lead] if size < 0 else size for d, size in enumerate(shape))
        out = self.view_of(x, target, expanded(old, self.strides[x], target))
        self.emit("aten.expand", (x,), (out,))
        # The sum over repeated dimensions is the tape's, as for every broadcast.
        self.record(lambda g: (g,), (x,), (out,))
        return out

    def unsqueeze(self, x: int, dim: int) -> int:
        """`aten.unsqueeze`."""
        shape, strides = self.shapes[x], self.strides[x]
        dim = dim % (len(shape) + 1)
        step = shape[dim] * strides[dim] if dim < len(shape) else 1
        out = self.view_of(
            x, (*shape[:dim], 1, *shape[dim:]), (*strides[:dim], step, *strides[dim:])
        )
        self.emit("aten.unsqueeze", (x,), (out,), (("dim", dim),))
        if self.tracked[x]:
            self.record(lambda g: (self._squeezed(g, dim),), (x,), (out,))
        return out

    def squeeze(self, x: int, dim: int) -> int:
        """`aten.squeeze` of a dimension of size 1."""
        out = self._squeezed(x, dim)
        self.record(lambda g: (self.unsqueeze(g, dim),), (x,), (out,))
        return out

    def _squeezed(self, x: int, dim: int) -> int:
        shape, strides = self.shapes[x], self.strides[x]
        out = self.view_of(x, shape[:dim] + shape[dim + 1 :], strides[:dim] + strides[dim + 1 :])
        self.emit("aten.squeeze", (x,), (out,), (("dim", dim),))
        return out

    def alias(self, x: int) -> int:
        """`aten.alias`: what a slice that keeps everything becomes."""
        out = self.view_of(x, self.shapes[x], self.strides[x])
        self.emit("aten.alias", (x,), (out,))
        self.record(lambda g: (g,), (x,), (out,))
        return out

    def _narrowed(self, x: int, dim: int, start: int, stop: int) -> int:
        shape = list(self.shapes[x])
        shape[dim] = min(stop, shape[dim]) - start
        out = self.view_of(x, tuple(shape), self.strides[x])
        self.emit("aten.slice", (x,), (out,), _range(dim, start, stop))
        return out

    def slice(self, x: int, dim: int, start: int, stop: int) -> int:
        """`aten.slice` with step 1."""
        old = self.shapes[x]
        out = self._narrowed(x, dim, start, stop)

        def backward(g: int) -> tuple[int, ...]:
            whole = self.new(old, self.dtypes[g])
            self.emit("aten.slice_backward", (g,), (whole,), _range(dim, start, stop))
            return (whole,)

        self.record(backward, (x,), (out,))
        return out

    def select(self, x: int, dim: int, index: int) -> int:
        """`aten.select`: one index of a dimension, which goes away."""
        old, strides = self.shapes[x], self.strides[x]
        out = self.view_of(x, old[:dim] + old[dim + 1 :], strides[:dim] + strides[dim + 1 :])
        self.emit("aten.select", (x,), (out,), (("dim", dim), ("index", index)))

        def backward(g: int) -> tuple[int, ...]:
            whole = self.new(old, self.dtypes[g])
            self.emit("aten.select_backward", (g,), (whole,), (("dim", dim), ("index", index)))
            return (whole,)

        self.record(backward, (x,), (out,))
        return out

    def split(self, x: int, size: int, dim: int) -> tuple[int, ...]:
        """`aten.split` into equal parts."""
        old = self.shapes[x]
        part = (*old[:dim], size, *old[dim + 1 :])
        parts = tuple(self.view_of(x, part, self.strides[x]) for _ in range(old[dim] // size))
        self.emit("aten.split", (x,), parts, (("dim", dim), ("split_size", size)))

        def backward(*gradients: int) -> tuple[int, ...]:
            filled = tuple(g if g >= 0 else self._zeros(part) for g in gradients)
            return (self._joined(filled, dim),)

        self.record(backward, (x,), parts)
        return parts

    def _zeros(self, shape: Sizes) -> int:
        out = self.new(shape)
        self.emit("aten.zeros", (), (out,))
        return out

    def _joined(self, parts: tuple[int, ...], dim: int) -> int:
        shape = list(self.shapes[parts[-1]])
        shape[dim] = sum(self.shapes[p][dim] for p in parts if prod(self.shapes[p]))
        out = self.new(tuple(shape), self.dtypes[parts[-1]])
        self.emit("aten.cat", parts, (out,), (("dim", dim),))
        return out

    def cat(self, parts: tuple[int, ...], dim: int) -> int:
        """`aten.cat` along `dim` (counted from 0); an empty part takes no room."""
        out = self._joined(parts, dim)

        def backward(g: int) -> tuple[int, ...]:
            gradients, start = [], 0
            for part in parts:
                if self.shapes[part] == (0,):  # the engine makes one although nothing wants it
                    self._zeros((0,))
                    gradients.append(NONE)
                    continue
                stop = start + self.shapes[part][dim]
                gradients.append(
                    self._narrowed(g, dim, start, stop) if self.tracked[part] else NONE
                )
                start = stop
            return tuple(gradients)

        self.record(backward, parts, (out,))
        return out

    def cast(self, x: int, dtype: str) -> int:
        """`x.to(dtype)`: `aten._to_copy`, or nothing when it has that dtype."""
        old = self.dtypes[x]
        if old == dtype:
            return x
        out = self._copied(x, dtype)
        self.record(lambda g: (self._copied(g, old),), (x,), (out,))
        return out

    def _copied(self, x: int, dtype: str) -> int:
        shape = self.shapes[x]
        out = self.new(shape, dtype, elementwise(((shape, self.strides[x]),), shape))
        self.emit("aten._to_copy", (x,), (out,))
        return out


def _resolve(shape: Sizes, old: Sizes) -> Sizes:
    """Replace a -1 by the size that is left."""
    if -1 not in shape:
        return shape
    known = -prod(shape)
    return tuple(prod(old) // known if size < 0 else size for size in shape)


def _range(dim: int, start: int, stop: int) -> Attrs:
    return (("dim", dim), ("end", stop), ("start", start), ("step", 1))
