"""One GPU: what a model takes there, where the time goes and how sure that is.

The room and its main verb share a name: `tilecast.forecast(...)` is `api.forecast`, and
`tilecast.forecast.engine` is a module, whichever is reached first.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from tilecast.forecast.api import Comparison, compare, forecast
from tilecast.forecast.diff import diff, read_forecast
from tilecast.forecast.engine import price
from tilecast.forecast.host import HostModel
from tilecast.forecast.kernel import KernelForecast, kernel
from tilecast.forecast.options import Options
from tilecast.forecast.prepared import Prepared, prepare
from tilecast.forecast.resolve import graph_of
from tilecast.forecast.result import Forecast, KernelShare, ModuleShare

__all__ = [
    "Comparison",
    "Forecast",
    "HostModel",
    "KernelForecast",
    "KernelShare",
    "ModuleShare",
    "Options",
    "Prepared",
    "compare",
    "diff",
    "forecast",
    "graph_of",
    "kernel",
    "prepare",
    "price",
    "read_forecast",
]


class _CallableRoom(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Forecast:
        return forecast(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableRoom
