"""Laws and kernels know shapes and silicon, never the name of a device or a model."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import tilecast
from tilecast.predict import weights as weights_file
from tilecast.workload import presets

PACKAGE = Path(tilecast.__file__).parent
FILES = sorted([*PACKAGE.glob("predict/**/*.py"), *PACKAGE.glob("kernels/*.py")])
#: Names of devices and models, whatever the catalogue holds.
ALWAYS = (
    "a100", "h100", "h200", "b200", "b300", "gb200", "gb300", "v100", "p100", "p4", "t4", "l4",
    "l40s", "mi100", "mi210", "mi250", "mi300x", "rtx", "geforce", "tesla", "instinct",
    "llama", "mixtral", "mistral", "qwen", "gpt", "gpt2", "gpt3", "bert", "resnet", "deepseek",
)  # fmt: skip


def known_names() -> set[str]:
    names = set(ALWAYS)
    for file in PACKAGE.glob("hardware/catalogue/*.toml"):
        entry = tomllib.loads(file.read_text("utf-8"))
        names |= {str(entry.get("name", "")), str(entry.get("full_name", "")), file.stem}
        names |= {str(alias) for alias in entry.get("aliases", ())}
    names |= set(presets.names())
    return {name.lower() for name in names if len(name) > 1}


NAMES = re.compile(
    r"(?<![a-z0-9])(" + "|".join(sorted(map(re.escape, known_names()))) + r")(?![a-z0-9])"
)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_no_device_or_model_in_the_source(file: Path) -> None:
    assert not NAMES.findall(file.read_text("utf-8").lower())


def test_no_device_or_model_in_the_weights() -> None:
    tensors, about = weights_file.read()
    assert not NAMES.findall(" ".join([*tensors, *about, *about.values()]).lower())
