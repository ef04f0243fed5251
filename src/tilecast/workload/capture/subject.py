"""What a capture runs: a module, function or configuration turned into a call on fake tensors."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from tilecast.errors import InputError, MissingExtraError
from tilecast.precision import STORAGE_OF

AUTOCAST = {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}
_DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", *AUTOCAST)


@dataclass(frozen=True, slots=True)
class Options:
    """What to capture; fields as the arguments of `capture`."""

    mode: str = "inference"
    batch: int = 1
    seq: int | None = None
    context: int = 0
    dtype: str = "fp32"
    loss: Any = "cross-entropy"
    optimizer: str = "adamw"
    attention: str = "auto"
    dropout: bool = True
    accumulate_gradients: bool = False
    head: str = "auto"

    @property
    def training(self) -> bool:
        """Whether the step has a backward pass."""
        return self.mode == "training"

    @property
    def caches(self) -> bool:
        """Whether the step reads or fills a key-value cache."""
        return self.mode in ("prefill", "decode")

    @property
    def weight_dtype(self) -> torch.dtype:
        """Dtype of weights and inputs (fp32 under autocast)."""
        if self.dtype in AUTOCAST:
            return torch.float32
        return getattr(torch, STORAGE_OF[self.dtype])

    def check(self) -> None:
        """Refuse values that mean nothing.

        Raises:
            InputError: naming the option and what was expected.
        """
        choices: dict[str, tuple[str, tuple[str, ...]]] = {
            "mode": (self.mode, ("inference", "training", "prefill", "decode")),
            "dtype": (self.dtype, _DTYPES),
            "attention": (self.attention, ("auto", "eager", "sdpa", "flash")),
        }
        if not callable(self.loss):
            choices["loss"] = (self.loss, ("cross-entropy", "model", "none"))
        for name, (value, allowed) in choices.items():
            if value not in allowed:
                raise InputError(f"--{name} {value}: expected one of {', '.join(allowed)}")
        for name, number, least in (
            ("batch", self.batch, 1),
            ("seq", 1 if self.seq is None else self.seq, 1),
            ("context", self.context, 1 if self.mode == "decode" else 0),
        ):
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise InputError(f"--{name} {number}: expected an integer of at least {least}")
        if self.context and not self.caches:
            raise InputError("--context: only prefill and decode have tokens in a cache")
        if self.attention == "flash" and self.dtype in ("fp64", "fp32", "tf32"):
            raise InputError(f"--attention flash: needs fp16 or bf16, got --dtype {self.dtype}")


@dataclass(slots=True)
class Subject:
    """What is run: a callable with its fake arguments, and the tensors it holds.

    Attributes:
        name: of the model.
        call: runs a forward pass.
        args, kwargs: its fake arguments.
        module: the module behind it, if any.
        labels: fake labels by argument name for the model's own loss.
        prepare: completes `kwargs` by running earlier steps, unrecorded, and returns the named
            tensors that they leave in memory (a key-value cache).
        meta: facts for `graph.meta`.
        values: fake inputs and the real ones they stand for.
        assumptions: what was decided for lack of data or a GPU.
    """

    name: str
    call: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    module: nn.Module | None = None
    labels: dict[str, torch.Tensor] = field(default_factory=dict)
    prepare: Callable[[], list[tuple[str, torch.Tensor]]] | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    values: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)


def fake(value: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A tensor with no data and the same shape and strides, its floating dtype replaced."""
    kind = dtype if dtype is not None and value.is_floating_point() else value.dtype
    twin = torch.empty_strided(value.shape, value.stride(), dtype=kind, device="meta")
    return twin.requires_grad_(value.requires_grad)


def fake_module(module: nn.Module) -> nn.Module:
    """A copy of a module whose tensors have no data. The module given is not touched.

    Raises:
        InputError: the module cannot be copied.
    """
    memo: dict[int, Any] = {}
    for part in module.modules():
        for parameter in part._parameters.values():
            if parameter is not None:
                memo[id(parameter)] = nn.Parameter(
                    fake(parameter.detach()), parameter.requires_grad
                )
        for value in (*part._buffers.values(), *vars(part).values()):
            if isinstance(value, torch.Tensor):
                memo[id(value)] = fake(value.detach())
    try:
        return copy.deepcopy(module, memo)
    except Exception as error:
        raise InputError(
            f"{type(module).__name__}: cannot be copied ({type(error).__name__}: {error}); "
            "build it under torch.device('meta') and pass it as a function"
        ) from error


