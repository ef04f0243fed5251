"""`tilecast gpus`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilecast.cli import common
from tilecast.cli.common import amount

if TYPE_CHECKING:
    from tilecast.hardware import GPU


def command(
    name: Annotated[
        str | None, typer.Argument(help="One GPU: its figures, each with its source.")
    ] = None,
    json: common.JsonOption = False,
) -> None:
    """The catalogue, or one GPU with the source of each figure."""
    from tilecast.hardware import catalogue, gpu

    if name is None:
        known = catalogue()
        if json:
            common.print_json({"gpus": [one.model_dump(mode="json") for one in known]})
        else:
            _show_all(known)
        return
    one = gpu(name)
    if json:
        common.print_json(one.model_dump(mode="json"))
    else:
        _show_one(one)


def _show_all(known: list[GPU]) -> None:
    rows = common.table(
        f"{len(known)} GPUs", "name", "architecture", "SMs", "memory", "bandwidth", "fp32",
        "bf16 or fp16 matrix", "TDP",
    )  # fmt: skip
    for one in known:
        half = one.matrix_flops.get("bf16") or one.matrix_flops.get("fp16")
        rows.add_row(
            one.name, one.architecture, str(one.sms), amount(one.memory_bytes, "B"),
            amount(one.memory_bandwidth_bytes_per_s, "B/s"),
            amount(one.vector_flops["fp32"], "FLOP/s"), amount(half, "FLOP/s") if half else "-",
            f"{one.tdp_w:.0f} W",
        )  # fmt: skip
    common.console().print(rows)


def flat(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Fields of a GPU by dotted name, without its sources."""
    if isinstance(value, dict):
        return [
            row
            for key, inner in value.items()
            if key != "sources"
            for row in flat(inner, f"{prefix}.{key}" if prefix else key)
        ]
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [
            row for index, inner in enumerate(value) for row in flat(inner, f"{prefix}.{index}")
        ]
    return [(prefix, value)]


def _show_one(one: GPU) -> None:
    from tilecast.hardware import source_of

    rows = common.table(one.full_name or one.name, "field", "value", "source")
    rows.columns[2].justify = "left"
    for field, value in flat(one.model_dump(mode="json")):
        if value in (None, "", [], {}):
            continue
        text = f"{value:g}" if isinstance(value, float) else str(value)
        rows.add_row(field, text, source_of(one, field))
    common.console().print(rows)
