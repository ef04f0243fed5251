"""What every model family is written with: the run's settings and the shared pieces of a model."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilecast.errors import InputError
from tilecast.workload.blueprint.products import Products
from tilecast.workload.blueprint.strides import contiguous
from tilecast.workload.blueprint.tape import NONE, Attrs
from tilecast.workload.graph import Kind


@dataclass(frozen=True, slots=True)
class Run:
    """How a model is run once.

    Attributes:
        mode: `inference`, `training`, `prefill` or `decode`.
        batch: sequences or images.
        seq: tokens of each sequence that are processed now.
        context: tokens already in the KV cache.
        attention: `eager` or `sdpa`.
        loss: `none`, `cross-entropy` (over the output as it is) or `model` (the model's own,
            from labels).
        head: task head, `auto` for the family's usual one.
        fills_cache: the model appends to an empty KV cache in every mode.
    """

    mode: str = "inference"
    batch: int = 1
    seq: int = 1
    context: int = 0
    attention: str = "sdpa"
    loss: str = "none"
    head: str = "auto"
    fills_cache: bool = False

    @property
    def cached(self) -> bool:
        """Whether a KV cache is filled or extended."""
        return self.fills_cache or self.mode in ("prefill", "decode")

    @property
    def length(self) -> int:
        """Keys that each query may see: cached and new."""
        return self.context + self.seq

    def check_positions(self, limit: int, field: str) -> None:
        """Refuse a sequence past the model's position table.

        Raises:
            InputError: names the limit.
        """
        if self.length > limit:
            more = f" with {self.context} in the cache" if self.context else ""
            raise InputError(f"seq {self.seq}{more} is over the model's limit: {field} is {limit}")


class Builder(Products):
    """A tape with the pieces that Transformers' models share."""

    #: Settings of the run; `blueprint` sets them before the model is built.
    run: Run = Run()
    #: Output of a second head, where the model has one that its own loss counts in.
    second_output: int = NONE
    #: Whether the model's own loss compares each position with the next token.
    shifts_labels: bool = True

    # ---- activations -------------------------------------------------------------------------

    def activation(self, x: int, name: str) -> int:
        """An activation function by its name in a config."""
        if name == "gelu_new":
            return self._gelu_new(x)
        if name in ("gelu_pytorch_tanh", "gelu_fast"):
            return self.unary("aten.gelu", x, (("approximate", "tanh"),))
        kernel = {"gelu": "aten.gelu", "relu": "aten.relu", "silu": "aten.silu",
                  "swish": "aten.silu", "tanh": "aten.tanh"}[name]  # fmt: skip
        return self.unary(kernel, x, (("approximate", "none"),) if name == "gelu" else ())

    def _gelu_new(self, x: int) -> int:
        """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), one kernel an operation."""
        half = self.mul_scalar(x, 0.5)
        inner = self.add(x, self.mul_scalar(self.pow(x, 3.0), 0.044715))
        bent = self.unary("aten.tanh", self.mul_scalar(inner, 0.7978845608028654))
        return self.mul(half, self.add_scalar(bent, 1.0))

    # ---- token positions and masks -----------------------------------------------------------

    def index(
        self, name: str, *inputs: int, shape: tuple[int, ...], dtype: str = "int64",
        attrs: Attrs = (),
    ) -> int:  # fmt: skip
        """Emit an operator over small integer tensors (positions, masks) of given result shape."""
        out = self.new(shape, dtype)
        self.emit(name, inputs, (out,), attrs)
        return out

    def arange(self, length: int) -> int:
        """`torch.arange(length)`."""
        return self.index("aten.arange", shape=(length,), attrs=(("end", length),))

    def positions(self) -> int:
        """(1, seq) position ids as Transformers makes them: arange, plus the cached length."""
        seq = self.run.seq
        steps = self.arange(seq)
        return self.unsqueeze(self.index("aten.add", steps, shape=(seq,)), 0)

    def _check_packing(self, positions: int) -> None:
        """The test whether several sequences are packed in one row; it reads its answer back."""
        batch, seq = self.run.batch, self.run.seq
        if self.shapes[positions][0] != batch:
            positions = self.expand(positions, batch, -1)
        first = self.alias(positions) if seq == 1 else self._narrowed(positions, 1, 0, 1)
        before = self.index("aten.sub", first, shape=(batch, 1))
        joined = self.cat((before, positions), 1)
        here = self._narrowed(joined, 1, 0, seq)
        there = self._narrowed(joined, 1, 1, seq + 1)
        steps = self.index("aten.sub", there, here, shape=(batch, seq))
        breaks = self.index("aten.ne", steps, shape=(batch, seq), dtype="bool")
        packs = self.index("aten.cumsum", breaks, shape=(batch, seq), attrs=(("dim", 1),))
        last = self.select(packs, 1, seq - 1)
        single = self.index("aten.eq", last, shape=(batch,), dtype="bool")
        answer = self.index("aten.all", single, shape=(), dtype="bool")
        self.emit("aten._local_scalar_dense", (answer,), ())

    def causal_mask(self, positions: int, window: int | None = None) -> tuple[int, bool]:
        """The causal mask as Transformers makes it.

        Args:
            positions: (1 or batch, seq) position ids, or NONE when the model passes none.
            window: size of a sliding window, if any.

        Returns:
            (mask or NONE, whether the kernel masks causally by itself).
        """
        run = self.run
        if positions >= 0 and not run.cached:
            self._check_packing(positions)
        cached = run.context if window is None else min(run.context, window - 1)
        narrow = window is not None and cached + run.seq >= window
        aligned = run.seq == 1 or run.context == 0
        if run.attention == "sdpa" and aligned and not narrow:
            return NONE, run.seq > 1
        mask = self._mask_grid(cached + run.seq, windowed=window is not None)
        if run.attention == "eager":
            mask = self.additive_mask(mask)
        return mask, False

    def padded_mask(self) -> int:
        """Additive causal mask of a model that makes itself a mask of ones for the padding."""
        run = self.run
        kept = self.index("aten.ones", shape=(run.batch, run.length), dtype="float32")
        kept = self.index("aten._to_copy", kept, shape=self.shapes[kept], dtype="bool")
        return self.additive_mask(self._mask_grid(run.length, windowed=False, kept=kept))

    def _mask_grid(self, length: int, *, windowed: bool, kept: int = NONE) -> int:
        """(batch, 1, seq, length) bool: which of the last `length` keys each query may see.

        `kept` is a (batch, length) bool mask of tokens that are no padding, or NONE.
        """
        run = self.run
        seq = run.seq
        batches = self.arange(run.batch)
        heads = self.arange(1)
        queries = self.index("aten.add", self.arange(seq), shape=(seq,))
        keys = self.index("aten.add", self.arange(length), shape=(length,))
        for dim in (1, 2, 3):
            batches = self.unsqueeze(batches, dim)
        for dim in (0, 2, 3):
            heads = self.unsqueeze(heads, dim)
        for dim in (0, 1, 3):
            queries = self.unsqueeze(queries, dim)
        for dim in (0, 1, 2):
            keys = self.unsqueeze(keys, dim)
        grid = (1, 1, seq, length)
        if windowed:
            ones = self.index("aten.new_ones", queries, shape=(), dtype="bool")
            edge = self.index("aten.sub", queries, shape=self.shapes[queries])
            inside = self.index("aten.gt", keys, edge, shape=grid, dtype="bool")
            inside = self.index("aten.bitwise_and", ones, inside, shape=grid, dtype="bool")
            before = self.index("aten.le", keys, queries, shape=grid, dtype="bool")
            allowed = self.index("aten.bitwise_and", inside, before, shape=grid, dtype="bool")
        elif kept >= 0:
            ones = self.index("aten.new_ones", queries, shape=(), dtype="bool")
            before = self.index("aten.le", keys, queries, shape=grid, dtype="bool")
            allowed = self.index("aten.bitwise_and", ones, before, shape=grid, dtype="bool")
            whole = (run.batch, 1, 1, length)
            kept = self.index("aten.index", kept, batches, keys, shape=whole, dtype="bool")
            whole = (run.batch, *grid[1:])
            allowed = self.index("aten.bitwise_and", allowed, kept, shape=whole, dtype="bool")
        else:
            allowed = self.index("aten.le", keys, queries, shape=grid, dtype="bool")
        return self.expand(allowed, run.batch, -1, seq, length)

    # ---- attention ---------------------------------------------------------------------------

    def kept_positions(self, x: int) -> int:
        """Positions whose logits are computed: the last one with a cache, else all."""
        if self.run.cached:
            return self.slice(x, 1, self.run.seq - 1, self.run.seq)
        return self.alias(x)

    def cache(self, name: str, k: int, v: int, window: int | None = None) -> tuple[int, int]:
        """Append new keys and values to a layer's cache (`DynamicCache` concatenates).

        Args:
            name: of the attention module.
            k, v: (batch, kv_heads, seq, head_dim).
            window: of a layer that keeps no more than the last window - 1 tokens.
        """
        if not self.run.cached:
            return k, v
        total = context = self.run.context
        if window is not None:
            context = min(context, window - 1)
            if total:  # a sliding cache counts its tokens on the device
                self.new((), "int64", kind=Kind.INPUT, name=f"{name}.cache.cumulative_length")
            else:
                self.index("aten._to_copy", shape=())
        grown = []
        for part, fresh in (("keys", k), ("values", v)):
            batch, heads, _, dim = self.shapes[fresh]
            held = (batch, heads, context, dim) if context else (0,)
            # What a window has left of a longer cache is a view of it.
            strides = contiguous((batch, heads, total, dim)) if context else None
            past = self.new(held, None, strides, kind=Kind.INPUT, name=f"{name}.cache.{part}")
            grown.append(self.cat((past, fresh), 2))
        if window is not None:
            for full in grown:
                length = self.shapes[full][2]
                self.slice(full, 2, max(0, length - window + 1), length)
        return grown[0], grown[1]

    def attend(
        self, q: int, k: int, v: int, mask: int, scale: float, p: float, *,
        causal: bool, upcast: bool = False, copy: bool = True, bias: int = NONE,
    ) -> int:  # fmt: skip
        """Attention by the run's back end, as (batch, seq, heads, head_dim).

        Args:
            q: (batch, heads, seq, head_dim).
            k, v: (batch, kv_heads, length, head_dim).
            mask, causal: as `causal_mask` gives them.
            scale: factor of the scores.
            p: dropout probability of the attention weights.
            upcast: the model's eager softmax runs in fp32.
            copy: the model's eager attention ends with a contiguous copy.
            bias: of the scores by position in eager attention (a fused kernel has it in `mask`).
        """
        if self.run.attention == "eager":
            heads = self.shapes[q][1]
            k, v = self.repeat_heads(k, heads), self.repeat_heads(v, heads)
            out = self.eager_attention(q, k, v, mask, scale, p, upcast=upcast, bias=bias)
            out = self.transpose(out, 1, 2)
            return self.contiguous(out) if copy else out
        batch, heads, seq, dim = self.shapes[q]
        if heads != self.shapes[k][1] and (mask >= 0 or dim > 256):
            # Grouped heads with a mask have no fused kernel: one query packs its group of heads
            # into the query length, more repeat the keys.
            groups = self.shapes[k][1]
            if seq == 1:
                q = self.reshape(q, batch, groups, heads // groups, dim)
            else:
                k, v = self.repeat_heads(k, heads), self.repeat_heads(v, heads)
        if mask >= 0 and self.dtypes[mask] == "bool":
            mask = self.additive_mask(mask, fill="aten.scalar_tensor")
        out = self.sdpa(q, k, v, mask, scale, p, causal=causal)
        out = self.reshape(out, batch, heads, seq, self.shapes[v][-1])
        return self.contiguous(self.transpose(out, 1, 2))

    # ---- losses ------------------------------------------------------------------------------

    def token_loss(self, logits: int) -> int:
        """Cross-entropy of (..., classes) logits against one label for each row.

        The models' own language-model loss takes fp32 logits and the next token as label.
        """
        shape = self.shapes[logits]
        if self.run.loss != "model":
            labels = self.input("labels", (prod(shape[:-1]),))
            return self.cross_entropy(self.view(logits, -1, shape[-1]), labels)
        labels = self.input("labels", shape[:-1])
        if self.shifts_labels:
            logits = self.cast(logits, "float32")
            batch, seq = self.shapes[labels]
            padded = self.index("aten.constant_pad_nd", labels, shape=(batch, seq + 1))
            labels = self.clone(self._narrowed(padded, 1, 1, seq + 1))
        rows = self.view(logits, -1, shape[-1])
        return self.cross_entropy(rows, self.view(labels, -1))