def _fake_inputs(
    value: Any, dtype: torch.dtype | None, values: list[tuple[torch.Tensor, torch.Tensor]]
) -> Any:
    """Arguments with every tensor replaced; real ones are noted beside their twins."""
    if isinstance(value, torch.Tensor):
        twin = fake(value, dtype)
        if not value.is_meta:
            values.append((twin, value))
        return twin
    if isinstance(value, Mapping):
        return {key: _fake_inputs(item, dtype, values) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_fake_inputs(item, dtype, values) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def subject_of(model: Any, inputs: Any, options: Options) -> Subject:
    """What to run for a module, a function, a configuration or the path of one.

    Raises:
        InputError: it is none of these, or its inputs are missing.
        MissingExtraError: a configuration is given and transformers is not installed.
    """
    if isinstance(model, type):
        raise InputError(f"capture: {model.__name__} is a class; expected an instance of it")
    if inputs is None and _makes_a_model(model):
        model, inputs = _made_by(model)
    if not callable(model):
        return _of_config(model, inputs, options)
    if _is_pretrained(model):
        return _of_pretrained(model, inputs, options)
    return _of_callable(model, inputs, options)


def _makes_a_model(model: Any) -> bool:
    """Whether a callable is a function without arguments, which can only be called to get one."""
    if not callable(model) or isinstance(model, nn.Module):
        return False
    try:
        inspect.signature(model).bind()
    except (TypeError, ValueError):
        return False
    return True


def _made_by(make: Callable[[], Any]) -> tuple[Any, Any]:
    """The model that a function makes, and the inputs where it gives them as well."""
    try:
        with torch.device("meta"):
            made = make()
    except Exception:  # some constructors read values (a schedule of drop rates): give them some
        made = make()
    if isinstance(made, tuple) and len(made) == 2:
        return made
    return made, None


def _is_pretrained(model: Any) -> bool:
    transformers = sys.modules.get("transformers")
    return transformers is not None and isinstance(model, transformers.PreTrainedModel)


def _of_callable(model: Any, inputs: Any, options: Options) -> Subject:
    if options.caches:
        raise InputError(
            f"--mode {options.mode}: needs a Hugging Face model; any other module or function is "
            "captured with the inputs given"
        )
    if inputs is None:
        inputs = getattr(model, "example_input_array", None)  # PyTorch Lightning's name for them
    if inputs is None:
        raise InputError(
            "capture: inputs: expected the example tensors of the module or function (a function "
            "without arguments may return a module and its inputs)"
        )
    dtype = options.weight_dtype
    values: list[tuple[torch.Tensor, torch.Tensor]] = []
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if isinstance(inputs, Mapping):
        kwargs = _fake_inputs(inputs, dtype, values)
    else:
        args = _fake_inputs(
            tuple(inputs) if isinstance(inputs, (list, tuple)) else (inputs,), dtype, values
        )
    owner = model if isinstance(model, nn.Module) else getattr(model, "__self__", None)
    name = getattr(model, "__name__", type(model).__name__)
    if not isinstance(owner, nn.Module):
        return Subject(name, model, args, kwargs, values=values)
    owner = getattr(owner, "_orig_mod", owner)  # what torch.compile wraps
    module = fake_module(owner).to(dtype)
    module.train(options.training)
    call = module if isinstance(model, nn.Module) else getattr(module, model.__name__)
    return Subject(type(owner).__name__, call, args, kwargs, module, values=values)


def _of_config(model: Any, inputs: Any, options: Options) -> Subject:
    if find_spec("transformers") is None:
        raise MissingExtraError("capture of a Hugging Face model", "torch")
    from tilecast.workload.capture import huggingface as hf

    assumptions: list[str] = []
    module = hf.build(
        hf.load_config(model), options.head, options.weight_dtype, options.attention, assumptions
    )
    subject = _of_huggingface(module, inputs, options)
    subject.assumptions = assumptions
    return subject


def _of_pretrained(model: Any, inputs: Any, options: Options) -> Subject:
    """A Hugging Face model that exists already: its class and configuration stay as they are."""
    from tilecast.workload.capture import huggingface as hf

    if options.head != "auto":
        raise InputError(f"--head {options.head}: {type(model).__name__} has its head already")
    module = fake_module(model).to(options.weight_dtype)
    hf.set_attention(module, options.attention)
    return _of_huggingface(module, inputs, options)


def _of_huggingface(module: Any, inputs: Any, options: Options) -> Subject:
    from tilecast.workload.capture import huggingface as hf

    module.train(options.training)
    reads_tokens = hf.reads_tokens(module)
    seq = options.seq
    if options.mode == "decode" and seq is None:
        seq = 1
    if reads_tokens and seq is not None:
        hf.check_length(module.config, seq + options.context)
    values: list[tuple[torch.Tensor, torch.Tensor]] = []
    dtype = options.weight_dtype
    if inputs is None:
        kwargs: dict[str, Any] = dict(hf.inputs_of(module, options.batch, seq, dtype))
    elif isinstance(inputs, Mapping):
        kwargs = _fake_inputs(inputs, dtype, values)
    else:
        raise InputError(
            "capture: inputs of a Hugging Face model: expected a dict by argument name"
        )
    hf.switch_cache(module, options.caches, kwargs)
    subject = Subject(type(module).__name__, module, (), kwargs, module, values=values)
    subject.meta = hf.facts(module, kwargs)
    if seq is not None and reads_tokens:
        subject.meta["seq"] = seq
    if options.training and options.loss == "model":
        subject.labels = hf.labels_of(module, options.batch, seq)
    if options.context:
        subject.prepare = lambda: hf.fill_cache(module, kwargs, options.batch, options.context)
    return subject
