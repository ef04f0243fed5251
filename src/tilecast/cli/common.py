"""Options that several verbs share, and how answers are printed."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

ModelArgument = Annotated[
    str,
    typer.Argument(help="Preset name, config.json or its folder, or module:callable."),
]
GpuOption = Annotated[
    str, typer.Option("--gpu", help="Catalogue name, TOML file, or NAME,field=value,...")
]
ModeOption = Annotated[str, typer.Option(help="inference, training, prefill or decode.")]
DtypeOption = Annotated[str, typer.Option(help="fp32, tf32, fp16, bf16, amp-fp16 or amp-bf16.")]
BatchOption = Annotated[int, typer.Option(help="Sequences or images in a step.")]
SeqOption = Annotated[
    int | None, typer.Option(help="Length processed now; 1024, or all positions where fewer.")
]
ContextOption = Annotated[int, typer.Option(help="Tokens already in the KV cache.")]
AttentionOption = Annotated[str, typer.Option(help="auto (SDPA), eager, sdpa or flash.")]
LossOption = Annotated[
    str | None, typer.Option(help="none, cross-entropy or model (training: cross-entropy).")
]
OptimizerOption = Annotated[
    str | None, typer.Option(help="none, sgd, adam or adamw (training: adamw).")
]
DropoutOption = Annotated[bool, typer.Option("--dropout/--no-dropout", help="Dropout in training.")]
AccumulateOption = Annotated[
    int, typer.Option(help="Forward and backward passes before an optimizer step.")
]
HeadOption = Annotated[str, typer.Option(help="Task head where a model has several; auto.")]
CudaGraphsOption = Annotated[
    bool, typer.Option("--cuda-graphs", help="Launches were recorded: no host cost.")
]
LawOption = Annotated[
    str, typer.Option(help="Latency law: tile, roofline, linear, neusight or habitat.")
]
WeightsOption = Annotated[
    str | None, typer.Option(help="File of fitted weights in place of the law's own.")
]
MicrobenchmarkOption = Annotated[
    bool,
    typer.Option(
        "--microbenchmark", help="Use published measurements in the GPU's file, where it has them."
    ),
]
LevelOption = Annotated[float, typer.Option(help="Level of the interval.")]
TopOption = Annotated[int, typer.Option(min=0, help="Kernels and modules to list.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def print_json(value: Any) -> None:
    """Print one JSON object on stdout; a number that is not finite is a defect and raises."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def console() -> Console:
    """Where tables for people go: as wide as the terminal, wide enough for tables in a pipe."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)


def table(title: str, *columns: str) -> Table:
    """A table for people: the first column is text, the others are numbers."""
    from rich.table import Table

    made = Table(title=title, title_justify="left", title_style="bold")
    for position, column in enumerate(columns):
        made.add_column(column, justify="left" if position == 0 else "right", overflow="fold")
    return made


def seconds(value: float) -> str:
    """A time with the unit that a reader expects."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {unit}" if value / scale < 1000 else f"{value:.0f} s"
    return f"{value / 1e-9:.3g} ns"


def amount(value: float, unit: str = "") -> str:
    """A count with a metric prefix."""
    for prefix, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".rstrip()
