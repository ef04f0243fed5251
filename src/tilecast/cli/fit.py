"""`tilecast fit`."""

from __future__ import annotations

from typing import Annotated

import typer

from tilecast.cli import common
from tilecast.errors import InputError


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
    law: Annotated[
        str, typer.Option(help="Law to fit: tile, or a published one (linear, neusight, habitat).")
    ] = "tile",
    faithful: Annotated[
        bool, typer.Option("--faithful", help="Published laws: keep their authors' quirks.")
    ] = False,
    json: common.JsonOption = False,
) -> None:
    """Fit the weights of a law on measured kernels."""
    from tilecast.cli.compare import split_gpus
    from tilecast.cli.evaluate import percent, progress_bar
    from tilecast.fitting import fit, fit_published

    if law == "tile" and faithful:
        raise InputError("--faithful: only for a published law, expected --law linear|neusight|...")
    with progress_bar("fitting") as progress:
        left_out = split_gpus(leave_out)
        if law == "tile":
            answer = fit(data, protocol=protocol, leave_out=left_out, out=out, progress=progress)
        else:
            answer = fit_published(
                law, data, protocol=protocol, leave_out=left_out, out=out, progress=progress,
                faithful=faithful,
            )  # fmt: skip
    if json:
        common.print_json(answer)
        return
    output = common.console()
    output.print(
        f"{answer['rows']} rows of {', '.join(answer['devices'])} fitted under protocol "
        f"{answer['protocol']}, written to {answer['out']}"
    )
    rows = common.table(
        "GPUs left out one at a time, error in percent",
        "GPU", "group", "rows", "mean APE", "median", "p90", "bias",
    )  # fmt: skip
    rows.columns[1].justify = "left"
    for row in answer["left_out"]:
        rows.add_row(
            row["device"], row["group"], str(row["rows"]),
            *(percent(row[key]) for key in ("mean_ape", "median_ape", "p90_ape", "bias")),
        )  # fmt: skip
    output.print(rows)
