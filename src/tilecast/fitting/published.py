"""Fit a published law: what is common to all of them.

A fit is judged by leaving each GPU out in turn; those errors make the law's intervals. By default
a fit takes the host's part off what was measured (`tilecast.fitting.overhead`), and leaves out rows
that the host hides. A faithful fit takes times as they were measured, as the authors did, and keeps
the quirks that each law's module names.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from tilecast.errors import InputError
from tilecast.fitting.fit import DATA, STACK, Progress, typical_overheads
from tilecast.fitting.overhead import Overheads
from tilecast.fitting.protocols import check_protocol, measures
from tilecast.fitting.published_data import Rows, load_rows
from tilecast.hardware import gpu as find_gpu
from tilecast.kernels.table import Floats
from tilecast.predict import weights as weights_file
from tilecast.predict.parameters import QUANTILES, Spread
from tilecast.predict.published import PublishedLaw, law_class
from tilecast.predict.published.base import FITTED, classes_of, features_of, spread_tensors

Arrays = dict[str, NDArray[Any]]
PUBLISHED: Final = ("linear", "neusight", "habitat")


class Fitter(Protocol):
    """Fits a law's arrays."""

    def __call__(self, rows: Sequence[Rows], faithful: bool, draft: bool) -> Arrays:
        """Arrays of the law from rows of several GPUs; a `draft` may take a shorter training."""
        ...


def fitter_of(name: str) -> Fitter:
    """The fitter of a published law.

    Raises:
        InputError: no such law.
    """
    if name == "linear":
        from tilecast.fitting.published_linear import fit_linear

        return fit_linear
    if name == "neusight":
        from tilecast.fitting.published_neusight import fit_neusight

        return fit_neusight
    if name == "habitat":
        from tilecast.fitting.published_habitat import fit_habitat

        return fit_habitat
    raise InputError(f"--law {name}: expected tile, {', '.join(PUBLISHED)}")


def fit_published(
    law: str,
    data: Sequence[str | Path],
    protocol: str = "a",
    leave_out: Sequence[str] = (),
    out: str | Path | None = None,
    progress: Progress | None = None,
    faithful: bool = False,
) -> dict[str, Any]:
    """Fit a published law and write its weights.

    Args:
        law: `linear`, `neusight` or `habitat`.
        data, protocol, leave_out, out, progress: as in `tilecast.fitting.fit`.
        faithful: keep what the authors did where the default differs (see the laws' modules).

    Returns:
        As `tilecast.fitting.fit`, with `law` and `faithful`.

    Raises:
        InputError: no usable data, an unknown law, protocol or GPU, or `out` cannot be written.
    """
    fitter = fitter_of(law)
    check_protocol(protocol)
    excluded = {find_gpu(name).name for name in leave_out}
    rows, floors = load_rows(data, protocol, excluded)
    if faithful:
        rows = [one.as_measured() for one in rows]
    devices = [one.gpu.name for one in rows]
    steps = len(rows) + 1 if len(rows) > 1 else 1
    errors: dict[str, list[Floats]] = {kind: [] for kind in FITTED}
    report: list[dict[str, Any]] = []
    if len(rows) > 1:
        for done, left in enumerate(rows):
            others = [one for one in rows if one is not left]
            hosts = {one.gpu.name: floors[one.gpu.name] for one in others}
            made = law_class(law)(fitter(others, faithful, True))
            host = Overheads({}, {}) if faithful else typical_overheads(hosts)
            report += _judge(made, left, host, errors)
            if progress is not None:
                progress(done + 1, steps)
    tensors = fitter(rows, faithful, False)
    for kind in FITTED:
        spread = _spread(kind, rows, errors[kind])
        if spread is not None:
            tensors |= spread_tensors(kind, spread)
    if not faithful:
        tensors |= typical_overheads(floors).to_tensors()
    if progress is not None:
        progress(steps, steps)
    answer: dict[str, Any] = {
        "out": None if out is None else str(out),
        "law": law,
        "faithful": faithful,
        "protocol": protocol,
        "rows": sum(map(len, rows)),
        "devices": devices,
        "left_out": report,
    }
    if out is not None:
        weights_file.write(
            out, tensors, law=law, compact=True, data=DATA, stack=STACK, protocol=protocol,
            rows=answer["rows"], faithful=faithful,
        )  # fmt: skip
    return answer


def _judge(
    law: PublishedLaw, left: Rows, host: Overheads, errors: dict[str, list[Floats]]
) -> list[dict[str, Any]]:
    """Errors of a law on a GPU that it did not see, by class; adds log errors to `errors`."""
    made = law.predict(left.table, left.gpu).latency_s
    clock = host.measured(left.op.tolist(), made)
    classes = classes_of(left.table)
    kernel = left.kernel_s()
    seen = (kernel > 1.3 * left.tail_s) & (made > 1.3 * left.tail_s)
    report = []
    for code, kind in enumerate(FITTED):
        own = classes == code
        if not own.any():
            continue
        told = own & seen
        errors[kind].append(np.log(kernel[told] / made[told]))
        report.append({
            "device": left.gpu.name, "group": kind, "rows": int(own.sum()),
            **measures(left.measured_s[own], clock[own]),
        })  # fmt: skip
    return report


def _spread(kind: str, rows: Sequence[Rows], errors: Sequence[Floats]) -> Spread | None:
    """Quantiles of the log error (each GPU weighs the same) and the feature range of a class."""
    features = [features_of(own.table) for one in rows if len(own := one.of_class(kind))]
    if not features:
        return None
    ranges = np.concatenate(features, axis=1)
    quantiles = np.interp(QUANTILES, [0, 0.1, 0.5, 0.9, 1], [-1.2, -0.5, 0, 0.5, 1.2])
    usable = [error for error in errors if len(error)]
    if usable:
        values = np.concatenate(usable)
        weight = np.concatenate([np.full(len(error), 1.0 / len(error)) for error in usable])
        order = np.argsort(values)
        position = np.cumsum(weight[order]) - 0.5 * weight[order]
        quantiles = np.interp(QUANTILES * weight.sum(), position, values[order])
    return Spread(np.clip(quantiles, -19.0, 19.0), ranges.min(axis=1), ranges.max(axis=1))
