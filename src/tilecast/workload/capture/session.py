"""One capture: a model on fake tensors, run under the recorder."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from tilecast.errors import InputError, TilecastError
from tilecast.workload.capture import step
from tilecast.workload.capture.autocast import Autocast
from tilecast.workload.capture.cuda import CudaOperators
from tilecast.workload.capture.recorder import Recorder, declare_all
from tilecast.workload.capture.scopes import Scopes
from tilecast.workload.capture.subject import AUTOCAST, Options, Subject, subject_of
from tilecast.workload.capture.values import Values
from tilecast.workload.graph import Graph, Kind, Phase


def run(model: Any, inputs: Any, options: Options) -> Graph:
    """Capture one step; see `tilecast.workload.capture.capture`."""
    options.check()
    step.check_optimizer(options.optimizer)
    subject = subject_of(model, inputs, options)
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
    with Scopes(paths, owners) as scopes, cuda, values, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the model's advice is about running it
        recorder = Recorder(scopes, values)
        for prefix, root in held:
            declare_all(recorder, root.named_parameters(prefix=prefix), Kind.PARAMETER)
            declare_all(recorder, root.named_buffers(prefix=prefix), Kind.BUFFER)
        declare_all(recorder, _named_inputs(subject), Kind.INPUT)
        parameters = [p for _, root in held for p in root.parameters() if p.requires_grad]
        before = [parameter.grad for parameter in parameters]
        try:
            _step(subject, options, recorder, cuda, parameters)
        except TilecastError:
            raise
        except Exception as error:
            text = str(error).strip().splitlines()
            raise InputError(
                f"capture: {subject.name} does not run on shapes alone: "
                f"{type(error).__name__}: {text[0] if text else ''}"
            ) from error
        finally:
            for parameter, gradient in zip(parameters, before, strict=True):
                parameter.grad = gradient
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
    held = [(name, value) for name, value in found.items() if isinstance(value, nn.Module)]
    for name, module in held:
        if any(not t.is_meta for t in (*module.parameters(), *module.buffers())):
            raise InputError(
                f"capture: {name}, which {subject.name} uses, holds data: build it under "
                "torch.device('meta'), or pass the module itself"
            )
    return held


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
    subject: Subject,
    options: Options,
    recorder: Recorder,
    cuda: CudaOperators,
    parameters: list[torch.Tensor],
) -> None:
    amp = AUTOCAST.get(options.dtype)
    autocast = contextlib.nullcontext() if amp is None else Autocast(amp)
    if subject.prepare is not None:
        recorder.paused = True
        with recorder, torch.no_grad(), autocast:
            kept = subject.prepare()
        recorder.paused = False
        cuda.backends.clear()
        declare_all(recorder, kept, Kind.INPUT)
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
    recorder.paused = True
    if options.loss == "none":
        seed = torch.empty(logits.shape, dtype=logits.dtype, device="meta")
        recorder.declare(seed, Kind.INPUT, "grad_output")
    else:
        labels = torch.empty(logits.shape[:-1].numel(), dtype=torch.int64, device="meta")
        recorder.declare(labels, Kind.INPUT, "labels")
    recorder.paused = False
    return (logits, seed) if options.loss == "none" else (step.cross_entropy(logits, labels), None)


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
    assumptions = list(subject.assumptions)
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
    given = {name: list(t.shape) for name, t in _named_inputs(subject) if torch.is_tensor(t)}
    if "model_type" not in subject.meta and given:
        shape = next(iter(given.values()))
        meta.update(inputs=given, batch=shape[0] if shape else 1)
    if options.caches:
        meta["context"] = options.context
    if options.training:
        meta["loss"] = getattr(options.loss, "__name__", None) or str(options.loss)
        meta["optimizer"] = options.optimizer
        meta["accumulate_gradients"] = options.accumulate_gradients
    meta.update({key: value for key, value in subject.meta.items() if value is not None})
    return meta
