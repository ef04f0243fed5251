"""`tilecast fit`."""

from __future__ import annotations

from typing import Annotated

import typer

from tilecast.cli import common


def command(
    data: Annotated[list[str], typer.Option("--data", help="Folder of measured data.")],
    out: Annotated[str, typer.Option("--out", help="Weights file to write.")],
    protocol: Annotated[
        str,
        typer.Option(
            help="a: the published training GPUs and rows; b: those, leaving GPUs out; "
            "ship: everything."
        ),
    ] = "a",
    leave_out: Annotated[
        str, typer.Option("--leave-out", help="GPUs to keep out, separated by commas.")
    ] = "",
    json: common.JsonOption = False,
) -> None:
    """Fit the weights of the tile law on measured kernels."""
    from tilecast.cli.compare import split_gpus
    from tilecast.cli.evaluate import progress_bar
    from tilecast.fitting import fit

    with progress_bar("fitting") as progress:
        answer = fit(
            data, protocol=protocol, leave_out=split_gpus(leave_out), out=out, progress=progress
        )
    if json:
        common.print_json(answer)
        return
    output = common.console()
    for key, value in answer.items():
        output.print(f"{key}: {value}")
