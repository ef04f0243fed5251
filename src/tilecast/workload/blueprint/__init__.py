"""Graphs written straight from a model config: what capture would record, without torch.

`blueprint` reads a Hugging Face config (a preset or a parsed `config.json`), and writes the ATen
operators that eager PyTorch on a CUDA device dispatches for one run of that model: forward,
backward and optimizer step, views included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tilecast.errors import InputError, UnknownNameError
from tilecast.precision import STORAGE_OF
from tilecast.workload.blueprint import bert, gpt2, llama, opt, optimizers, switch, t5
from tilecast.workload.blueprint.builder import Builder, Run
from tilecast.workload.blueprint.fields import LARGEST, Fields
from tilecast.workload.graph import Graph

__all__ = ["STACK", "blueprint", "supports"]

#: Versions whose operators the blueprints write (modelling code changes between releases).
STACK: Final[dict[str, str]] = {"torch": "2.13", "transformers": "5.24"}

MODES: Final = ("inference", "training", "prefill", "decode")
ATTENTIONS: Final = ("auto", "eager", "sdpa", "flash")
LOSSES: Final = ("cross-entropy", "none", "model")
#: Precisions in which eager PyTorch runs a model; quantised ones have kernels of their own.
DTYPES: Final = ("fp64", "fp32", "tf32", "fp16", "bf16")


@dataclass(frozen=True, slots=True)
class Family:
    """How to write one model type.

    Attributes:
        build: emits the forward pass; returns the output that a loss is taken of.
        loss: emits the loss of that output; returns the scalar.
        heads: task heads beyond `auto` and `base`.
        fused: its attention has fused kernels (else it is always `eager`).
        cached: it can be run with a KV cache of the caller's.
    """

    build: Callable[[Builder, Fields], int]
    loss: Callable[[Builder, int], int]
    heads: tuple[str, ...] = ()
    fused: bool = True
    cached: bool = True


#: By the `model_type` of the config.
FAMILIES: Final[dict[str, Family]] = {
    "gpt2": Family(gpt2.build, Builder.token_loss, ("causal-lm",)),
    "bert": Family(bert.build, bert.loss, bert.HEADS),
    "opt": Family(opt.build, Builder.token_loss, ("causal-lm",)),
    "switch_transformers": Family(
        switch.build, Builder.token_loss, t5.HEADS, fused=False, cached=False
    ),
    "t5": Family(t5.build, Builder.token_loss, t5.HEADS),
    **{kind: Family(llama.build, Builder.token_loss, ("causal-lm",)) for kind in llama.VARIANTS},
}


def supports(config: Mapping[str, Any]) -> bool:
    """Whether there is a blueprint for the `model_type` of a config."""
    return config.get("model_type") in FAMILIES


def blueprint(
    config: Mapping[str, Any],
    *,
    name: str = "",
    mode: str = "inference",
    batch: int = 1,
    seq: int | None = None,
    context: int = 0,
    dtype: str = "fp32",
    attention: str = "auto",
    dropout: bool = True,
    loss: str = "cross-entropy",
    optimizer: str = "none",
    accumulate_gradients: bool = False,
    head: str = "auto",
) -> Graph:
    """Write the graph of one run of a model.

    Args:
        config: a Hugging Face config (`model_type` says which model).
        name: of the graph; the config's own when empty.
        mode: `inference` (no gradients, all logits), `training` (forward, loss, backward and
            optimizer), `prefill` or `decode` (a KV cache is filled or extended).
        batch: sequences (or images).
        seq: tokens processed now (decode: 1).
        context: tokens already in the KV cache (decode, and prefill in chunks).
        dtype: precision of weights and arithmetic.
        attention: `sdpa` (also `auto`, Transformers' default) or `eager`; `flash` is `sdpa` that
            insists on FlashAttention.
        dropout: whether training drops out.
        loss: over the output as it is (`cross-entropy`), the model's own, or none (the gradient
            then starts from a given gradient of the output).
        optimizer: `none`, `sgd`, `adam` or `adamw`.
        accumulate_gradients: gradients are added to ones that are already there.
        head: task head; `base` for the bare model, `auto` for the config's own.

    Raises:
        InputError: a field of the config or an option that cannot be used.
    """
    kind = config.get("model_type")
    family = FAMILIES.get(str(kind))
    if family is None:
        if not kind:
            raise InputError("config: model_type is missing; expected the name of a model family")
        raise UnknownNameError("model_type", str(kind), FAMILIES)
    _one_of("mode", mode, MODES)
    _one_of("attention", attention, ATTENTIONS)
    _one_of("loss", loss, LOSSES)
    _one_of("optimizer", optimizer, ("none", *optimizers.OPTIMIZERS))
    _one_of("dtype", dtype, DTYPES)
    _one_of("head", head, ("auto", "base", *family.heads))
    if optimizer != "none" and mode != "training":
        raise InputError(f"optimizer is '{optimizer}'; expected 'none' in mode '{mode}'")
    if attention == "flash" and dtype not in ("fp16", "bf16"):
        raise InputError(f"attention is 'flash'; expected dtype fp16 or bf16, not {dtype}")
    if attention in ("sdpa", "flash") and not family.fused:
        raise InputError(f"attention is '{attention}'; expected 'eager' (or 'auto') for {kind}")
    if mode in ("prefill", "decode") and not family.cached:
        raise InputError(f"mode is '{mode}'; expected 'inference' or 'training' for {kind}")
    fields = Fields(config, name or str(kind))
    if seq is None:
        if mode != "decode":
            raise InputError(f"seq: expected the number of tokens; {fields.model} reads tokens")
        seq = 1
    cached = 1 if mode == "decode" else 0
    for option, value, least in (
        ("batch", batch, 1), ("seq", seq, 1), ("context", context, cached),
    ):  # fmt: skip
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
            raise InputError(f"{option} is {value!r}; expected a whole number of at least {least}")
    if loss == "model" and head == "base" and mode == "training":
        raise InputError("loss is 'model'; expected another, head 'base' has no loss of its own")
    if context and mode not in ("prefill", "decode"):
        raise InputError(f"context is {context}; expected 0 in mode '{mode}', which has no cache")

    training = mode == "training"
    run = Run(
        mode, batch, seq, context,
        "eager" if attention == "eager" or not family.fused else "sdpa",
        loss if training else "none", head,
    )  # fmt: skip
    builder = Builder(
        name or str(kind), STORAGE_OF[dtype], training=training, accumulate=accumulate_gradients
    )
    builder.run = run
    builder.drops = dropout
    output = family.build(builder, fields)
    if attention == "flash" and not any("flash_attention" in op.name for op in builder.graph.ops):
        raise InputError(
            "attention is 'flash'; expected a run that FlashAttention takes (no mask, heads of at "
            "most 256): use 'sdpa'"
        )
    if training:
        builder.module = ""
        if loss == "none":
            builder.backward(output, given=True)
        else:
            builder.backward(family.loss(builder, output))
        if optimizer != "none":
            optimizers.step(builder, optimizer)
    graph = builder.finish()
    graph.meta = {
        "source": "blueprint",
        "stack": dict(STACK), "model_type": kind, "mode": mode, "batch": batch, "seq": seq,
        "context": context, "dtype": dtype, "attention": run.attention, "loss": run.loss,
        "optimizer": optimizer, "dropout": dropout and training, "head": head,
        "accumulate_gradients": accumulate_gradients,
    }  # fmt: skip
    return graph


def _one_of(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UnknownNameError(option, str(value), allowed, f"one of {', '.join(allowed)}")
