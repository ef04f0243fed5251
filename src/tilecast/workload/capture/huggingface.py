"""Hugging Face models from their configuration: class, fake weights and inputs."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

from tilecast.errors import InputError, UnknownNameError

#: `head` and the Auto class that finds the model class for it.
HEADS: dict[str, str] = {
    "base": "AutoModel",
    "none": "AutoModel",
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "pretraining": "AutoModelForPreTraining",
    "seq2seq-lm": "AutoModelForSeq2SeqLM",
    "sequence-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "image-classification": "AutoModelForImageClassification",
}
#: What `head="auto"` tries in turn where the configuration names no architecture.
_AUTO_HEADS = ("seq2seq-lm", "image-classification", "masked-lm", "causal-lm", "base")
#: Names under which configurations give their longest sequence.
_MAX_POSITIONS = ("max_position_embeddings", "n_positions")
#: Image side where the configuration has none (ResNet and other convolutional models).
DEFAULT_IMAGE_SIZE = 224

_ATTENTION = {"eager": "eager", "sdpa": "sdpa", "flash": "sdpa"}


def load_config(source: Any) -> Any:
    """A configuration from itself, a dict, a config.json or its folder. No network.

    Raises:
        InputError: no such file, no JSON object, or no `model_type` that transformers knows.
    """
    if isinstance(source, transformers.PretrainedConfig):
        return copy.deepcopy(source)
    where = "config"
    if not isinstance(source, (str, Path, Mapping)):
        raise InputError(
            f"capture: got {type(source).__name__}; expected a module, a function, a Hugging Face "
            "configuration or the path of its config.json"
        )
    if not isinstance(source, Mapping):
        path = Path(source)
        if path.is_dir():
            path = path / "config.json"
        where = str(path)
        try:
            source = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise InputError(f"{where}: cannot read a model configuration: {error}") from error
        if not isinstance(source, dict):
            raise InputError(f"{where}: expected a JSON object with a model_type")
    values = dict(source)
    kind = values.pop("model_type", None)
    if not isinstance(kind, str):
        raise InputError(f"{where}: model_type: expected the name of a transformers model type")
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    if kind not in known:
        raise UnknownNameError(
            "model_type", kind, known.keys(), f"transformers {transformers.__version__}"
        )
    try:
        return known[kind].from_dict(values)
    except Exception as error:  # configurations validate themselves, each in its own way
        raise InputError(f"{where}: {kind}: {_first_line(error)}") from error


def model_class(config: Any, head: str) -> Any:
    """Model class of a configuration.

    Raises:
        UnknownNameError: no such head.
        InputError: transformers has no model of this type with that head.
    """
    kind = type(config)
    if head == "auto":
        for name in config.architectures or ():
            found = getattr(transformers, name, None)
            if found is not None:
                return found
        for candidate in _AUTO_HEADS:
            if (candidate == "seq2seq-lm") != config.is_encoder_decoder and candidate != "base":
                continue
            if candidate == "masked-lm" and getattr(config, "is_decoder", False):
                continue
            mapping = getattr(transformers, HEADS[candidate])._model_mapping
            if kind in mapping:
                return _first(mapping[kind])
        raise InputError(f"config: transformers has no model class for {kind.__name__}")
    if head not in HEADS:
        raise UnknownNameError("head", head, ("auto", *HEADS))
    mapping = getattr(transformers, HEADS[head])._model_mapping
    if kind not in mapping:
        raise InputError(f"--head {head}: transformers has no such model for {config.model_type}")
    return _first(mapping[kind])


def _first(found: Any) -> Any:
    return found[0] if isinstance(found, (list, tuple)) else found


def build(
    config: Any, head: str, dtype: torch.dtype, attention: str, assumptions: list[str]
) -> Any:
    """A model with fake weights on the meta device; nothing is initialised or downloaded.

    What had to be decided for it is added to `assumptions`.

    Raises:
        InputError: transformers refuses the configuration or the attention implementation.
    """
    cls = model_class(config, head)
    options: dict[str, Any] = {"dtype": dtype}
    if attention != "auto":
        options["attn_implementation"] = _ATTENTION[attention]
    can_group_experts = getattr(cls, "_can_set_experts_implementation", None)
    if dtype != torch.bfloat16 and can_group_experts is not None and can_group_experts():
        # torch._grouped_mm takes bf16; other dtypes run one product after another.
        options["experts_implementation"] = "eager"
        assumptions.append("experts run one after another: grouped_mm needs bf16")
    chatter = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        with torch.device("meta"):
            return cls._from_config(config, **options)
    except Exception as error:
        raise InputError(f"{cls.__name__}: cannot be built: {_first_line(error)}") from error
    finally:
        transformers.logging.set_verbosity(chatter)


def set_attention(model: Any, attention: str) -> None:
    """Change the attention implementation of a model that exists.

    Raises:
        InputError: the model does not have it.
    """
    if attention == "auto":
        return
    try:
        model.set_attn_implementation(_ATTENTION[attention])
    except Exception as error:
        raise InputError(f"--attention {attention}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    # a line that ends in a colon announces the next one
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


def _text_config(config: Any) -> Any:
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def _integers(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.int64, device="meta")


def reads_tokens(model: Any) -> bool:
    """Whether a model reads tokens."""
    return bool(model.main_input_name == "input_ids")


def check_length(config: Any, length: int) -> None:
    """Refuse a sequence that is longer than learned positions allow."""
    text = _text_config(config)
    for name in _MAX_POSITIONS:
        most = getattr(text, name, None)
        if isinstance(most, int) and 0 < most < length:
            own = getattr(text, "attribute_map", {}).get(name, name)
            raise InputError(
                f"--seq: {length} tokens, but {own} of this {config.model_type} is {most}"
            )


def inputs_of(
    model: Any, batch: int, seq: int | None, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    """Fake inputs of a forward pass by argument name.

    Raises:
        InputError: the model reads tokens and no `seq` is given, or it reads something that a
            configuration does not give the shape of.
    """
    config, name = model.config, model.main_input_name
    if name == "input_ids":
        if seq is None:
            raise InputError("--seq: expected the number of tokens; this model reads tokens")
        inputs = {"input_ids": _integers(batch, seq)}
        if config.is_encoder_decoder:
            inputs["decoder_input_ids"] = _integers(batch, seq)
        return inputs
    if name == "pixel_values":
        vision = getattr(config, "vision_config", config)
        size = getattr(vision, "image_size", None) or DEFAULT_IMAGE_SIZE
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        channels = getattr(vision, "num_channels", 3)
        image = torch.empty((batch, channels, height, width), dtype=dtype, device="meta")
        return {"pixel_values": image}
    raise InputError(
        f"{type(model).__name__} reads {name}, whose shape its configuration does not give: "
        "pass inputs="
    )


def labels_of(model: Any, batch: int, seq: int | None) -> dict[str, torch.Tensor]:
    """Fake labels for the model's own loss by argument name."""
    taken = inspect.signature(model.forward).parameters
    if "start_positions" in taken:
        return {"start_positions": _integers(batch), "end_positions": _integers(batch)}
    if "labels" not in taken:
        raise InputError(f"--loss model: {type(model).__name__} has no loss of its own")
    per_token = reads_tokens(model) and seq is not None
    if type(model).__name__.endswith(("ForSequenceClassification", "ForMultipleChoice")):
        per_token = False
    labels = {"labels": _integers(batch, seq) if per_token and seq else _integers(batch)}
    if "next_sentence_label" in taken:
        labels["next_sentence_label"] = _integers(batch)
    return labels


