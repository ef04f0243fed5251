"""Fit `tilecast.predict.published.neusight`: five nets, and the tiles that are looked up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tilecast.errors import InputError
from tilecast.fitting.published_data import Rows
from tilecast.fitting.published_net import SEED, Loss, train
from tilecast.kernels.table import Floats
from tilecast.predict.published.base import figures_of
from tilecast.predict.published.neusight import (
    LOOKED_UP,
    NETS,
    UTILISATION_LEAST,
    sigmoid,
    sizes_of,
    tiled,
    utilisation,
)

#: Epochs, rate and weight decay of each net, the better of seven by leaving GPUs of the fit out:
#: longer training of the others fits its own GPUs better and others worse.
SHORT: Final = (20, 5e-4, 1e-2)
TRAINING: Final = {"linear": (60, 2e-3, 1e-4)}
#: Share of the epochs of a draft, whose only use is the error on a GPU that was left out.
DRAFT: Final = 0.25
#: Kernels of one GPU in the look-up, by class.
TILES_EACH: Final = {"bmm": 1500, "linear": 1500, "vec1": 200, "vec2": 200}
#: Percentile of the utilisation that the data reach below which no forecast goes.
LEAST_PERCENTILE: Final = 0.5
#: Where alpha and gamma start: a utilisation of a half, little of it lost to few waves.
START: Final = (-2.0, 0.0)


def fit_neusight(
    rows: Sequence[Rows], faithful: bool = False, draft: bool = False
) -> dict[str, NDArray[Any]]:
    """Arrays of the law from rows of several GPUs.

    Raises:
        InputError: no row has what a class needs (the name of the kernel, or its grid).
    """
    tensors: dict[str, NDArray[Any]] = {
        "figures": np.array([figures_of(one.gpu) for one in rows]),
        "faithful": np.array([float(faithful)]),
    }
    for net in dict.fromkeys(NETS.values()):
        parts = []
        for kind in (kind for kind, own in NETS.items() if own == net):
            known = []
            for place, one in enumerate(rows):
                own = one.of_class(kind)
                if kind in LOOKED_UP:
                    own = own.take(np.flatnonzero(own.tile[:, 0] > 0))
                    known.append(_tiles(own, kind, place))
                parts.append((kind, own.seen()))
            if sum(map(len, known)):
                tensors[f"tiles/{kind}"] = np.concatenate(known)
        inputs, loss, reached = _problem(parts)
        if len(inputs):
            epochs, rate, decay = TRAINING.get(net, SHORT)
            epochs = max(SHORT[0], round(epochs * DRAFT)) if draft else epochs
            made = train(inputs, loss, START, epochs=epochs, rate=rate, weight_decay=decay)
            tensors |= made.to_tensors(f"net/{net}")
            least = UTILISATION_LEAST if faithful else np.percentile(reached, LEAST_PERCENTILE)
            tensors[f"least/{net}"] = np.array([least])
    if not any(key.startswith("net/") for key in tensors):
        raise InputError(
            "--data: no row with the name or the grid of its kernel to fit neusight on"
        )
    return tensors


def _tiles(own: Rows, kind: str, place: int) -> NDArray[np.int32]:
    """A sample of the kernels of one GPU for the look-up (rows, sizes + 3)."""
    sizes = sizes_of(own.table, kind)
    made = np.column_stack([sizes, np.full(len(own), place), own.tile]).astype(np.int32)
    most = TILES_EACH[kind]
    if len(made) <= most:
        return made
    draw = np.random.default_rng(SEED)
    return made[np.sort(draw.choice(len(made), most, replace=False))]


def _problem(parts: Sequence[tuple[str, Rows]]) -> tuple[Floats, Loss, Floats]:
    """Inputs (n, 4) of a net, its loss, and the utilisation that was reached (n,)."""
    made = [
        (tiled(own.table, kind, own.tile.astype(np.float64), own.gpu), own)
        for kind, own in parts
        if len(own)
    ]
    if not made:
        return np.zeros((0, 4)), lambda outputs, rows: (outputs[:, 0], outputs), np.zeros(0)
    inputs = np.concatenate([one.inputs for one, _ in made])
    waves = np.concatenate([one.waves for one, _ in made])
    work = np.concatenate([one.work_s(own.gpu.sms) for one, own in made])
    time = np.concatenate([own.kernel_s() for _, own in made])

    def loss(outputs: Floats, rows: NDArray[np.intp]) -> tuple[Floats, Floats]:
        return symmetric_error(outputs, waves[rows], work[rows], time[rows])

    return inputs, loss, work / time


def symmetric_error(
    outputs: Floats, waves: Floats, work_s: Floats, time_s: Floats
) -> tuple[Floats, Floats]:
    """|time - forecast| / (time + forecast) (n,) and its gradient over outputs (n, 2).

    Where the utilisation is held at a limit, the gradient is that at the limit if it leads back.
    """
    util = utilisation(outputs, waves)
    forecast = work_s / util
    both = time_s + forecast
    to_util = -np.sign(forecast - time_s) * 2.0 * time_s / both**2 * forecast / util
    pushed_down = (util <= UTILISATION_LEAST) & (to_util > 0)
    to_util = np.where(pushed_down | ((util >= 1.0) & (to_util < 0)), 0.0, to_util)
    share = sigmoid(outputs)
    slope = share * (1.0 - share)
    gradient = np.stack([-slope[:, 0] / waves, slope[:, 1]], axis=1) * to_util[:, None]
    return np.abs(time_s - forecast) / both, gradient
