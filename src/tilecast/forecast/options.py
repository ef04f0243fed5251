"""What is run: the options of a forecast, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from tilecast.errors import InputError
from tilecast.precision import STORAGE_OF

Mode = Literal["inference", "training", "prefill", "decode"]

MODES: Final = ("inference", "training", "prefill", "decode")
ATTENTIONS: Final = ("auto", "eager", "sdpa", "flash")
LOSSES: Final = ("none", "cross-entropy", "model")
OPTIMIZERS: Final = ("none", "sgd", "adam", "adamw")
DTYPES: Final = ("fp32", "tf32", "fp16", "bf16", "amp-fp16", "amp-bf16")
#: Larger than any run; a count above it is a slip of the keyboard.
MAX_COUNT: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class Options:
    """How the model is run.

    Attributes:
        mode: `inference` (one forward pass, all logits), `training` (forward, loss, backward,
            optimizer step), `prefill` or `decode` (with a KV cache).
        batch: sequences or images in a step. seq: length processed now (None: the model's
            own default). context: tokens already in the cache.
        dtype: of weights and arithmetic; `amp-*` keeps fp32 weights under autocast.
        attention: implementation of attention; `auto` takes PyTorch's default (SDPA).
        loss, optimizer: of a training step. None takes cross-entropy and AdamW in training.
        dropout: whether dropout runs in training.
        accumulate: forward and backward passes before each optimizer step.
        accumulate_gradients: gradients are added to ones that exist already; None: when
            `accumulate` is over 1.
        head: task head of an architecture that has several (`auto` reads the config).

    Raises:
        InputError: a value that is impossible, naming the option.
    """

    mode: str = "inference"
    batch: int = 1
    seq: int | None = None
    context: int = 0
    dtype: str = "fp32"
    attention: str = "auto"
    loss: str | None = None
    optimizer: str | None = None
    dropout: bool = True
    accumulate: int = 1
    accumulate_gradients: bool | None = None
    head: str = "auto"

    def __post_init__(self) -> None:
        for option, value, known in (
            ("mode", self.mode, MODES),
            ("attention", self.attention, ATTENTIONS),
            ("dtype", self.dtype, DTYPES),
            ("loss", self.loss or "none", LOSSES),
            ("optimizer", self.optimizer or "none", OPTIMIZERS),
        ):
            if value not in known:
                hint = ""
                if option == "dtype" and value in STORAGE_OF:
                    hint = " (whole models run in these so far; kernels in any)"
                raise InputError(f"--{option} {value}: expected {', '.join(known)}{hint}")
        for option, count, least in (
            ("batch", self.batch, 1),
            ("seq", 1 if self.seq is None else self.seq, 1),
            ("context", self.context, 0),
            ("accumulate", self.accumulate, 1),
        ):
            if isinstance(count, bool) or not isinstance(count, int):
                raise InputError(f"--{option} {count!r}: expected a whole number")
            if not least <= count <= MAX_COUNT:
                raise InputError(f"--{option} {count}: expected {least} to {MAX_COUNT}")
        if self.context and self.mode not in ("prefill", "decode"):
            raise InputError(f"--context {self.context}: only with --mode prefill or decode")
        if self.accumulate > 1 and self.mode != "training":
            raise InputError(f"--accumulate {self.accumulate}: only with --mode training")

    def graph_arguments(self) -> dict[str, object]:
        """Keyword arguments of `blueprint` and `capture`."""
        training = self.mode == "training"
        accumulates = self.accumulate_gradients
        return {
            "mode": self.mode,
            "batch": self.batch,
            "seq": self.seq,
            "context": self.context,
            "dtype": self.dtype,
            "attention": self.attention,
            "dropout": self.dropout,
            "loss": self.loss or ("cross-entropy" if training else "none"),
            "optimizer": self.optimizer or ("adamw" if training else "none"),
            "accumulate_gradients": self.accumulate > 1 if accumulates is None else accumulates,
        }
