"""Latency laws: a kernel table and a GPU in, seconds and why out."""

from __future__ import annotations

from pathlib import Path

from tilecast.errors import UnknownNameError
from tilecast.predict.law import BOUNDS, DOMAINS, Law, Prediction

_LAWS = ("tile", "roofline")


def law_names() -> tuple[str, ...]:
    """Names that `load_law` takes, the default first."""
    return _LAWS


def load_law(
    name: str = "tile", weights: str | Path | None = None, microbenchmark: bool = False
) -> Law:
    """A latency law by name.

    Args:
        name: `tile` (learned) or `roofline` (from the datasheet alone).
        weights: weights file of the tile law; None takes the shipped one.
        microbenchmark: use the published measurements that a GPU description carries.

    Raises:
        UnknownNameError: no such law.
        InputError: the weights file cannot be used.
    """
    if name == "roofline":
        from tilecast.predict.roofline import Roofline

        return Roofline(microbenchmark)
    if name == "tile":
        from tilecast.predict.tile import TileLaw

        return TileLaw.load(weights, microbenchmark)
    raise UnknownNameError("law", name, _LAWS, f"known: {', '.join(_LAWS)}")


__all__ = ["BOUNDS", "DOMAINS", "Law", "Prediction", "law_names", "load_law"]
