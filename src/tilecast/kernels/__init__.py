"""From operators to GPU kernels: FLOPs, bytes and shapes of everything that a graph launches."""

from __future__ import annotations

from tilecast.kernels.lower import estimated_ops, lower
from tilecast.kernels.table import Kernel, KernelTable, Launches

__all__ = ["Kernel", "KernelTable", "Launches", "estimated_ops", "lower"]
