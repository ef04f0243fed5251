"""`tilecast diff`."""

from __future__ import annotations

from typing import Annotated

import typer

from tilecast.cli import common
from tilecast.cli.common import seconds

ForecastFile = Annotated[str, typer.Argument(help="What `tilecast forecast --json` printed.")]


def _signed(value: float) -> str:
    return ("+" if value >= 0 else "-") + seconds(abs(value))


def command(before: ForecastFile, after: ForecastFile, json: common.JsonOption = False) -> None:
    """What changed between two forecasts, and why."""
    from tilecast.forecast.diff import diff, read_forecast

    answer = diff(read_forecast(before), read_forecast(after))
    if json:
        common.print_json(answer)
        return
    out = common.console()
    for key, sides in answer["asked"].items():
        out.print(f"{key}: {sides['before']} -> {sides['after']}")
    latency = answer["latency_s"]
    out.print(
        f"[bold]{seconds(latency['before'])} -> {seconds(latency['after'])}[/bold]: {answer['why']}"
    )
    rows = common.table("Change", "part", "before", "after", "change")
    for row in answer["families"]:
        rows.add_row(
            f"{row['family']} kernels", seconds(row["before_s"]), seconds(row["after_s"]),
            _signed(row["change_s"]),
        )  # fmt: skip
    idle = answer["idle_s"]
    rows.add_row(
        "waiting for the host", seconds(idle["before"]), seconds(idle["after"]),
        _signed(idle["after"] - idle["before"]),
    )  # fmt: skip
    for phase, change in answer["phases_s"].items():
        rows.add_row(f"phase {phase}", "", "", _signed(change))
    out.print(rows)
