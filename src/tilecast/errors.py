"""Errors that Tilecast raises on purpose, and the exit code each means."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class TilecastError(Exception):
    """Base of every error that a user can cause; the command prints its text as one line.

    Attributes:
        exit_code: process exit code of the command (2 = bad input, or a missing extra).
    """

    exit_code = 2


class InputError(TilecastError):
    """Input that cannot be used: names the file or option, the field and what was expected."""


class UnknownNameError(InputError):
    """A name that is in no catalogue, with the closest known names as suggestions."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        near = get_close_matches(name.lower(), sorted({k.lower() for k in known}), n=4, cutoff=0.5)
        text = f"unknown {kind} '{name}'"
        if near:
            text += f"; did you mean {', '.join(near)}?"
        if hint:
            text += f" ({hint})"
        super().__init__(text)
        self.suggestions = near


class MissingExtraError(TilecastError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional part: pip install 'tilecast[{extra}]'")
        self.extra = extra
