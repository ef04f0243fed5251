"""From what the user calls a model to its graph."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilecast.errors import InputError, MissingExtraError, UnknownNameError
from tilecast.forecast.options import Options
from tilecast.workload import blueprint, presets
from tilecast.workload.graph import Graph

#: A config file is a page of text; anything larger is something else.
MAX_CONFIG_BYTES = 4 * 1024 * 1024
#: Tokens processed when no length is asked for; the answer says so in `seq`.
DEFAULT_SEQ = 1024


def read_config(path: Path) -> dict[str, Any]:
    """A model config from `config.json` or the folder that holds it.

    Raises:
        InputError: no such file, too large, not JSON, or not an object.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        if file.stat().st_size > MAX_CONFIG_BYTES:
            raise InputError(f"{file}: larger than {MAX_CONFIG_BYTES} bytes, not a model config")
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file}: cannot read it ({error.strerror})") from error
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{file}: not JSON ({error})") from error
    if not isinstance(config, dict):
        raise InputError(f"{file}: expected a JSON object with model_type")
    return config


def graph_of(model: Any, options: Options) -> Graph:
    """The graph of a model under the options.

    Args:
        model: a preset name, a path of a config.json or its folder, `module:callable`, a config
            as a mapping, a `Graph`, or anything that capture takes (an `nn.Module`, a
            Hugging Face config).
        options: how it is run.

    Raises:
        UnknownNameError: no such preset, with suggestions.
        InputError: a config or an option that cannot be.
        MissingExtraError: the architecture needs capture and torch is not installed.
    """
    if isinstance(model, Graph):
        return model
    if isinstance(model, Mapping):
        return _from_config(dict(model), str(model.get("_name_or_path") or ""), options, "config")
    if isinstance(model, Path):
        return _from_config(read_config(model), _stem(model), options, str(model))
    if not isinstance(model, str):
        return _captured(model, options)
    if not model.strip():
        raise InputError("model: expected a name, a config.json or module:callable, got nothing")
    try:
        name = presets.resolve(model)
    except UnknownNameError as error:
        unknown = error
    else:
        return _from_config(presets.load(name), name, options, f"model {name}")
    path = Path(model)
    suffix = path.suffix.lower()
    if suffix in {".onnx", ".pt2", ".tcg"}:
        raise InputError(f"{model}: {suffix} files are not read by this version, give config.json")
    try:
        exists = path.exists()
    except OSError:
        exists = False
    if exists:
        return _from_config(read_config(path), _stem(path), options, model)
    if suffix == ".json" or "/" in model:
        raise InputError(f"{model}: no such file (nothing is downloaded; give a local config.json)")
    if ":" in model:
        return _captured(_load_callable(model), options)
    raise unknown


def _default_seq(config: Mapping[str, Any]) -> int | None:
    """Length when none is asked for: `DEFAULT_SEQ`, or all positions where there are fewer."""
    for field in ("n_positions", "max_position_embeddings"):
        positions = config.get(field)
        if isinstance(positions, int) and positions > 0:
            return min(DEFAULT_SEQ, positions)
    return DEFAULT_SEQ if "vocab_size" in config else None


def _stem(path: Path) -> str:
    named = path.resolve()
    return named.parent.name if named.name == "config.json" else named.stem


def _from_config(config: dict[str, Any], name: str, options: Options, where: str) -> Graph:
    if options.seq is None and options.mode != "decode" and "image_size" not in config:
        options = replace(options, seq=_default_seq(config))
    try:
        # autocast inserts casts between operators: only capture follows it
        if blueprint.supports(config) and not options.dtype.startswith("amp-"):
            arguments: dict[str, Any] = options.graph_arguments()
            return blueprint.blueprint(config, name=name, head=options.head, **arguments)
        if not isinstance(config.get("model_type"), str):
            raise InputError("model_type is missing: expected a Hugging Face model config")
        try:
            graph = _captured(config, options)
        except MissingExtraError as error:
            raise MissingExtraError(f"model_type {config['model_type']!r}", "torch") from error
    except MissingExtraError:
        raise
    except InputError as error:
        text = str(error)
        raise InputError(text if where in text else f"{where}: {text}") from error
    graph.name = name or graph.name
    return graph


def _captured(model: Any, options: Options) -> Graph:
    from tilecast.workload.capture import capture

    arguments: dict[str, Any] = options.graph_arguments()
    return capture(model, head=options.head, **arguments)


def _load_callable(reference: str) -> Any:
    """What `module:callable` names: an `nn.Module`, or a function that makes one."""
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        raise InputError(f"{reference}: expected module:callable")
    sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except ImportError as error:
        raise InputError(f"{reference}: cannot import {module_name} ({error})") from error
    except AttributeError as error:
        raise InputError(f"{reference}: {module_name} has no {attribute}") from error
    finally:
        sys.path.remove("")
    return found
