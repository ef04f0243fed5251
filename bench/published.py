"""Published laws beside what their authors (or others) published, on the same rows.

    python -m bench.published --data FOLDER [--law linear,...] [--faithful] [--weights FOLDER]

fits each law under protocol a (or takes `<law>.safetensors` from a folder of weights), then prints
mean absolute percentage errors: kernels of GPUs that the fit did not see, other kernels of GPUs
that it saw, and whole models, where the artifact of NeuSight has a forecast of the same row for
each law. FOLDER holds tables in the layout of `tilecast.fitting.readers`, and `end_to_end.csv`.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import tilecast
from tilecast.fitting import fit_published
from tilecast.fitting.evaluate import forecast_rows
from tilecast.fitting.overhead import Overheads
from tilecast.fitting.protocols import TRAINING_DEVICES, may_train
from tilecast.fitting.readers import (
    ELEMENTWISE,
    MEASURED,
    is_kernel_layout,
    kernel_rows,
    measured_seconds,
    read_columns,
)
from tilecast.predict import load_law
from tilecast.predict import weights as weights_file
from tilecast.predict.published import PublishedLaw

#: Column of `end_to_end.csv` with the forecast that was published for a law.
PUBLISHED = {
    "linear": "published_micro", "neusight": "published_neusight", "habitat": "published_habitat",
    "roofline": "published_roofline",
}  # fmt: skip
KINDS = ("bmm", "linear", "elementwise", "softmax", "ln", "conv")
Errors = dict[tuple[str, str], dict[str, list[float]]]


def kernel_errors(folder: Path, laws: dict[str, Any]) -> Errors:
    """APE (percent) of rows that the fits did not see, by (part, device) and kind."""
    errors: Errors = defaultdict(lambda: defaultdict(list))
    for file in sorted(folder.iterdir()):
        columns = read_columns(file) if file.suffix in (".parquet", ".csv") else {}
        if not is_kernel_layout(columns):
            continue
        device = [str(name) for name in columns["device"]]
        keep = np.flatnonzero(
            ~may_train("a", device, columns.get("split", ["train"] * len(device)))
        )
        own = {name: [cells[row] for row in keep.tolist()] for name, cells in columns.items()}
        measured = measured_seconds(own.pop(MEASURED))
        asked = kernel_rows(str(file), own)
        kinds = ["elementwise" if op in ELEMENTWISE else str(op) for op in own["op"]]
        places = [
            ("other rows" if name in TRAINING_DEVICES else "unseen GPU", name)
            for name in map(str, own["device"])
        ]
        for name, law in laws.items():
            host = law.protocol if isinstance(law, PublishedLaw) else laws_host(laws)
            latency = forecast_rows(asked, law, Overheads.from_tensors(host))[0]
            ape = 100.0 * np.abs(latency / measured - 1.0)
            for row in np.flatnonzero(np.isfinite(ape)).tolist():
                part, gpu = places[row]
                errors[part, gpu][f"{name} {kinds[row]}"].append(float(ape[row]))
    return errors


def laws_host(laws: dict[str, Any]) -> dict[str, Any]:
    """Host times for the roofline: those of a law beside it, else of the package's weights."""
    own = (law.protocol for law in laws.values() if getattr(law, "protocol", None))
    return next(own, None) or weights_file.read()[0]


def show_kernels(errors: Errors, laws: list[str]) -> None:
    """Print the mean APE of each part, GPU and kind."""
    print(f"\n{'part':12}{'device':24}{'kind':13}{'rows':>7}" + "".join(f"{n:>10}" for n in laws))
    for (part, gpu), own in sorted(errors.items()):
        for kind in KINDS:
            values = [own.get(f"{name} {kind}", []) for name in laws]
            if values[0]:
                means = "".join(f"{np.mean(v):10.1f}" if v else f"{'-':>10}" for v in values)
                print(f"{part:12}{gpu:24}{kind:13}{len(values[0]):7}{means}")


def model_rows(folder: Path, laws: dict[str, Any]) -> list[dict[str, Any]]:
    """Plain rows of whole models: measured, and each law's and the published forecasts (s)."""
    file = folder / "end_to_end.csv"
    with file.open(newline="", encoding="utf-8") as text:
        published = list(csv.DictReader(text))
    rows: list[dict[str, Any]] = []
    for name, law in laws.items():
        answers = tilecast.evaluate_models([file], law=law)["rows"]
        rows = rows or [{**row, "ours": {}, "published": {}} for row in answers]
        for row, answer, source in zip(rows, answers, published, strict=True):
            row["ours"][name] = answer["latency_s"]
            text_ms = source.get(PUBLISHED[name], "")
            row["published"][name] = float(text_ms) * 1e-3 if text_ms else None
    return [row for row in rows if not row["option"] and row["measured_s"]]


def show_models(rows: list[dict[str, Any]], laws: list[str]) -> None:
    """Print mean APE of ours and of what was published, over the same rows."""
    seen = {tilecast.gpu(name).name for name in TRAINING_DEVICES}

    def part_of(row: dict[str, Any]) -> str:
        place = tilecast.gpu(str(row["device"]))
        if place.vendor.lower() != "nvidia":
            return f"{place.vendor} {row['mode']}"
        return f"{'seen' if place.name in seen else 'unseen'} GPU {row['mode']}"

    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[part_of(row)].append(row)
        if not part_of(row).startswith("AMD"):
            groups["NVIDIA in all"].append(row)
    print(f"\n{'whole models':24}" + "".join(f"{n:>28}" for n in laws))
    print(f"{'mean APE':24}" + f"{'rows  ours  published':>28}" * len(laws))
    for part, own in sorted(groups.items()):
        text = ""
        for name in laws:
            both = [r for r in own if r["ours"][name] and r["published"][name]]
            figures = [
                np.mean([100 * abs(r[which][name] / r["measured_s"] - 1) for r in both])
                for which in ("ours", "published")
                if both
            ]
            text += f"{len(both):12}" + ("".join(f"{f:8.1f}" for f in figures) or f"{'-':>16}")
        print(f"{part:24}{text}")


def main() -> None:
    """Fit, forecast, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--law", default="linear,neusight,habitat")
    parser.add_argument("--faithful", action="store_true")
    parser.add_argument("--weights", type=Path, help="folder of fitted weights")
    parser.add_argument("--keep", type=Path, help="folder to write the weights into")
    options = parser.parse_args()
    laws: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.law.split(","):
            file = (options.weights or options.keep or Path(scratch)) / f"{name}.safetensors"
            if options.weights is None:
                begin = time.perf_counter()
                made = fit_published(name, [options.data], out=file, faithful=options.faithful)
                print(
                    f"{name}: {made['rows']} rows, {time.perf_counter() - begin:.0f} s, "
                    f"{file.stat().st_size / 1e3:.0f} kB"
                )
            laws[name] = load_law(name, file)
    laws["roofline"] = load_law("roofline")
    show_kernels(kernel_errors(options.data, laws), list(laws))
    if (options.data / "end_to_end.csv").is_file():
        show_models(model_rows(options.data, laws), list(laws))


if __name__ == "__main__":
    main()
