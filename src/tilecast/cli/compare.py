"""`tilecast compare`."""

from __future__ import annotations

from typing import Annotated

import typer

from tilecast.cli import common
from tilecast.cli.common import seconds


def split_gpus(text: str) -> list[str]:
    """GPU names from a comma-separated list; `name,field=value` stays one GPU."""
    names: list[str] = []
    for part in (piece.strip() for piece in text.split(",")):
        if "=" in part and names:
            names[-1] += f",{part}"
        elif part:
            names.append(part)
    return names


def command(
    model: common.ModelArgument,
    gpus: Annotated[str, typer.Option("--gpus", help="GPUs, separated by commas.")],
    mode: common.ModeOption = "inference",
    dtype: common.DtypeOption = "fp32",
    batch: common.BatchOption = 1,
    seq: common.SeqOption = None,
    context: common.ContextOption = 0,
    attention: common.AttentionOption = "auto",
    loss: common.LossOption = None,
    optimizer: common.OptimizerOption = None,
    dropout: common.DropoutOption = True,
    accumulate: common.AccumulateOption = 1,
    head: common.HeadOption = "auto",
    cuda_graphs: common.CudaGraphsOption = False,
    law: common.LawOption = "tile",
    weights: common.WeightsOption = None,
    microbenchmark: common.MicrobenchmarkOption = False,
    level: common.LevelOption = 0.8,
    top: common.TopOption = 10,
    json: common.JsonOption = False,
) -> None:
    """One model on several GPUs, ranked by time."""
    from tilecast.forecast import compare

    answer = compare(
        model, gpus=split_gpus(gpus), mode=mode, dtype=dtype, batch=batch, seq=seq,
        context=context, attention=attention, loss=loss, optimizer=optimizer, dropout=dropout,
        accumulate=accumulate, head=head, cuda_graphs=cuda_graphs, law=law, weights=weights,
        microbenchmark=microbenchmark, level=level, top=top,
    )  # fmt: skip
    if json:
        common.print_json(answer.to_dict())
        return
    first = answer.forecasts[0]
    length = f", seq {first.seq}" if first.seq else ""
    rows = common.table(
        f"{first.model} {first.mode}: {first.dtype}, batch {first.batch}{length}",
        "GPU", "time", f"{level:.0%} interval", "times the fastest", "MFU", "bound by",
    )  # fmt: skip
    ordered = sorted(answer.forecasts, key=lambda one: one.latency_s)
    for one in ordered:
        low, high = one.interval_s
        rows.add_row(
            one.gpu, seconds(one.latency_s), f"{seconds(low)} - {seconds(high)}",
            f"{one.latency_s / ordered[0].latency_s:.2f}", f"{one.mfu:.1%}", one.bound_by,
        )  # fmt: skip
    common.console().print(rows)
