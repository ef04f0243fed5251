"""Accuracy on whole models: `python -m bench.models DATA`.

DATA is a folder with NeuSight's `end_to_end.csv` (and `model_configs`). Each law forecasts every
row before it sees what was measured. Weights are given, so that a protocol can be followed: with
the package's own weights, which were fitted on all kernels of that data, the GPUs are not unseen.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np

import tilecast

#: Rows whose NeuSight forecast was published stand beside ours.
PUBLISHED = "published_neusight"


def group(rows: list[dict[str, Any]], keys: tuple[str, ...]) -> dict[tuple[Any, ...], list[Any]]:
    """Rows by the values of some keys, in order of first sight."""
    found: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--weights", help="weights of the tile law (the package's own)")
    arguments = parser.parse_args()
    file = arguments.data / "end_to_end.csv"
    with file.open(newline="", encoding="utf-8") as text:
        published = [row[PUBLISHED] for row in csv.DictReader(text)]
    answers = {
        "tile": tilecast.evaluate_models([file], law="tile", weights=arguments.weights)["rows"],
        "roofline": tilecast.evaluate_models([file], law="roofline")["rows"],
    }
    rows = []
    for position, row in enumerate(answers["tile"]):
        if row["option"]:
            continue
        row["roofline_s"] = answers["roofline"][position]["latency_s"]
        text = published[position]
        row["published_s"] = float(text) * 1e-3 if text else None
        rows.append(row)
    answered = [row for row in rows if row["latency_s"]]
    print(f"plain rows: {len(rows)}, answered: {len(answered)}")
    for row in rows:
        if not row["latency_s"]:
            print(f"  not answered: {row['device']} {row['model']}: {row['error']}")

    def ape(key: str, members: list[dict[str, Any]]) -> str:
        errors = [100 * abs(r[key] / r["measured_s"] - 1) for r in members if r[key]]
        return f"{np.mean(errors):8.1f}" if errors else "       -"

    print("mean APE, percent")
    print(f"{'group':44} {'rows':>5} {'tile':>8} {'bias':>8} {'roofline':>8} {'NeuSight':>8} cover")
    for keys in (("device", "mode"), ("model", "mode"), ("mode",)):
        for name, members in group(answered, keys).items():
            bias = np.median([100 * (r["latency_s"] / r["measured_s"] - 1) for r in members])
            cover = np.mean(
                [r["interval_s"][0] <= r["measured_s"] <= r["interval_s"][1] for r in members]
            )
            print(
                f"{' '.join(map(str, name)):44} {len(members):5} {ape('latency_s', members)} "
                f"{bias:8.1f} {ape('roofline_s', members)} {ape('published_s', members)} "
                f"{cover:5.2f}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
