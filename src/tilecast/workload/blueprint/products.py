"""Matrix products: linear layers, batched products, and attention in its three forms."""

from __future__ import annotations

from math import prod

from tilecast.workload.blueprint.pointwise import Pointwise
from tilecast.workload.blueprint.strides import Sizes, contiguous, elementwise, is_contiguous
from tilecast.workload.blueprint.tape import NONE, Attrs

#: Widest head of PyTorch's FlashAttention kernels.
FLASH_MAX_HEAD_DIM = 256


class Products(Pointwise):
    """GEMMs as eager PyTorch dispatches them."""

    # ---- two-dimensional ---------------------------------------------------------------------

    def _product(self, a: int, b: int) -> int:
        """`aten.mm` without a node: (M, K) @ (K, N)."""
        out = self.new((self.shapes[a][0], self.shapes[b][1]), self.dtypes[a])
        self.emit("aten.mm", (a, b), (out,))
        return out

    def _left_gradient(self, g: int, right: int) -> int:
        return self._product(g, self._turned(right))

    def _weight_gradient(self, g: int, left: int, right: int) -> int:
        """Gradient of `right`: computed transposed, then turned, when `right` is column-major."""
        rows, columns = self.strides[right]
        if rows == 1 and columns != 1:
            return self._turned(self._product(self._turned(g), left))
        return self._product(self._turned(left), g)

    def mm(self, a: int, b: int) -> int:
        """`aten.mm`: (M, K) @ (K, N)."""
        out = self._product(a, b)
        tracked = self.tracked

        def backward(g: int) -> tuple[int, ...]:
            for_b = self._weight_gradient(g, a, b) if tracked[b] else NONE
            for_a = self._left_gradient(g, b) if tracked[a] else NONE
            return for_a, for_b

        saves = (a if tracked[b] else NONE, b if tracked[a] else NONE)
        self.record(backward, (a, b), (out,), saves)
        return out

    def addmm(self, bias: int, a: int, b: int) -> int:
        """`aten.addmm`: (N,) + (M, K) @ (K, N)."""
        out = self.new((self.shapes[a][0], self.shapes[b][1]), self.dtypes[a])
        self.emit("aten.addmm", (bias, a, b), (out,))
        tracked = self.tracked

        def backward(g: int) -> tuple[int, ...]:
            for_a = self._left_gradient(g, b) if tracked[a] else NONE
            for_b = self._weight_gradient(g, a, b) if tracked[b] else NONE
            return g if tracked[bias] else NONE, for_a, for_b

        saves = (a if tracked[b] else NONE, b if tracked[a] else NONE)
        self.record(backward, (bias, a, b), (out,), saves)
        return out

    def linear(
        self, x: int, name: str, out: int, *, bias: bool | str = True, tied: str = ""
    ) -> int:
        """`nn.Linear` from the last dimension of `x` to `out` features.

        Args:
            x: (..., in).
            name: module path.
            out: output features.
            bias: whether it has one, or the parameter name of the one it shares.
            tied: parameter name whose (out, in) tensor is the weight.
        """
        outer = self.module
        self.module = name
        shape = self.shapes[x]
        weight = self.parameter(tied or f"{name}.weight", out, shape[-1])
        flat = len(shape) == 2
        rows = prod(shape[:-1])
        biased = f"{name}.bias" if bias is True else bias or ""
        if biased and (flat or is_contiguous(shape, self.strides[x])):
            offset = self.parameter(biased, out)
            matrix = x if flat else self.reshape(x, rows, shape[-1])
            result = self.addmm(offset, matrix, self.t(weight))
            if not flat:
                result = self.view(result, *shape[:-1], out)
        else:
            turned = self.t(weight)
            matrix = x if flat else self.reshape(x, rows, shape[-1])
            result = self.mm(matrix, turned)
            if not flat:
                result = self.unsafe_view(result, (*shape[:-1], out))
            if biased:
                result = self.add(result, self.parameter(biased, out))
        self.module = outer
        return result

    def conv1d(self, x: int, name: str, out: int) -> int:
        """Transformers' `Conv1D`: a linear layer whose weight is stored as (in, out)."""
        outer = self.module
        self.module = name
        shape = self.shapes[x]
        weight = self.parameter(f"{name}.weight", shape[-1], out)
        bias = self.parameter(f"{name}.bias", out)
        matrix = self.view(x, prod(shape[:-1]), shape[-1])
        result = self.view(self.addmm(bias, matrix, weight), *shape[:-1], out)
        self.module = outer
        return result

    # ---- batched -----------------------------------------------------------------------------

    def bmm(self, a: int, b: int) -> int:
        """`aten.bmm`: (B, M, K) @ (B, K, N)."""
        out = self._batched(a, b)
        tracked = self.tracked

        def backward(g: int) -> tuple[int, ...]:
            for_b = self._batched(self._swapped(a, 1, 2), g) if tracked[b] else NONE
            for_a = self._batched(g, self._swapped(b, 1, 2)) if tracked[a] else NONE
            return for_a, for_b

        saves = (a if tracked[b] else NONE, b if tracked[a] else NONE)
        self.record(backward, (a, b), (out,), saves)
        return out

    def _batched(self, a: int, b: int) -> int:
        batch, rows, _ = self.shapes[a]
        out = self.new((batch, rows, self.shapes[b][2]), self.dtypes[a])
        self.emit("aten.bmm", (a, b), (out,))
        return out

    def matmul(self, a: int, b: int) -> int:
        """`torch.matmul` of tensors of equal rank above 2: expand, flatten, `bmm`, unflatten."""
        shape, other = self.shapes[a], self.shapes[b]
        lead = tuple(max(x, y) for x, y in zip(shape[:-2], other[:-2], strict=True))
        left = self.expand(a, *lead, *shape[-2:])
        left = self.reshape(left, prod(lead), *shape[-2:])
        right = self.expand(b, *lead, *other[-2:])
        right = self.reshape(right, prod(lead), *other[-2:])
        return self.unsafe_view(self.bmm(left, right), (*lead, shape[-2], other[-1]))

    # ---- attention ---------------------------------------------------------------------------

    def eager_attention(
        self, q: int, k: int, v: int, mask: int, scale: float, p: float, *,
        upcast: bool = False, bias: int = NONE,
    ) -> int:  # fmt: skip
        """Attention written out: scores, scale, mask, softmax, dropout, weighted sum.

        Args:
            q: (batch, heads, q_len, head_dim).
            k, v: (batch, heads, kv_len, head_dim).
            mask: additive, broadcastable to (batch, heads, q_len, kv_len), or NONE.
            scale: factor of the scores.
            p: dropout probability of the weights.
            upcast: softmax in fp32.
            bias: of the scores by position, added before the mask and shaped like it, or NONE.

        Returns:
            (batch, heads, q_len, head_dim).
        """
        last = len(self.shapes[k]) - 1
        scores = self.mul_scalar(self.matmul(q, self.transpose(k, last - 1, last)), scale)
        for term in (bias, mask):
            if term >= 0:
                scores = self.add(scores, term)
        if upcast and self.dtype != "float32":
            if self.dtype != "float16":  # fp16 has a kernel that reads half and writes fp32
                scores = self.cast(scores, "float32")
            weights = self.cast(self.softmax(scores, dtype="float32"), self.dtype)
        else:
            weights = self.softmax(scores)
        return self.matmul(self.dropout(weights, p), v)

    def sdpa(
        self, q: int, k: int, v: int, mask: int, scale: float, p: float, *, causal: bool
    ) -> int:
        """`F.scaled_dot_product_attention` on CUDA: the kernel that PyTorch would choose.

        fp16 and bf16 without a mask run FlashAttention; fp32, or any mask, the memory-efficient
        kernel where its alignment (16 bytes a head) allows; the rest is written out (fp64, or fp32
        with fewer key than query heads).

        Args:
            q: (batch, heads, q_len, head_dim).
            k, v: (batch, kv_heads, kv_len, head_dim).
            mask: broadcastable to (batch, heads, q_len, kv_len) and added, or NONE.
            scale: factor of the scores.
            p: dropout probability.
            causal: mask out later positions.

        Returns:
            (batch, heads, q_len, head_dim), not contiguous as a rule.
        """
        p = p if self.training and self.drops else 0.0
        dtype, dim = self.dtypes[q], self.shapes[q][-1]
        half = dtype in ("float16", "bfloat16")
        if half and mask < 0 and dim <= FLASH_MAX_HEAD_DIM:
            return self._padded_flash(q, k, v, scale, p, causal)
        aligned = dim % (8 if half else 4) == 0 and dtype != "float64"
        if aligned and self.shapes[q][1] == self.shapes[k][1]:
            return self._efficient(q, k, v, mask, scale, p, causal)
        return self._written_out(q, k, v, mask, scale, p, causal)

    def _padded_flash(self, q: int, k: int, v: int, scale: float, p: float, causal: bool) -> int:
        """FlashAttention, whose heads are padded to a multiple of 8."""
        dim = self.shapes[q][-1]
        excess = -dim % 8
        if not excess:
            return self._flash(q, k, v, scale, p, causal)
        q, k, v = (self._pad_last(x, excess) for x in (q, k, v))
        return self.slice(self._flash(q, k, v, scale, p, causal), 3, 0, dim)

    def _pad_last(self, x: int, excess: int) -> int:
        """`F.pad` of the last dimension by zeros; its backward cuts them off again."""

        def padded(tensor: int, by: int) -> int:
            shape = self.shapes[tensor]
            out = self.new((*shape[:-1], shape[-1] + by), self.dtypes[tensor])
            self.emit("aten.constant_pad_nd", (tensor,), (out,))
            return out

        out = padded(x, excess)
        self.record(lambda g: (padded(g, -excess),), (x,), (out,))
        return out

    def _attention_layout(self, shape: Sizes) -> Sizes:
        """Strides of (batch, heads, length, dim) stored as (batch, length, heads, dim)."""
        batch, heads, length, dim = shape
        outer, middle, inner, one = contiguous((batch, length, heads, dim))
        return outer, inner, middle, one

    def _flash(self, q: int, k: int, v: int, scale: float, p: float, causal: bool) -> int:
        batch, heads, length, _ = self.shapes[q]
        attrs: Attrs = (("dropout_p", p), ("is_causal", causal), ("scale", scale))
        (out,) = self._dense_like(q)
        log_sum = self.new((batch, heads, length), "float32")
        seed = self.new((2,), "uint64")
        unused = self.new((), "uint64")
        debug = self.new((0,), self.dtypes[q])
        self.emit(
            "aten._scaled_dot_product_flash_attention",
            (q, k, v),
            (out, log_sum, seed, unused, debug),
            attrs,
        )

        def backward(g: int) -> tuple[int, ...]:
            outputs = self._dense_like(q, k, v)
            self.emit(
                "aten._scaled_dot_product_flash_attention_backward",
                (g, q, k, v, out, log_sum, seed, unused),
                outputs,
                attrs,
            )
            return outputs

        self.record(backward, (q, k, v), (out,), (q, k, v, out, log_sum, seed, unused))
        return out

    def _efficient(
        self, q: int, k: int, v: int, mask: int, scale: float, p: float, causal: bool
    ) -> int:
        batch, heads, length, _ = self.shapes[q]
        attrs: Attrs = (("dropout_p", p), ("is_causal", causal), ("scale", scale))
        if mask >= 0:
            mask = self._aligned_mask(q, k, mask)
        needs_gradient = self.training and (self.tracked[q] or self.tracked[k])
        result: Sizes = (*self.shapes[q][:-1], self.shapes[v][-1])
        attrs_forward: Attrs = (("compute_log_sumexp", needs_gradient), *attrs)
        out = self.new(result, self.dtypes[q], self._attention_layout(result))
        # The kernel pads the log-sum-exp to a multiple of 32 queries; without a backward, none.
        padded = -(-length // 32) * 32 if needs_gradient else 0
        log_sum = self.new((batch, heads, padded), "float32")
        seed = self.new((), "int64")
        offset = self.new((), "int64")
        masks = (mask,) if mask >= 0 else ()
        learned = tuple(m for m in masks if self.tracked[m])
        self.emit(
            "aten._scaled_dot_product_efficient_attention",
            (q, k, v, *masks),
            (out, log_sum, seed, offset),
            attrs_forward,
        )

        def backward(g: int) -> tuple[int, ...]:
            outputs = self._like_attention(q, k, v)
            if learned:
                outputs += (self._mask_gradient(mask),)
            self.emit(
                "aten._scaled_dot_product_efficient_attention_backward",
                (g, q, k, v, *masks, out, log_sum, seed, offset),
                outputs,
                attrs,
            )
            return outputs

        saved = (q, k, v, mask, out, log_sum, seed, offset)
        self.record(backward, (q, k, v, *learned), (out,), saved)
        return out

    def _mask_gradient(self, mask: int) -> int:
        """A fresh gradient of a mask, whose rows the kernel pads to multiples of 16."""
        *outer, length = self.shapes[mask]
        layout = contiguous((*outer, -(-length // 16) * 16))
        return self.new(self.shapes[mask], self.dtypes[mask], layout)

    def _aligned_mask(self, q: int, k: int, mask: int) -> int:
        """The mask as the kernel takes it: rows padded to multiples of 8, one for each head."""
        shape = self.shapes[mask]
        length = shape[-1]
        if length != 1 and length % 8:
            padded = self._pad_last(mask, -length % 8)
            mask = self.slice(padded, len(shape) - 1, 0, length)
        return self.expand(mask, *self.shapes[q][:3], self.shapes[k][2])

    def _dense_like(self, *tensors: int) -> tuple[int, ...]:
        """Fresh tensors in the memory order of others (`empty_like`)."""
        return tuple(
            self.new(
                self.shapes[t],
                self.dtypes[t],
                elementwise(((self.shapes[t], self.strides[t]),), self.shapes[t]),
            )
            for t in tensors
        )

    def _like_attention(self, *tensors: int) -> tuple[int, ...]:
        return tuple(
            self.new(self.shapes[t], self.dtypes[t], self._attention_layout(self.shapes[t]))
            for t in tensors
        )

    def _written_out(
        self, q: int, k: int, v: int, mask: int, scale: float, p: float, causal: bool
    ) -> int:
        """SDPA's math back end: half of the scale on each side, keys and values repeated.

        Half precisions run in fp32, and leave a copy of the weights that nobody reads.
        """
        dtype = self.dtypes[q]
        half = dtype in ("float16", "bfloat16")
        if half:
            q, k, v = (self.cast(x, "float32") for x in (q, k, v))
        heads, length = self.shapes[q][1], self.shapes[q][2]
        root = scale**0.5
        queries = self.mul_scalar(q, root)
        if causal:
            ones = self.new((length, self.shapes[k][2]), "bool")
            self.emit("aten.ones", (), (ones,))
            lower = self.new(self.shapes[ones], "bool")
            self.emit("aten.tril", (ones,), (lower,))
            mask = self.additive_mask(lower, fill="aten.scalar_tensor")
        keys, values = k, v
        if self.shapes[k][1] != heads:
            keys, values = self._interleaved(k, heads), self._interleaved(v, heads)
        keys = self.mul_scalar(self.transpose(keys, 2, 3), root)
        scores = self.matmul(queries, keys)
        if mask >= 0:
            scores = self.add(scores, mask)
        weights = self.dropout(self.softmax(scores, name="aten._safe_softmax"), p)
        if half:
            self.cast(weights, dtype)
        return self.cast(self.matmul(weights, values), dtype)

    def _interleaved(self, x: int, heads: int) -> int:
        """`repeat_interleave` over the head dimension."""
        batch, groups, length, dim = self.shapes[x]
        spread = self.expand(self.unsqueeze(x, 2), batch, groups, heads // groups, length, dim)
        return self.view(self.clone(spread), batch, heads, length, dim)

    def repeat_heads(self, x: int, heads: int) -> int:
        """Repeat (batch, kv_heads, length, dim) to `heads` heads: a copy unless they are equal."""
        batch, groups, length, dim = self.shapes[x]
        if groups == heads:
            return x
        spread = self.expand(self.unsqueeze(x, 2), batch, groups, heads // groups, length, dim)
        return self.reshape(spread, batch, heads, length, dim)

    def additive_mask(self, allowed: int, fill: str = "aten.zeros") -> int:
        """Turn a bool mask (True = attend) into zeros and large negative numbers."""
        zero = self.new(())
        self.emit(fill, (), (zero,))
        low = self.new(())
        self.emit("aten.scalar_tensor", (), (low,))
        out = self.new(self.shapes[allowed])
        self.emit("aten.where", (allowed, zero, low), (out,))
        return out
