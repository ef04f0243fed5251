"""Intervals from the errors on left-out GPUs, and how near the training rows a kernel lies."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from tilecast.kernels.table import Floats
from tilecast.predict.parameters import QUANTILES, Spread

#: How much wider the log interval is, by domain code (inside, edge, outside).
WIDENING = np.array([1.0, 1.5, 2.5])
#: How far beyond the training range `edge` reaches, in units of the natural log.
EDGE = float(np.log(4.0))


def log_quantile(spread: Spread, probability: float) -> float:
    """Quantile of log(measured / forecast) at any probability in (0, 1).

    Linear in the normal score between the quantiles that are kept, and beyond them.
    """
    normal = NormalDist()
    scores = np.array([normal.inv_cdf(float(q)) for q in QUANTILES])
    score = normal.inv_cdf(min(max(probability, 1e-9), 1.0 - 1e-9))
    values = np.maximum.accumulate(spread.log_error)
    if scores[0] <= score <= scores[-1]:
        return float(np.interp(score, scores, values))
    end, inner = (0, 5) if score < scores[0] else (-1, -6)
    slope = (values[end] - values[inner]) / (scores[end] - scores[inner])
    return float(values[end] + slope * (score - scores[end]))


def interval(
    latency_s: Floats, spread: Spread, domain: NDArray[np.int8], level: float
) -> tuple[Floats, Floats]:
    """Low and high ends (n,) around the forecast, wider the further from the training rows."""
    low = min(0.0, log_quantile(spread, (1.0 - level) / 2.0))
    high = max(0.0, log_quantile(spread, (1.0 + level) / 2.0))
    wider = WIDENING[domain]
    return latency_s * np.exp(low * wider), latency_s * np.exp(high * wider)


def domain_of(features: Floats, spread: Spread) -> NDArray[np.int8]:
    """Codes of `DOMAINS` (n,) for features (features, n) on natural-log scales."""
    beyond = np.maximum(
        spread.feature_low[:, None] - features, features - spread.feature_high[:, None]
    ).max(axis=0)
    return np.where(beyond <= 0.0, 0, np.where(beyond <= EDGE, 1, 2)).astype(np.int8)
