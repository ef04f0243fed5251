"""GPUs as data: the catalogue, names that people and drivers use, and GPUs of one's own."""

from __future__ import annotations

from tilecast.hardware.gpu import GPU, Link, Microbenchmarks
from tilecast.hardware.lookup import catalogue, gpu, names, source_of

__all__ = ["GPU", "Link", "Microbenchmarks", "catalogue", "gpu", "names", "source_of"]
