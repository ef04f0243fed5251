"""Shapes of published models by name, as Hugging Face config dictionaries.

Each TOML file beside this one holds a family: where its figures come from, the fields that its
models share (`[config]`) and one table a model. A preset is data; adding one needs no code.
"""

from __future__ import annotations

import re
import tomllib
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from tilecast.errors import UnknownNameError

__all__ = ["load", "load_preset", "names", "resolve", "source"]

#: Fields of a model's table that are about the preset rather than the model.
_OWN_FIELDS = ("aliases", "source")


@dataclass(frozen=True, slots=True)
class _Preset:
    name: str
    aliases: tuple[str, ...]
    source: str
    config: dict[str, Any]


def names() -> list[str]:
    """Names of all presets, family by family, smallest first."""
    return list(_presets())


def resolve(name: str) -> str:
    """The preset that a name means.

    Case, the organisation before a `/`, and which of `-`, `_`, `.` and space separates parts do
    not matter.

    Raises:
        UnknownNameError: no preset has that name; it suggests near ones.
    """
    found = _by_spelling().get(_spelling(name))
    if found is None:
        raise UnknownNameError("model", name, names(), "tilecast has presets of published models")
    return found


def load(name: str) -> dict[str, Any]:
    """A fresh copy of a preset's config, with `model_type` and `_name_or_path` set.

    Raises:
        UnknownNameError: no preset has that name.
    """
    preset = _presets()[resolve(name)]
    return {**deepcopy(preset.config), "_name_or_path": preset.name}


def source(name: str) -> str:
    """Where the figures of a preset come from.

    Raises:
        UnknownNameError: no preset has that name.
    """
    return _presets()[resolve(name)].source


def _spelling(name: str) -> str:
    """A name without what people write differently.

    A separator between digits stays, as a point: `opt-1.3b` and `opt-13b` are two models.
    """
    tail = name.strip().lower().rpartition("/")[2]
    return re.sub(r"[-_. ]+", "", re.sub(r"(?<=\d)[-_. ]+(?=\d)", "\x00", tail)).replace(
        "\x00", "."
    )


@lru_cache(maxsize=1)
def _presets() -> dict[str, _Preset]:
    found: dict[str, _Preset] = {}
    for file in sorted(files(__name__).iterdir(), key=lambda item: item.name):
        if not file.name.endswith(".toml"):
            continue
        family = tomllib.loads(file.read_text(encoding="utf-8"))
        for name, fields in family["models"].items():
            own = {key: value for key, value in fields.items() if key not in _OWN_FIELDS}
            found[name] = _Preset(
                name,
                tuple(fields.get("aliases", ())),
                fields.get("source", family["source"]),
                {**family["config"], **own},
            )
    return found


@lru_cache(maxsize=1)
def _by_spelling() -> dict[str, str]:
    return {
        _spelling(spelling): preset.name
        for preset in _presets().values()
        for spelling in (preset.name, *preset.aliases)
    }


#: The name under which the package offers it.
load_preset = load
