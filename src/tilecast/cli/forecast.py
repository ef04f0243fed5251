"""`tilecast forecast`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilecast.cli import common
from tilecast.cli.common import amount, seconds

if TYPE_CHECKING:
    from tilecast.forecast.result import Forecast


def command(
    model: common.ModelArgument,
    gpu: common.GpuOption,
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
    """How long a model takes on a GPU, why and how sure."""
    from tilecast.forecast import forecast

    answer = forecast(
        model, gpu=gpu, mode=mode, dtype=dtype, batch=batch, seq=seq, context=context,
        attention=attention, loss=loss, optimizer=optimizer, dropout=dropout,
        accumulate=accumulate, head=head, cuda_graphs=cuda_graphs, law=law, weights=weights,
        microbenchmark=microbenchmark, level=level, top=top,
    )  # fmt: skip
    if json:
        common.print_json(answer.to_dict())
    else:
        show(answer)


def show(answer: Forecast) -> None:
    """Print a forecast for people."""
    out = common.console()
    low, high = answer.interval_s
    length = f", seq {answer.seq}" if answer.seq else ""
    out.print(
        f"[bold]{answer.model}[/bold] {answer.mode} on [bold]{answer.gpu}[/bold]: {answer.dtype}, "
        f"batch {answer.batch}{length}"
    )
    out.print(
        f"[bold]{seconds(answer.latency_s)}[/bold] ({answer.level:.0%} interval {seconds(low)} to "
        f"{seconds(high)}), MFU {answer.mfu:.1%}, bound by {answer.bound_by}"
    )
    phases = ", ".join(f"{name} {seconds(s)}" for name, s in answer.phases_s.items())
    out.print(
        f"{phases}; GPU busy {seconds(answer.gpu_busy_s)}, host {seconds(answer.host_s)}, "
        f"{answer.launches} launches"
    )
    out.print(
        f"{amount(answer.parameters)} parameters, {amount(answer.flops, 'FLOP')}, "
        f"{amount(answer.bytes, 'B')} moved"
    )
    kernels = common.table(
        "Kernels by time", "kernel", "count", "time", "share", "bound by", "of roofline"
    )
    for kernel in answer.kernels:
        kernels.add_row(
            f"{kernel.name} [dim]{kernel.shape}[/dim]", str(kernel.count),
            seconds(kernel.latency_s), f"{kernel.share:.1%}", kernel.bound_by,
            f"{kernel.roofline_share:.0%}",
        )  # fmt: skip
    out.print(kernels)
    modules = common.table("Modules by time", "module", "launches", "time", "share")
    for module in answer.modules:
        modules.add_row(
            module.module or "(outside modules)", str(module.launches),
            seconds(module.latency_s), f"{module.share:.1%}",
        )  # fmt: skip
    out.print(modules)
    for guessed in answer.estimated_ops:
        out.print(
            f"estimated by bytes only: {guessed['op']} x{guessed['count']} "
            f"({guessed['share']:.1%} of the GPU's time)"
        )
    for domain, words in (("outside", "outside what its law was fitted on"), ("edge", "at the "
                          "edge of what its law was fitted on")):  # fmt: skip
        parts = [s["what"] for s in answer.sources if s["domain"] == domain]
        if parts:
            out.print(f"[dim]{', '.join(parts)}: {words}[/dim]")
