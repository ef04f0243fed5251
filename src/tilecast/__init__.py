"""Forecast how long, how big and how costly a deep-learning workload is on GPUs you do not have."""

from __future__ import annotations

from tilecast._version import __version__

__all__ = ["__version__"]
