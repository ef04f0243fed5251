"""Small tables in NeuSight's layout whose measured column comes from a known law."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from tilecast.fitting.overhead import Overheads
from tilecast.fitting.readers import kernel_rows
from tilecast.hardware import gpu
from tilecast.predict.law import Law

DEVICES = ("Tesla V100-PCIE-32GB", "NVIDIA A100-PCIE-40GB")
HOST = Overheads(
    dict.fromkeys(("bmm", "linear", "add", "relu", "softmax", "ln"), 14e-6),
    dict.fromkeys(("bmm", "linear", "add", "relu", "softmax", "ln"), 12e-6),
)


def rows_of(kind: str, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Rows to ask for, `count` for each device and operator; kind is `gemm` or `rows`."""
    draw = np.random.default_rng(seed)
    made = []
    for device in DEVICES:
        for op in ("bmm", "linear") if kind == "gemm" else ("add", "relu", "softmax", "ln"):
            for _ in range(count):
                row: dict[str, Any] = {"op": op, "device": device, "split": "train"}
                if kind == "gemm":
                    sizes = np.exp(draw.uniform(np.log(16), np.log(6000), 3)).astype(int).tolist()
                    row |= {"B": int(draw.integers(2, 32)) if op == "bmm" else 1}
                    row |= dict(zip("MNK", sizes, strict=True))
                else:
                    sizes = np.exp(draw.uniform(np.log(16), np.log(8000), 2)).astype(int).tolist()
                    row |= dict(zip("BH", sizes, strict=True))
                made.append(row)
    return made


def measured_by(law: Law, rows: list[dict[str, Any]], noise: float = 0.0) -> list[float]:
    """What the protocol's clock would show, in ms, if kernels took what `law` says."""
    draw = np.random.default_rng(1)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    asked = kernel_rows("made", columns)
    times = np.zeros(len(rows))
    device = np.array(columns["device"])[asked.rows]
    for name in sorted(set(device.tolist())):
        chosen = np.flatnonzero(device == name)
        times[asked.rows[chosen]] = law.predict(asked.table.take(chosen), gpu(name)).latency_s
    times *= np.exp(draw.normal(0.0, noise, len(rows)))
    return (1e3 * HOST.measured(columns["op"], times)).tolist()


def write(path: Path, rows: list[dict[str, Any]], latency_ms: list[Any]) -> Path:
    """A CSV file with the measured column among the others."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*rows[0], "latency_ms"])
        writer.writeheader()
        writer.writerows(
            {**row, "latency_ms": value} for row, value in zip(rows, latency_ms, strict=True)
        )
    return path
