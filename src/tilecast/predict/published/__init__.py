"""Laws that others published, on the same interface as the package's own.

Each takes its weights from `tilecast fit --law NAME`. What the authors did not publish is told in
the law's own module; `docs/systems.md` has the figures.
"""

from __future__ import annotations

from pathlib import Path

from tilecast.errors import UnknownNameError
from tilecast.predict import weights as weights_file
from tilecast.predict.published.base import PublishedLaw
from tilecast.predict.weights import Tensors


def law_class(name: str) -> type[PublishedLaw]:
    """Class of a published law.

    Raises:
        UnknownNameError: no such law.
    """
    if name == "linear":
        from tilecast.predict.published.linear import LinearLaw

        return LinearLaw
    if name == "neusight":
        from tilecast.predict.published.neusight import NeuSightLaw

        return NeuSightLaw
    if name == "habitat":
        from tilecast.predict.published.habitat import HabitatLaw

        return HabitatLaw
    raise UnknownNameError("published law", name, ("linear", "neusight", "habitat"))


def load(name: str, path: str | Path | None) -> PublishedLaw:
    """A published law from its weights file.

    Raises:
        InputError: no file is given, or it cannot be used.
    """
    made = law_class(name)
    tensors, metadata = weights_file.read(path, name)
    return made(tensors, metadata, f"--weights {path}")


__all__ = ["PublishedLaw", "Tensors", "law_class", "load"]
