"""Fit `tilecast.predict.published.habitat`: curves of the kernels alike, nets for the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tilecast.fitting.published_data import Rows
from tilecast.fitting.published_net import Loss, train
from tilecast.kernels.table import Floats
from tilecast.predict.published.base import figures_of
from tilecast.predict.published.habitat import SCALED, SIZES, net_inputs

EPOCHS: Final = 40
#: Of a draft, whose only use is the error on a GPU that was left out.
DRAFT_EPOCHS: Final = 10
#: Knots of a curve.
KNOTS: Final = 24


def fit_habitat(
    rows: Sequence[Rows], faithful: bool = False, draft: bool = False
) -> dict[str, NDArray[Any]]:
    """Arrays of the law from rows of several GPUs."""
    tensors: dict[str, NDArray[Any]] = {
        "figures": np.array([figures_of(one.gpu) for one in rows]),
        "clock_hz": np.array([one.gpu.boost_clock_hz for one in rows]),
        "faithful": np.array([float(faithful)]),
    }
    for kind in SCALED:
        for place, one in enumerate(rows):
            own = one.of_class(kind).seen()
            if len(own):
                tensors[f"curve/{kind}/{place}"] = curve(own.table.footprint, own.kernel_s())
    for kind in SIZES:
        parts = [own for one in rows if len(own := one.of_class(kind).seen())]
        if not parts:
            continue
        inputs = np.concatenate([net_inputs(own.table, kind, own.gpu, faithful) for own in parts])
        time = np.concatenate([own.kernel_s() for own in parts])
        unit = float(np.median(time))
        loss = plain_error(time / unit) if faithful else log_error(time / unit)
        epochs = DRAFT_EPOCHS if draft else EPOCHS
        net = train(inputs, loss, (1.0 if faithful else 0.0,), epochs=epochs)
        tensors |= {**net.to_tensors(f"net/{kind}"), f"unit/{kind}": np.array([unit])}
    return tensors


def curve(size: Floats, seconds: Floats) -> Floats:
    """Knots (k, 2) of log size and log time: medians of equally many rows, never falling."""
    order = np.argsort(size, kind="stable")
    groups = np.array_split(order, min(KNOTS, len(order)))
    knots = np.array([
        [np.median(np.log(size[rows])), np.median(np.log(seconds[rows]))] for rows in groups
    ])  # fmt: skip
    knots[:, 1] = np.maximum.accumulate(knots[:, 1])
    return knots


def plain_error(time: Floats) -> Loss:
    """|forecast / time - 1| of outputs that are times."""

    def loss(outputs: Floats, rows: NDArray[np.intp]) -> tuple[Floats, Floats]:
        error = outputs[:, 0] / time[rows] - 1.0
        return np.abs(error), (np.sign(error) / time[rows])[:, None]

    return loss


def log_error(time: Floats) -> Loss:
    """|forecast / time - 1| of outputs that are logarithms of times."""

    def loss(outputs: Floats, rows: NDArray[np.intp]) -> tuple[Floats, Floats]:
        ratio = np.exp(np.clip(outputs[:, 0], -30.0, 30.0)) / time[rows]
        return np.abs(ratio - 1.0), (np.sign(ratio - 1.0) * ratio)[:, None]

    return loss
