"""`tilecast evaluate`."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from tilecast.cli import common
from tilecast.errors import InputError

app = typer.Typer(
    help="Forecast measured rows, then compare.", no_args_is_help=True, rich_markup_mode=None
)

Files = Annotated[list[str], typer.Argument(help="CSV or Parquet files.")]
LayoutOption = Annotated[
    str | None, typer.Option(help="Layout of the files; recognised by its columns.")
]
CsvOption = Annotated[str | None, typer.Option("--csv", help="Write the rows here as well.")]


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr that takes (done, total); silent when piped."""
    from rich.console import Console
    from rich.progress import Progress

    error = Console(stderr=True)
    with Progress(console=error, transient=True, disable=not error.is_terminal) as bar:
        task = bar.add_task(title)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@app.command("kernels")
def kernels(
    files: Files,
    layout: LayoutOption = None,
    law: common.LawOption = "tile",
    weights: common.WeightsOption = None,
    microbenchmark: common.MicrobenchmarkOption = False,
    level: common.LevelOption = 0.8,
    csv_file: CsvOption = None,
    json: common.JsonOption = False,
) -> None:
    """Measured kernels."""
    from tilecast.fitting import evaluate_kernels

    _finish(
        evaluate_kernels(
            files, layout=layout, law=law, weights=weights, microbenchmark=microbenchmark,
            level=level,
        ),
        csv_file, json,
    )  # fmt: skip


@app.command("models")
def models(
    files: Files,
    layout: LayoutOption = None,
    law: common.LawOption = "tile",
    weights: common.WeightsOption = None,
    microbenchmark: common.MicrobenchmarkOption = False,
    level: common.LevelOption = 0.8,
    csv_file: CsvOption = None,
    json: common.JsonOption = False,
) -> None:
    """Measured whole models."""
    from tilecast.fitting import evaluate_models

    with progress_bar("forecasting") as progress:
        answer = evaluate_models(
            files, layout=layout, law=law, weights=weights, microbenchmark=microbenchmark,
            level=level, progress=progress,
        )  # fmt: skip
    _finish(answer, csv_file, json)


def _finish(answer: dict[str, Any], csv_file: str | None, json: bool) -> None:
    if csv_file:
        write_csv(Path(csv_file), answer["rows"])
    if json:
        common.print_json(answer)
    else:
        show(answer)


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as CSV, whole or not at all."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]) if rows else [])
            writer.writeheader()
            writer.writerows(rows)
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise InputError(f"--csv {path}: cannot write it ({error.strerror})") from error


def percent(value: float | None) -> str:
    """A figure in percent, or a dash where there is none."""
    return "-" if value is None else f"{value:.1f}"


def show(answer: dict[str, Any]) -> None:
    """Print groups and total for people."""
    rows = common.table(
        "Error in percent", "group", "rows", "answered", "mean APE", "median", "p90", "bias",
        "coverage",
    )  # fmt: skip
    measures = ("mean_ape", "median_ape", "p90_ape", "bias")
    for group in [*answer["groups"], answer["total"]]:
        own = {"rows", "answered", "coverage", "rank_tau", *measures}
        name = " ".join(str(value) for key, value in group.items() if key not in own) or "total"
        coverage = group.get("coverage")
        rows.add_row(
            name, str(group["rows"]), str(group["answered"]),
            *(percent(group.get(measure)) for measure in measures),
            "-" if coverage is None else f"{coverage:.2f}",
        )  # fmt: skip
    out = common.console()
    out.print(rows)
    errors: dict[str, int] = {}
    for row in answer["rows"]:
        if row["error"]:
            errors[row["error"]] = errors.get(row["error"], 0) + 1
    for text, count in errors.items():
        out.print(f"not forecast, {count} rows: {text}")
