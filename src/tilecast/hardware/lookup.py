"""From what the user calls a GPU to its figures: a name, a file, or a name with overrides."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from tilecast.errors import InputError, UnknownNameError
from tilecast.hardware.gpu import GPU

CATALOGUE: Final = Path(__file__).parent / "catalogue"
#: A GPU file is a page of text; anything larger is something else.
MAX_FILE_BYTES: Final = 1024 * 1024
#: Maker and brand words that names carry or leave out.
BRANDS: Final = ("nvidia", "amd", "intel", "tesla", "geforce", "instinct", "quadro", "radeon")
_ALIASES = re.compile(r"^aliases = (\[.*\])$", re.MULTILINE)


def spelling(name: str) -> str:
    """A name without case, spaces, underscores, dashes and trademark signs."""
    return re.sub(r"[^a-z0-9]", "", re.sub(r"\((r|tm)\)", "", name.lower()))


def _bare(spelled: str) -> str:
    """A spelling without the brand words at its front."""
    stripped = True
    while stripped:
        stripped = False
        for brand in BRANDS:
            if spelled.startswith(brand) and len(spelled) > len(brand):
                spelled, stripped = spelled[len(brand) :], True
    return spelled


@cache
def _files() -> dict[str, Path]:
    """File of each catalogue name, by spelling."""
    return {spelling(file.stem): file for file in sorted(CATALOGUE.glob("*.toml"))}


@cache
def _aliases() -> dict[str, Path]:
    """File of each alias, by spelling: read off one line of each file, without parsing it."""
    found: dict[str, Path] = {}
    for file in _files().values():
        match = _ALIASES.search(file.read_text(encoding="utf-8"))
        if match:
            for alias in tomllib.loads(match.group(0))["aliases"]:
                found[spelling(alias)] = file
    return found


def names() -> list[str]:
    """Catalogue names, in alphabetical order."""
    return sorted(file.stem for file in _files().values())


def catalogue() -> list[GPU]:
    """All GPUs of the catalogue, in alphabetical order of their names."""
    return [_load(file) for file in sorted(_files().values(), key=lambda file: file.stem)]


def source_of(gpu: GPU, field: str) -> str:
    """Source of one figure by its dotted name: its own, that of its table, or the file's."""
    parts = field.split(".")
    for length in range(len(parts), 0, -1):
        source = gpu.sources.get(".".join(parts[:length]))
        if source:
            return source
    return gpu.sources.get("default", "")


def gpu(spec: str) -> GPU:
    """The GPU that a name, a file or an override means.

    Args:
        spec: a catalogue name or alias in any spelling (`h100`, `NVIDIA_A100-PCIE-40GB`), the
            path of a TOML file, or either followed by `,field=value,...` in SI units, tables
            by dotted name (`h100,matrix_flops.bf16=2e15`). Overriding `sms` or
            `boost_clock_hz` scales the peaks, and a published L2 bandwidth, that are not
            overridden themselves: a peak is SMs x clock x the rate of one SM.

    Raises:
        UnknownNameError: no such GPU, with suggestions.
        InputError: a file or an override that cannot be used, naming file, field and what was
            expected.
    """
    head, *changes = [part.strip() for part in spec.split(",")]
    if not head:
        raise InputError("GPU: expected a name, a TOML file or NAME,field=value, got nothing")
    base = _named(head)
    if not changes:
        return base
    return _changed(base, _parse(changes, spec), f"GPU {spec}")


def _named(name: str) -> GPU:
    if name.lower().endswith(".toml") or os.sep in name:
        return _load(Path(name))
    spelled = spelling(name)
    for candidate in (spelled, _bare(spelled)):
        file = _files().get(candidate)
        if file is not None:
            return _load(file)
    for candidate in (spelled, _bare(spelled)):
        file = _aliases().get(candidate)
        if file is not None:
            return _load(file)
    known = [*names(), *(alias for file in _files().values() for alias in _load(file).aliases)]
    raise UnknownNameError("GPU", name, known, "`tilecast gpus` lists them; or give a TOML file")


def _parse(changes: list[str], spec: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for change in changes:
        field, equals, text = change.partition("=")
        if not equals or not field.strip() or not text.strip():
            raise InputError(f"GPU {spec}: expected field=value, got '{change}'")
        value: Any = text.strip()
        for kind in (int, float):
            try:
                value = kind(text)
                break
            except ValueError:
                continue
        table, dot, key = field.strip().partition(".")
        if dot:
            values.setdefault(table, {})[key] = value
        else:
            values[table] = value
    return values


def _changed(base: GPU, changes: Mapping[str, Any], where: str) -> GPU:
    """A GPU with some fields changed, and the peaks that follow from them."""
    fields = base.model_dump()
    scale = 1.0
    for field in ("sms", "boost_clock_hz"):
        value = changes.get(field)
        if isinstance(value, int | float) and value > 0:
            scale *= value / fields[field]
    if scale != 1.0:
        for table in ("vector_flops", "matrix_flops"):
            fields[table] = {key: peak * scale for key, peak in fields[table].items()}
        if fields["l2_bandwidth_bytes_per_s"] is not None:
            fields["l2_bandwidth_bytes_per_s"] *= scale
        # measured on the GPU as it was
        fields["microbenchmarks"] = {}
        base_clock, boost = fields["base_clock_hz"], changes.get("boost_clock_hz")
        if base_clock and isinstance(boost, int | float) and "base_clock_hz" not in changes:
            fields["base_clock_hz"] = None
    for field, value in changes.items():
        current = fields.get(field)
        if isinstance(current, dict) and isinstance(value, dict):
            fields[field] = {**current, **value}
        else:
            fields[field] = value
        if field != "sources":
            fields["sources"] = {**fields["sources"], field: "given by the user"}
    return _checked(fields, where)


def _load(path: Path) -> GPU:
    try:
        if path.is_dir():
            raise InputError(f"{path}: a folder, expected a TOML file of a GPU")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError(f"{path}: larger than {MAX_FILE_BYTES} bytes, not a GPU file")
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot read it ({error.strerror})") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not TOML ({error})") from error
    base = fields.pop("base", None)
    if base is None:
        return _checked(fields, str(path))
    if not isinstance(base, str):
        raise InputError(f"{path}: base: expected the name of a catalogue GPU")
    if base.lower().endswith(".toml") or os.sep in base:
        raise InputError(f"{path}: base: expected the name of a catalogue GPU, not a file")
    return _changed(_named(base), {"aliases": [], **fields}, str(path))


def _checked(fields: Mapping[str, Any], where: str) -> GPU:
    try:
        return GPU.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        text = first["msg"].removeprefix("Value error, ")
        said = f"{where}: {field}: {text}" if field else f"{where}: {text}"
        if first["type"] not in ("missing", "value_error"):
            said += f", got {first['input']!r}"[:200]
        raise InputError(said) from error
