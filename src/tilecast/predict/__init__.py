"""Latency laws: a kernel table and a GPU in, seconds and why out."""

from __future__ import annotations

from pathlib import Path

from tilecast.errors import UnknownNameError
from tilecast.predict.law import BOUNDS, DOMAINS, Law, Prediction

#: Laws that need nothing but the package.
_SHIPPED = ("tile", "roofline")
#: Published laws; their weights come from `tilecast fit --law NAME`.
_PUBLISHED = ("linear", "neusight", "habitat")
_LAWS = (*_SHIPPED, *_PUBLISHED)


def law_names(shipped: bool = False) -> tuple[str, ...]:
    """Names that `load_law` takes, the default first; `shipped`: those that need no file."""
    return _SHIPPED if shipped else _LAWS


def load_law(
    name: str = "tile", weights: str | Path | None = None, microbenchmark: bool = False
) -> Law:
    """A latency law by name.

    Args:
        name: `tile` (learned), `roofline` (from the datasheet alone), or a published law: `linear`,
            `neusight`, `habitat`.
        weights: weights file of the law; None takes the shipped one, which only the tile law has.
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
    if name in _PUBLISHED:
        from tilecast.predict.published import load

        return load(name, weights)
    raise UnknownNameError("law", name, _LAWS, f"known: {', '.join(_LAWS)}")


__all__ = ["BOUNDS", "DOMAINS", "Law", "Prediction", "law_names", "load_law"]
