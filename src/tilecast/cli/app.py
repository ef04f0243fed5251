"""The verbs of the command, gathered."""

from __future__ import annotations

from typing import Annotated

import typer

from tilecast._version import __version__
from tilecast.cli import compare, diff, evaluate, fit, forecast, gpus, kernel

app = typer.Typer(
    name="tilecast",
    help="Forecast how long a deep-learning workload takes on GPUs you do not have.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"tilecast {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


app.command("forecast")(forecast.command)
app.command("compare")(compare.command)
app.command("diff")(diff.command)
app.command("gpus")(gpus.command)
app.command("fit")(fit.command)
app.add_typer(kernel.app, name="kernel")
app.add_typer(evaluate.app, name="evaluate")
