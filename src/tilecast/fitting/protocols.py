"""How forecasts are judged: error measures, groups, and which rows a fit may see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tilecast.errors import InputError
from tilecast.kernels.table import Floats

#: GPUs whose `split=train` rows protocol `a` fits on: those of NeuSight (ASPLOS'25, section 6).
TRAINING_DEVICES: Final = (
    "Tesla P4", "Tesla P100-PCIE-16GB", "Tesla V100-PCIE-32GB", "Tesla T4",
    "NVIDIA A100-PCIE-40GB",
)  # fmt: skip
#: a: those GPUs and rows. b: the same, and a report of each GPU forecast without its rows.
#: ship: every row, for the weights that the package carries.
PROTOCOLS: Final = ("a", "b", "ship")


def check_protocol(protocol: str) -> None:
    """Raise InputError unless `protocol` is known."""
    if protocol not in PROTOCOLS:
        raise InputError(f"--protocol {protocol}: expected {', '.join(PROTOCOLS)}")


def may_train(protocol: str, device: Sequence[str], split: Sequence[str]) -> NDArray[np.bool_]:
    """Rows (n,) that a fit under `protocol` may see."""
    if protocol == "ship":
        return np.ones(len(device), dtype=np.bool_)
    devices = np.isin(np.array(device, dtype=object).astype(str), TRAINING_DEVICES)
    train: NDArray[np.bool_] = devices & (np.array(split, dtype=object).astype(str) == "train")
    return train


def kendall_tau(first: Floats, second: Floats) -> float | None:
    """Kendall's tau-b of two arrays (n,); None where one of them is constant. O(n log n)."""
    count = len(first)
    pairs = count * (count - 1) / 2.0
    order = np.lexsort((second, first))
    x = np.unique(first, return_inverse=True)[1][order].astype(np.int64)
    y = np.unique(second, return_inverse=True)[1][order].astype(np.int64)
    ties_x, ties_y = _tied_pairs(x), _tied_pairs(y)
    ties_both = _tied_pairs(x * (int(y.max(initial=0)) + 1) + y)
    scale = float(np.sqrt((pairs - ties_x) * (pairs - ties_y)))
    if scale <= 0:
        return None
    concordant_less_discordant = pairs - ties_x - ties_y + ties_both - 2.0 * _inversions(y)
    return float(concordant_less_discordant / scale)


def _tied_pairs(codes: NDArray[np.int64]) -> float:
    sizes = np.unique(codes, return_counts=True)[1].astype(np.float64)
    return float((sizes * (sizes - 1) / 2.0).sum())


def _inversions(codes: NDArray[np.int64]) -> float:
    """Pairs out of order, counted bit by bit: within equal upper bits, ones before zeros."""
    values, total = codes, 0.0
    for bit in range(int(values.max(initial=0)).bit_length() - 1, -1, -1):
        ones = (values >> bit) & 1
        upper = values >> (bit + 1)
        before = np.cumsum(ones) - ones
        starts = np.flatnonzero(np.concatenate([[True], upper[1:] != upper[:-1]]))
        group = np.cumsum(np.concatenate([[0], (upper[1:] != upper[:-1]).astype(np.int64)]))
        total += float((before - before[starts][group])[ones == 0].sum())
        values = values[np.argsort(values >> bit, kind="stable")]
    return total


def measures(
    measured_s: Floats, latency_s: Floats, low_s: Floats | None = None, high_s: Floats | None = None
) -> dict[str, float | None]:
    """Error measures of n answered rows, in percent but for the last two.

    Returns:
        `mean_ape, median_ape, p90_ape` of APE = 100 |forecast / measured - 1|; `bias`, the median
        of 100 (forecast / measured - 1), positive when too slow; `coverage`, the share of measured
        times within the interval; `rank_tau`, Kendall's tau-b of forecast against measured. None
        where there are no rows (or, for tau, no order).
    """
    names = ("mean_ape", "median_ape", "p90_ape", "bias", "coverage", "rank_tau")
    if len(measured_s) == 0:
        return dict.fromkeys(names)
    error = 100.0 * (latency_s / measured_s - 1.0)
    ape = np.abs(error)
    coverage = None
    if low_s is not None and high_s is not None:
        coverage = float(np.mean((measured_s >= low_s) & (measured_s <= high_s)))
    values = (
        float(ape.mean()), float(np.median(ape)), float(np.percentile(ape, 90)),
        float(np.median(error)), coverage, kendall_tau(latency_s, measured_s),
    )  # fmt: skip
    return dict(zip(names, values, strict=True))


def summarise(rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> dict[str, Any]:
    """Groups and total of evaluated rows.

    Args:
        rows: with `keys`, and `measured_s`, `latency_s`, `interval_s`, each possibly None.
        keys: columns that make a group.

    Returns:
        `groups` (in order of first appearance, each with its keys) and `total`, each with `rows`,
        `answered` (forecast and measured) and the measures of `measures`.
    """
    nan = float("nan")
    measured = np.array([nan if (v := row["measured_s"]) is None else v for row in rows], float)
    latency = np.array([nan if (v := row["latency_s"]) is None else v for row in rows], float)
    ends = [row["interval_s"] or (nan, nan) for row in rows]
    low, high = np.array(ends, dtype=np.float64).reshape(-1, 2).T
    answered = np.isfinite(measured) & np.isfinite(latency)
    members: dict[tuple[Any, ...], list[int]] = {}
    for position, row in enumerate(rows):
        members.setdefault(tuple(row[key] for key in keys), []).append(position)

    def summary(positions: NDArray[np.intp]) -> dict[str, Any]:
        own = positions[answered[positions]]
        return {
            "rows": len(positions), "answered": len(own),
            **measures(measured[own], latency[own], low[own], high[own]),
        }  # fmt: skip

    groups = [
        {**dict(zip(keys, group, strict=True)), **summary(np.array(positions, dtype=np.intp))}
        for group, positions in members.items()
    ]
    return {"groups": groups, "total": summary(np.arange(len(rows)))}
