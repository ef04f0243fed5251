"""Forecast how long, how big and how costly a deep-learning workload is on GPUs you do not have.

Every verb of the command is a function here of the same name:

    >>> import tilecast
    >>> answer = tilecast.forecast("gpt2-large", gpu="h100", mode="training", batch=4, seq=1024)
    >>> answer.latency_s, answer.interval_s, answer.bound_by  # doctest: +SKIP

Names are loaded when they are first used, so that importing the package stays instant.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tilecast._version import __version__

if TYPE_CHECKING:
    from tilecast.errors import InputError, MissingExtraError, TilecastError, UnknownNameError
    from tilecast.fitting import evaluate_kernels, evaluate_models, fit
    from tilecast.forecast import (
        Forecast,
        HostModel,
        Options,
        compare,
        diff,
        forecast,
        kernel,
        prepare,
        price,
    )
    from tilecast.hardware import GPU, catalogue, gpu
    from tilecast.predict import load_law
    from tilecast.workload.blueprint import blueprint
    from tilecast.workload.capture import capture
    from tilecast.workload.graph import Graph
    from tilecast.workload.presets import load_preset

_HOME = {
    "GPU": "hardware",
    "gpu": "hardware",
    "catalogue": "hardware",
    "load_preset": "workload.presets",
    "Graph": "workload.graph",
    "blueprint": "workload.blueprint",
    "capture": "workload.capture",
    "load_law": "predict",
    "evaluate_kernels": "fitting",
    "evaluate_models": "fitting",
    "fit": "fitting",
    **dict.fromkeys(
        ("TilecastError", "InputError", "UnknownNameError", "MissingExtraError"), "errors"
    ),
    **dict.fromkeys(
        ("Forecast", "HostModel", "Options", "compare", "diff", "forecast", "kernel",
         "prepare", "price"),
        "forecast",
    ),
}  # fmt: skip

__all__ = [
    "GPU",
    "Forecast",
    "Graph",
    "HostModel",
    "InputError",
    "MissingExtraError",
    "Options",
    "TilecastError",
    "UnknownNameError",
    "__version__",
    "blueprint",
    "capture",
    "catalogue",
    "compare",
    "diff",
    "evaluate_kernels",
    "evaluate_models",
    "fit",
    "forecast",
    "gpu",
    "kernel",
    "load_law",
    "load_preset",
    "prepare",
    "price",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'tilecast' has no attribute {name!r}")
    value = getattr(import_module(f"tilecast.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