def switch_cache(model: Any, on: bool, inputs: dict[str, Any]) -> None:
    """Say whether the model should keep keys and values, if it can keep any."""
    taken = inspect.signature(model.forward).parameters
    if "use_cache" in taken:
        inputs["use_cache"] = on
    elif on:
        raise InputError(f"--mode: {type(model).__name__} keeps no keys and values")
    if on and "logits_to_keep" in taken:
        inputs["logits_to_keep"] = 1


def facts(module: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """What a graph should say about how its model was made."""
    return {
        "transformers": transformers.__version__,
        "model_type": module.config.model_type,
        "attention_implementation": getattr(module.config, "_attn_implementation", None),
        "experts_implementation": getattr(module.config, "_experts_implementation", None),
        "logits_to_keep": inputs.get("logits_to_keep"),
    }


def fill_cache(
    module: Any, inputs: dict[str, Any], batch: int, context: int
) -> list[tuple[str, torch.Tensor]]:
    """Run a forward pass over the context, so that each model makes its own kind of cache.

    Adds the cache (and an encoder's output) to `inputs`; returns its tensors by name.
    """
    earlier = inputs_of(module, batch, context, torch.float32)
    output = module(**earlier, use_cache=True)
    cache = output["cache"] if "cache" in output else output["past_key_values"]
    kept = _cached_tensors(cache)
    if module.config.is_encoder_decoder:
        inputs.pop("input_ids")
        inputs["encoder_outputs"] = (output.encoder_last_hidden_state,)
        kept.append(("encoder_outputs", output.encoder_last_hidden_state))
    taken = inspect.signature(module.forward).parameters
    inputs["past_key_values" if "past_key_values" in taken else "cache"] = cache
    return kept


def _cached_tensors(cache: Any) -> list[tuple[str, torch.Tensor]]:
    """Tensors of a key-value cache, named by layer."""
    found: list[tuple[str, torch.Tensor]] = []
    parts = [("past_key_values", cache)]
    for part in ("self_attention_cache", "cross_attention_cache"):
        if hasattr(cache, part):
            parts.append((f"past_key_values.{part}", getattr(cache, part)))
    for path, part in parts:
        for index, layer in enumerate(getattr(part, "layers", ())):
            for name, value in vars(layer).items():
                if isinstance(value, torch.Tensor):
                    found.append((f"{path}.{index}.{name}", value))
    return found
