"""What changed between two forecasts, and which part of the machine the change comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilecast.errors import InputError

#: Keys that say what was asked, in the order in which a reader wants them.
ASKED = ("model", "gpu", "mode", "dtype", "batch", "seq", "context", "level")
MAX_FORECAST_BYTES = 64 * 1024 * 1024


def read_forecast(path: str | Path) -> dict[str, Any]:
    """A forecast that `forecast --json` wrote.

    Raises:
        InputError: not a file, not JSON, or not a forecast, naming the key that is missing.
    """
    try:
        if Path(path).stat().st_size > MAX_FORECAST_BYTES:
            raise InputError(f"{path}: larger than {MAX_FORECAST_BYTES} bytes, not a forecast")
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot read it ({error.strerror})") from error
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise InputError(f"{path}: expected the JSON object of a forecast")
    for key, kind in (
        ("model", str), ("gpu", str), ("latency_s", int | float), ("phases_s", dict),
        ("kernels", list), ("families_s", dict), ("gpu_busy_s", int | float),
        ("host_s", int | float),
    ):  # fmt: skip
        if not isinstance(value.get(key), kind):
            raise InputError(f"{path}: {key} is missing or not as `forecast --json` writes it")
    return value


def diff(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Explain the step from one forecast to another.

    Args:
        before, after: forecasts as `Forecast.to_dict()` gives them.

    Returns:
        `asked` (what differs in the question), `latency_s` (before, after, change, ratio),
        `phases_s` (change of each phase), `families` and `kernels` (change of GPU time by
        kernel family, and by name over the kernels that both list, largest first), `idle_s`
        (time without a kernel, before and after), `bound_by` (before, after) and `why` (one line).
    """
    asked = {
        key: {"before": before.get(key), "after": after.get(key)}
        for key in ASKED
        if before.get(key) != after.get(key)
    }
    for key in sorted({*before.get("options", {}), *after.get("options", {})} - set(ASKED)):
        old, new = before.get("options", {}).get(key), after.get("options", {}).get(key)
        if old != new:
            asked[key] = {"before": old, "after": new}
    first, second = float(before["latency_s"]), float(after["latency_s"])
    phases = {
        phase: after["phases_s"].get(phase, 0.0) - before["phases_s"].get(phase, 0.0)
        for phase in {**before["phases_s"], **after["phases_s"]}
    }
    families = _changed("family", before["families_s"], after["families_s"])
    idle = {
        "before": max(0.0, first - float(before["gpu_busy_s"])),
        "after": max(0.0, second - float(after["gpu_busy_s"])),
    }
    return {
        "asked": asked,
        "latency_s": {
            "before": first,
            "after": second,
            "change": second - first,
            "ratio": second / first if first > 0 else None,
        },
        "phases_s": phases,
        "families": families,
        "kernels": _changed("name", _by_name(before), _by_name(after)),
        "idle_s": idle,
        "bound_by": {"before": before.get("bound_by"), "after": after.get("bound_by")},
        "why": _why(first, second, families, idle),
    }


def _by_name(answer: Mapping[str, Any]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for kernel in answer["kernels"]:
        name = str(kernel["name"])
        totals[name] = totals.get(name, 0.0) + float(kernel["latency_s"])
    return totals


def _changed(
    key: str, before: Mapping[str, float], after: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Rows of `{key: name, before_s, after_s, change_s}`, largest change first."""
    rows = []
    for name in {**before, **after}:
        old, new = float(before.get(name, 0.0)), float(after.get(name, 0.0))
        rows.append({key: name, "before_s": old, "after_s": new, "change_s": new - old})
    return sorted(rows, key=lambda row: -abs(row["change_s"]))


def _why(
    first: float, second: float, families: list[dict[str, Any]], idle: Mapping[str, float]
) -> str:
    if first == second:
        return "nothing changed"
    direction = "slower" if second > first else "faster"
    parts = [(str(row["family"]) + " kernels", float(row["change_s"])) for row in families]
    parts.append(("waiting for the host", idle["after"] - idle["before"]))
    sign = 1.0 if second > first else -1.0
    name, change = max(parts, key=lambda part: sign * part[1])
    share = change / (second - first)
    ratio = max(first, second) / min(first, second) if min(first, second) > 0 else float("inf")
    return f"{ratio:.2f} times {direction}, {min(share, 1.0):.0%} of it from {name}"
