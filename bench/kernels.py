"""How far off kernel forecasts are, and how fast they are made.

    python -m bench.kernels DATA_FOLDER [--weights FILE | --protocol a] [--speed-only]

fits the tile law under a protocol (or takes weights), then prints the errors of the tile law and of
the roofline beside each other, by device and kind of operator: rows that the fit saw, other rows of
the GPUs that it saw, and GPUs that it did not see. DATA_FOLDER holds tables in
the layout of `tilecast.fitting.readers`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tilecast.fitting import evaluate_kernels, fit
from tilecast.fitting.protocols import TRAINING_DEVICES, may_train, summarise
from tilecast.fitting.readers import ELEMENTWISE, MEASURED, is_kernel_layout, read_columns
from tilecast.hardware import gpu
from tilecast.kernels import elementwise, gemm, reduction
from tilecast.kernels.table import KernelTable
from tilecast.predict import load_law


def mixed_table(rows: int, seed: int = 0) -> KernelTable:
    """Random kernels of the three fitted families, a third of the rows each."""
    draw = np.random.default_rng(seed)
    each = rows // 3
    batch, m, n, k = (2 ** draw.integers(0, top, each) for top in (6, 13, 13, 13))
    return KernelTable.concatenate([
        gemm.table(batch, m, n, k),
        elementwise.table(2 ** draw.integers(0, 28, each), 2, 1, 1),
        reduction.table(*(2 ** draw.integers(0, 14, each) for _ in range(2)), "softmax"),
    ])  # fmt: skip


def speed(law: str, weights: str | None, rows: int = 300_000) -> float:
    """Kernels priced per second on one thread, best of three."""
    chosen = load_law(law, weights if law == "tile" else None)
    table, place = mixed_table(rows), gpu("NVIDIA_A100-PCIE-40GB")
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        chosen.predict(table, place)
        best = min(best, time.perf_counter() - begin)
    return len(table) / best


def kind_of(row: dict[str, Any]) -> str:
    """Operators that go into one line of the table."""
    return "elementwise" if row["op"] in ELEMENTWISE else str(row["op"])


def accuracy(files: list[Path], weights: str) -> list[dict[str, Any]]:
    """Groups by device, kind and part, with the measures of both laws."""
    groups: dict[tuple[str, ...], dict[str, Any]] = {}
    keys = ("part", "device", "kind")
    for law in ("tile", "roofline"):
        rows = evaluate_kernels(files, weights=weights, law=law)["rows"]
        device, split = ([str(row.get(name, "")) for row in rows] for name in ("device", "split"))
        seen = may_train("a", device, split)
        for row, fitted in zip(rows, seen.tolist(), strict=True):
            row["kind"] = kind_of(row)
            own = "other rows" if row["device"] in TRAINING_DEVICES else "unseen GPU"
            row["part"] = "fitted rows" if fitted else own
        for group in summarise(rows, keys)["groups"]:
            groups.setdefault(tuple(group[key] for key in keys), dict(group))[law] = group
    return [groups[key] for key in sorted(groups)]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--weights")
    parser.add_argument("--protocol", default="a")
    parser.add_argument("--speed-only", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        weights = options.weights
        if weights is None and not options.speed_only:
            weights = str(Path(folder) / "weights.safetensors")
            begin = time.perf_counter()
            made = fit([options.data], protocol=options.protocol, out=weights)
            print(f"fit: {made['rows']} rows, {time.perf_counter() - begin:.0f} s")
            print("\nLeft out of the fit, one GPU at a time (training rows)")
            print(f"{'device':26}{'group':13}{'rows':>7}{'mean':>7}{'median':>8}{'bias':>7}")
            for row in made["left_out"]:
                print(
                    f"{row['device']:26}{row['group']:13}{row['rows']:7}{row['mean_ape']:7.1f}"
                    f"{row['median_ape']:8.1f}{row['bias']:7.1f}"
                )
        if not options.speed_only:
            files = [
                path
                for path in sorted(options.data.iterdir())
                if path.suffix in (".parquet", ".csv") and is_kernel_layout(read_columns(path))
            ]
            print(f"\n{MEASURED}: error in percent, tile | roofline")
            print(f"{'part':12}{'device':26}{'kind':12}{'rows':>7}{'mean':>13}{'median':>13}"
                  f"{'bias':>13}{'coverage':>13}")  # fmt: skip
            for group in accuracy(files, weights):
                pairs = "".join(
                    f"{group['tile'][name] or 0:{width}}|{group['roofline'][name] or 0:5{last}}"
                    for name, width, last in (
                        ("mean_ape", "7.1f", ".1f"), ("median_ape", "7.1f", ".1f"),
                        ("bias", "7.1f", ".1f"), ("coverage", "7.2f", ".2f"),
                    )
                )  # fmt: skip
                print(
                    f"{group['part']:12}{group['device']:26}{group['kind']:12}"
                    f"{group['answered']:7}{pairs}"
                )
        print("\nkernels priced per second, one thread")
        for law in ("tile", "roofline"):
            print(f"{law:10}{speed(law, weights) / 1e6:6.1f} million")


if __name__ == "__main__":
    main()
