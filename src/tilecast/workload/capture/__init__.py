"""Operator graphs of PyTorch and Hugging Face models, recorded on tensors that have no data.

`capture` needs no GPU, no weights and no memory for them: the model runs once on fake tensors, and
every ATen operator that eager PyTorch would launch on CUDA is written down.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tilecast.errors import MissingExtraError
from tilecast.workload.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["capture"]


def capture(
    model: Any,
    inputs: Any = None,
    *,
    mode: str = "inference",
    batch: int = 1,
    seq: int | None = None,
    context: int = 0,
    dtype: str = "fp32",
    loss: str | Callable[[Any], Any] = "cross-entropy",
    optimizer: str = "adamw",
    attention: str = "auto",
    dropout: bool = True,
    accumulate_gradients: bool = False,
    head: str = "auto",
) -> Graph:
    """Record what eager PyTorch on CUDA launches for one step of a model.

    Args:
        model: an `nn.Module`, a function of tensors, a Hugging Face configuration, the path of a
            config.json or its folder, or a function without arguments that returns a module (or
            a module and its inputs). A module is copied without its data and left as it is.
        inputs: example tensors of a module or function: one tensor, a tuple of arguments, or a
            dict by argument name. Only shapes and dtypes matter (small integer tensors are also
            read where the model branches on them). A Hugging Face model needs none.
        mode: `inference` (forward, no cache), `training` (forward, loss, backward, optimizer),
            `prefill` (forward that fills a key-value cache) or `decode` (forward over a cache of
            `context` tokens); both compute the last token's logits only, as `generate` does.
        batch: sequences or images a step, where the inputs are made from a configuration.
        seq: tokens processed in the step, for a text model's configuration (decode: 1).
        context: tokens already in the cache, for `decode` (and for a later chunk of `prefill`).
        dtype: `fp32`, `tf32`, `fp64`, `fp16`, `bf16` (weights and inputs), `amp-bf16`, `amp-fp16`
            (fp32 weights under autocast).
        loss: for training. `cross-entropy` of the logits against integer labels, with the classes
            last; `model`, the model's own; `none`, where backward starts from a given gradient of
            the output; or a function of the model's output.
        optimizer: `adamw`, `adam`, `sgd`, `sgd-momentum`, ... or `none`.
        attention: `auto` (the model's default), `sdpa`, `flash` or `eager`.
        dropout: False turns dropout off in training.
        accumulate_gradients: add to gradients that already exist.
        head: of a Hugging Face model: `auto` (the configuration's architecture, else the language
            model or classifier of its type), `base` (or `none`), `causal-lm`, `masked-lm`,
            `pretraining`, `seq2seq-lm`, `sequence-classification`, `token-classification`,
            `question-answering` or `image-classification`.

    Returns:
        The graph: operators in launch order with shapes, dtypes, strides, phase and module.

    Raises:
        InputError: an option is out of range, or the model cannot run on shapes alone.
        MissingExtraError: PyTorch, or transformers for a configuration, is not installed.
    """
    if find_spec("torch") is None:
        raise MissingExtraError("capture", "torch")
    from tilecast.workload.capture.session import run
    from tilecast.workload.capture.subject import Options

    return run(
        model,
        inputs,
        Options(
            mode, batch, seq, context, dtype, loss, optimizer, attention, dropout,
            accumulate_gradients, head,
        ),
    )  # fmt: skip
