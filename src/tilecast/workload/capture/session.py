"""One capture: a model on fake tensors, run under the recorder."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from tilecast.errors import InputError, MissingExtraError, TilecastError
from tilecast.precision import STORAGE_OF
from tilecast.workload.capture import step
from tilecast.workload.capture.autocast import Autocast
from tilecast.workload.capture.cuda import CudaOperators
from tilecast.workload.capture.recorder import Recorder, declare_all
from tilecast.workload.capture.scopes import Scopes
from tilecast.workload.capture.values import Values
from tilecast.workload.graph import Graph, Kind, Phase

_AUTOCAST = {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}
_DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", *_AUTOCAST)


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

    def check(self) -> None:
        """Refuse values that mean nothing."""
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
        if self.context and self.mode != "decode":
            raise InputError("--context: only --mode decode has tokens in the cache")
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
        past: named tensors that are in memory from earlier steps (a key-value cache).
        prepare: makes `kwargs` complete by running earlier steps, unrecorded.
        meta: facts for `graph.meta`.
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
    module = getattr(module, "_orig_mod", module)  # what torch.compile wraps
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


def _subject_of_callable(model: Any, inputs: Any, options: Options) -> Subject:
    if options.mode in ("prefill", "decode"):
        raise InputError(
            f"--mode {options.mode}: needs a Hugging Face configuration; a module or function is "
            "captured with the inputs given"
        )
    if inputs is None:
        raise InputError("capture: inputs: expected the example tensors of the module or function")
    dtype = None if options.dtype in _AUTOCAST else getattr(torch, STORAGE_OF[options.dtype])
    values: list[tuple[torch.Tensor, torch.Tensor]] = []

    def fake_input(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            twin = fake(value, dtype)
            if not value.is_meta:
                values.append((twin, value))
            return twin
        if isinstance(value, (list, tuple)):
            items = [fake_input(item) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        if isinstance(value, Mapping):
            return {key: fake_input(item) for key, item in value.items()}
        return value

    if isinstance(inputs, Mapping):
        args, kwargs = (), fake_input(inputs)
    else:
        args = tuple(fake_input(list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]))
        kwargs = {}
    owner = model if isinstance(model, nn.Module) else getattr(model, "__self__", None)
    name = getattr(model, "__name__", type(model).__name__)
    if not isinstance(owner, nn.Module):
        return Subject(name, model, args, kwargs, values=values)
    module = fake_module(owner)
    if dtype is not None:
        module = module.to(dtype)
    module.train(options.training)
    call = module if owner is model else getattr(module, model.__name__)
    return Subject(
        type(owner).__name__ if owner is model else name, call, args, kwargs, module, values=values
    )


def _subject_of_config(model: Any, inputs: Any, options: Options) -> Subject:
    try:
        import transformers
    except ImportError as error:
        raise MissingExtraError("capture of a Hugging Face model", "torch") from error
    from tilecast.workload.capture import huggingface as hf

    config = hf.load_config(model)
    amp = options.dtype in _AUTOCAST
    dtype = torch.float32 if amp else getattr(torch, STORAGE_OF[options.dtype])
    module = hf.build(config, options.head, dtype, options.attention)
    module.train(options.training)
    seq = options.seq
    if options.mode == "decode" and seq is None:
        seq = 1
    if hf.needs_seq(module) and seq is not None:
        hf.check_length(module.config, seq + options.context)
    if inputs is None:
        kwargs: dict[str, Any] = dict(hf.inputs_of(module, options.batch, seq, dtype))
    elif isinstance(inputs, Mapping):
        kwargs = {k: fake(v, dtype) if isinstance(v, torch.Tensor) else v
                  for k, v in inputs.items()}  # fmt: skip
    else:
        raise InputError(
            "capture: inputs of a Hugging Face model: expected a dict by argument name"
        )
    cached = options.mode in ("prefill", "decode")
    hf.switch_cache(module, cached, kwargs)
    subject = Subject(type(module).__name__, module, (), kwargs, module)
    subject.meta = {
        "transformers": transformers.__version__,
        "model_type": module.config.model_type,
        "attention_implementation": getattr(module.config, "_attn_implementation", None),
        "experts_implementation": getattr(module.config, "_experts_implementation", None),
        "logits_to_keep": kwargs.get("logits_to_keep"),
    }
    if seq is not None and hf.needs_seq(module):
        subject.meta["seq"] = seq
    if options.training and options.loss == "model":
        subject.labels = hf.labels_of(module, options.batch, seq)
    if options.mode == "decode":
        subject.prepare = _filled_cache(module, subject, options)
    return subject


def _filled_cache(
    module: Any, subject: Subject, options: Options
) -> Callable[[], list[tuple[str, torch.Tensor]]]:
    """Fills the cache by a forward pass over the context, so each model makes its own kind."""
    from tilecast.workload.capture import huggingface as hf

    def prepare() -> list[tuple[str, torch.Tensor]]:
        earlier = hf.inputs_of(module, options.batch, options.context, torch.float32)
        output = module(**earlier, use_cache=True)
        cache = output.past_key_values
        kept = hf.cached_tensors(cache)
        if module.config.is_encoder_decoder:
            subject.kwargs.pop("input_ids")
            state = output.encoder_last_hidden_state
            subject.kwargs["encoder_outputs"] = (state,)
            kept.append(("encoder_outputs", state))
        subject.kwargs["past_key_values"] = cache
        return kept

    return prepare


def run(model: Any, inputs: Any, options: Options) -> Graph:
    """Capture one step; see `tilecast.workload.capture.capture`."""
    options.check()
    step.check_optimizer(options.optimizer)
    config = not callable(model) or isinstance(model, type)
    subject = (_subject_of_config if config else _subject_of_callable)(model, inputs, options)
    held = _held_by(subject)
    paths = {id(m): name for prefix, root in held for name, m in _modules(prefix, root)}
    owners: dict[int, str] = {}
    for prefix, root in held:
        for name, parameter in root.named_parameters(prefix=prefix):
            owners.setdefault(id(parameter), name.rpartition(".")[0])
    values = Values()
    for twin, value in subject.values:
        values.set(twin, value)
    cuda = CudaOperators(options.attention, options.dropout)
    with Scopes(paths, owners) as scopes, cuda:
        recorder = Recorder(scopes, values)
        for prefix, root in held:
            declare_all(recorder, root.named_parameters(prefix=prefix), Kind.PARAMETER)
            declare_all(recorder, root.named_buffers(prefix=prefix), Kind.BUFFER)
        declare_all(recorder, _named_inputs(subject), Kind.INPUT)
        parameters = [p for _, root in held for p in root.parameters() if p.requires_grad]
        try:
            _step(subject, options, recorder, parameters)
        except TilecastError:
            raise
        except Exception as error:
            text = str(error).strip().splitlines()
            raise InputError(
                f"capture: {subject.name} does not run on shapes alone: "
                f"{type(error).__name__}: {text[0] if text else ''}"
            ) from error
    return recorder.graph(subject.name, _meta(subject, options, cuda, values))


def _modules(prefix: str, root: nn.Module) -> list[tuple[str, nn.Module]]:
    return list(root.named_modules(prefix=prefix))


def _held_by(subject: Subject) -> list[tuple[str, nn.Module]]:
    """Modules whose tensors a call uses: its own, or those that a function closes over."""
    if subject.module is not None:
        return [("", subject.module)]
    try:
        names = inspect.getclosurevars(subject.call)
    except TypeError:
        return []
    found = {**names.globals, **names.nonlocals}
    return [(name, value) for name, value in found.items() if isinstance(value, nn.Module)]


def _named_inputs(subject: Subject) -> list[tuple[str, Any]]:
    names = list(subject.kwargs.items())
    try:
        taken = list(inspect.signature(subject.call).parameters)
    except (TypeError, ValueError):
        taken = []
    if isinstance(subject.call, nn.Module):
        taken = list(inspect.signature(subject.call.forward).parameters)
    for position, value in enumerate(subject.args):
        names.append((taken[position] if position < len(taken) else f"input{position}", value))
    flat: list[tuple[str, Any]] = []
    for name, value in [*names, *subject.labels.items()]:
        if isinstance(value, (list, tuple)):
            flat.extend((f"{name}.{i}", item) for i, item in enumerate(value))
        elif isinstance(value, Mapping):
            flat.extend((f"{name}.{key}", item) for key, item in value.items())
        else:
            flat.append((name, value))
    return flat


def _step(
    subject: Subject, options: Options, recorder: Recorder, parameters: list[torch.Tensor]
) -> None:
    if subject.prepare is not None:
        recorder.paused = True
        with recorder, torch.no_grad():
            kept = subject.prepare()
        recorder.paused = False
        declare_all(recorder, kept, Kind.INPUT)
    amp = _AUTOCAST.get(options.dtype)
    autocast = contextlib.nullcontext() if amp is None else Autocast(amp)
    if not options.training:
        with recorder, torch.no_grad(), autocast:
            subject.call(*subject.args, **subject.kwargs)
        return
    if options.accumulate_gradients:
        for parameter in parameters:
            parameter.grad = torch.empty_like(parameter)
            recorder.declare(parameter.grad, Kind.GRADIENT)
    hooks = torch.autograd.graph.saved_tensors_hooks(recorder.save, lambda tensor: tensor)
    with recorder, hooks, autocast:
        output = subject.call(*subject.args, **subject.kwargs, **subject.labels)
        root, seed = _loss(output, options, recorder)
    recorder.phase = Phase.BACKWARD
    if not root.requires_grad:
        raise InputError("capture: nothing to train: no parameter or input requires a gradient")
    del output
    with recorder:
        root.backward(seed)
    for parameter in parameters:
        if parameter.grad is not None:
            recorder.set_kind(parameter.grad, Kind.GRADIENT)
    _optimize(options, recorder, parameters)


def _loss(
    output: Any, options: Options, recorder: Recorder
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """What backward starts from, and the gradient it starts with (None: one)."""
    if callable(options.loss):
        return options.loss(output), None
    if options.loss == "model":
        return step.own_loss_of(output), None
    logits = step.logits_of(output)
    if options.loss == "none":
        seed = torch.empty_like(logits, memory_format=torch.contiguous_format, device="meta")
        return logits, seed.detach()
    recorder.paused = True
    labels = torch.empty(logits.shape[:-1].numel(), dtype=torch.int64, device="meta")
    recorder.paused = False
    recorder.declare(labels, Kind.INPUT, "labels")
    return step.cross_entropy(logits, labels), None


def _optimize(options: Options, recorder: Recorder, parameters: list[torch.Tensor]) -> None:
    trained = [p for p in parameters if p.grad is not None]
    optimizer = step.make_optimizer(options.optimizer, trained) if trained else None
    if optimizer is None:
        return
    optimizer.step()  # makes its state, which later steps find in memory
    for parameter in trained:
        declare_all(recorder, optimizer.state[parameter].items(), Kind.OPTIMIZER_STATE)
    recorder.phase = Phase.OPTIMIZER
    with recorder:
        optimizer.step()


def _meta(
    subject: Subject, options: Options, cuda: CudaOperators, values: Values
) -> dict[str, Any]:
    assumptions = []
    if values.balanced:
        assumptions.append("experts get an even share of the tokens")
    meta: dict[str, Any] = {
        "source": "capture",
        "torch": torch.__version__,
        "mode": options.mode,
        "batch": options.batch,
        "dtype": options.dtype,
        "attention": options.attention,
        "attention_backends": sorted(cuda.backends),
        "dropout": options.dropout,
        "assumptions": assumptions,
    }
    if options.mode == "decode":
        meta["context"] = options.context
    if options.training:
        meta["loss"] = getattr(options.loss, "__name__", None) or str(options.loss)
        meta["optimizer"] = options.optimizer
        meta["accumulate_gradients"] = options.accumulate_gradients
    meta.update({key: value for key, value in subject.meta.items() if value is not None})
    return meta
