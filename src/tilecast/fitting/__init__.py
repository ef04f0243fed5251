"""Measured data, fits and evaluation: for who refits or judges the laws."""

from __future__ import annotations

from tilecast.fitting.evaluate import evaluate_kernels
from tilecast.fitting.fit import fit
from tilecast.fitting.models import evaluate_models
from tilecast.fitting.published import fit_published

__all__ = ["evaluate_kernels", "evaluate_models", "fit", "fit_published"]
