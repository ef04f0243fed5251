"""Fit the lines of `tilecast.predict.published.linear`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilecast.fitting.published_data import Rows
from tilecast.kernels.table import Floats
from tilecast.predict.published.base import FITTED, MATRIX_CLASSES, figures_of
from tilecast.predict.published.linear import FOLLOWED, work_of


def fit_linear(
    rows: Sequence[Rows], faithful: bool = False, draft: bool = False
) -> dict[str, NDArray[Any]]:
    """Arrays of the law from rows of several GPUs (`draft` changes nothing: lines are cheap)."""
    figures = np.array([figures_of(one.gpu) for one in rows])
    tensors: dict[str, NDArray[Any]] = {"figures": figures}
    for kind in FITTED:
        lines = np.zeros((len(rows), 2))
        for place, one in enumerate(rows):
            own = one.of_class(kind).seen()
            if len(own) >= 2:
                lines[place] = line(work_of(own.table, kind), own.kernel_s(), not faithful)
        known = lines[:, 1] > 0
        if known.any():
            tensors[f"{kind}/lines"] = lines
            tensors[f"{kind}/across"] = across(
                kind, figures[known], 1.0 / lines[known, 1], faithful
            )
    return tensors


def line(work: Floats, seconds: Floats, relative: bool) -> Floats:
    """Intercept and slope (2,) of seconds over work by least squares.

    Args:
        relative: squares of relative errors in place of squares of seconds.

    Returns:
        The line; one through the origin where the intercept would be negative and errors are
        relative, and zeros where no slope above 0 fits.
    """
    weight = 1.0 / seconds if relative else np.ones(len(seconds))
    scale = float(work.max())
    columns = np.stack([np.ones(len(work)), work / scale], axis=1) * weight[:, None]
    intercept, slope = np.linalg.lstsq(columns, seconds * weight, rcond=None)[0]
    if relative and intercept < 0:
        x = columns[:, 1]
        intercept, slope = 0.0, float(x @ (seconds * weight)) / float(x @ x)
    if slope <= 0:
        return np.zeros(2)
    return np.array([float(intercept), float(slope) / scale])


def across(kind: str, figures: Floats, rates: Floats, faithful: bool) -> Floats:
    """Column followed, intercept and slope (3,) of the rates (GPUs,) over a figure of the GPUs."""
    follows = "bandwidth" if faithful or kind not in MATRIX_CLASSES else "flops"
    column = FOLLOWED[follows]
    return np.concatenate([[float(column)], _over(figures[:, column], rates)])


def _over(figure: Floats, rates: Floats) -> Floats:
    """Line (2,) of rates over a figure; through the origin for a single GPU."""
    if len(rates) < 2 or np.ptp(figure) < 1e-9 * figure.max():
        return np.array([0.0, float(np.mean(rates / figure))])
    centre = figure - figure.mean()
    slope = float(centre @ (rates - rates.mean()) / (centre @ centre))
    return np.array([float(rates.mean()) - slope * float(figure.mean()), slope])
