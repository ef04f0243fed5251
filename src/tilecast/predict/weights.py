"""Weights files: safetensors with a format version and their origin in the metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tilecast.errors import InputError

PREFIX: Final = "tilecast-"
FORMAT: Final = PREFIX + "tile"
FORMAT_VERSION: Final = "1"
#: Entry of the safetensors metadata that holds what a file says about itself, as JSON.
KEY: Final = "tilecast"
MAX_BYTES: Final = 64 * 2**20
SHIPPED: Final = Path(__file__).with_name("weights") / "tile.safetensors"

Tensors = dict[str, NDArray[np.float64]]


def read(path: str | Path | None = None, law: str = "tile") -> tuple[Tensors, dict[str, str]]:
    """Arrays (as float64) and metadata of a weights file of a law.

    Args:
        path: the file; None takes the shipped one, which only the tile law has.
        law: name of the law that it must be for.

    Raises:
        InputError: it cannot be read, is too large, or is not a weights file of this format.
    """
    from safetensors import SafetensorError, safe_open

    if path is None and law != "tile":
        raise InputError(f"--law {law}: no weights come with it, expected --weights FILE")
    file = SHIPPED if path is None else Path(path)
    try:
        size = file.stat().st_size
    except OSError as error:
        raise InputError(f"--weights {file}: cannot read it ({error.strerror})") from error
    if not file.is_file():
        raise InputError(f"--weights {file}: expected a file")
    if size > MAX_BYTES:
        raise InputError(f"--weights {file}: {size} bytes, expected at most {MAX_BYTES}")
    try:
        with safe_open(file, framework="numpy") as content:
            metadata = _about((content.metadata() or {}).get(KEY, "{}"))
            tensors = {}
            for key in content.keys():  # noqa: SIM118 (not a mapping)
                tensors[key] = np.asarray(content.get_tensor(key), dtype=np.float64)
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"--weights {file}: not a whole safetensors file of number arrays"
        ) from error
    if metadata.get("format") != format_of(law):
        raise InputError(
            f"--weights {file}: not weights of the {law} law (format '{format_of(law)}')"
        )
    if metadata.get("format_version") != FORMAT_VERSION:
        raise InputError(
            f"--weights {file}: format version {metadata.get('format_version')}, "
            f"expected {FORMAT_VERSION}"
        )
    return tensors, metadata


def format_of(law: str) -> str:
    """Format name of a law's weights."""
    return f"{PREFIX}{law}"


def _about(text: str) -> dict[str, str]:
    about = json.loads(text)
    return {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in about.items()
    }


def write(
    path: str | Path,
    tensors: Mapping[str, NDArray[Any]],
    *,
    law: str = "tile",
    compact: bool = False,
    **about: object,
) -> None:
    """Write a weights file whole or not at all; `about` values go to the metadata.

    Args:
        law: name of the law that the weights are for.
        compact: keep each array's own type; by default all are written as float64.

    Raises:
        InputError: it cannot be written.
    """
    from safetensors.numpy import save

    file = Path(path)
    # one entry, since safetensors keeps several in no fixed order: equal fits make equal files
    metadata = {
        KEY: json.dumps(
            {"format": format_of(law), "format_version": FORMAT_VERSION, **about}, sort_keys=True
        )
    }
    kind = None if compact else np.float64
    arrays = {key: np.array(tensors[key], dtype=kind, order="C") for key in sorted(tensors)}
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        part.write_bytes(save(arrays, metadata=metadata))
        os.replace(part, file)
    except OSError as error:
        raise InputError(f"--out {file}: cannot write it ({error.strerror})") from error
    finally:
        part.unlink(missing_ok=True)
