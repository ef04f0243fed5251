"""`tilecast kernel`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tilecast.cli import common
from tilecast.cli.common import amount, seconds

app = typer.Typer(help="One kernel on one GPU.", no_args_is_help=True, rich_markup_mode=None)

Dtype = Annotated[str, typer.Option(help="Precision: fp32, tf32, fp16, bf16, fp8, ...")]
Cache = Annotated[str, typer.Option(help="State of the L2 before it starts: cold or warm.")]
Count = Annotated[int, typer.Option()]


def _answer(
    family: str,
    gpu: str,
    dtype: str,
    law: str,
    weights: str | None,
    microbenchmark: bool,
    level: float,
    cache: str,
    json: bool,
    **dims: Any,
) -> None:
    from tilecast.forecast import kernel

    answer = kernel(
        family, gpu=gpu, dtype=dtype, law=law, weights=weights, microbenchmark=microbenchmark,
        level=level, cache=cache, **dims,
    )  # fmt: skip
    if json:
        common.print_json(answer.to_dict())
        return
    out = common.console()
    low, high = answer.interval_s
    out.print(f"[bold]{answer.name}[/bold] {answer.shape} on [bold]{answer.gpu}[/bold] in {dtype}")
    out.print(
        f"[bold]{seconds(answer.latency_s)}[/bold] ({level:.0%} interval {seconds(low)} to "
        f"{seconds(high)}), bound by {answer.bound_by}, {answer.utilisation:.0%} of the bound"
    )
    tile = "x".join(map(str, answer.tile)) if answer.tile else "-"
    out.print(
        f"{amount(answer.flops, 'FLOP')}, {amount(answer.bytes, 'B')}, tile {tile}, "
        f"{answer.waves:.2f} waves, {answer.domain} the fitted range"
    )


@app.command("gemm")
def gemm(
    gpu: common.GpuOption,
    m: Count,
    n: Count,
    k: Count,
    b: Annotated[int, typer.Option("--b", help="Batch.")] = 1,
    layout: Annotated[str, typer.Option(help="nn, nt, tn or tt: is A, is B transposed.")] = "nn",
    dtype: Dtype = "fp32",
    law: common.LawOption = "tile",
    weights: common.WeightsOption = None,
    microbenchmark: common.MicrobenchmarkOption = False,
    level: common.LevelOption = 0.8,
    cache: Cache = "cold",
    json: common.JsonOption = False,
) -> None:
    """[M,K] @ [K,N]: K is the reduced dimension."""
    _answer("gemm", gpu, dtype, law, weights, microbenchmark, level, cache, json,
            b=b, m=m, n=n, k=k, layout=layout)  # fmt: skip


@app.command("attention")
def attention(
    gpu: common.GpuOption,
    heads: Count,
    head_dim: Count,
    q_len: Count,
    kv_len: Count,
    batch: Count = 1,
    kv_heads: Annotated[int | None, typer.Option(help="Heads of K and V; as many as Q.")] = None,
    causal: Annotated[bool, typer.Option("--causal")] = False,
    window: Annotated[int, typer.Option(help="Sliding window; 0 is none.")] = 0,
    dtype: Dtype = "bf16",
    law: common.LawOption = "tile",
    weights: common.WeightsOption = None,
    microbenchmark: common.MicrobenchmarkOption = False,
    level: common.LevelOption = 0.8,
    cache: Cache = "cold",
    json: common.JsonOption = False,
) -> None:
    """Fused attention."""
    _answer("attention", gpu, dtype, law, weights, microbenchmark, level, cache, json,
            batch=batch, heads=heads, kv_heads=kv_heads, head_dim=head_dim, q_len=q_len,
            kv_len=kv_len, causal=causal, window=window)  # fmt: skip


def _pointwise(family: str, help_text: str) -> None:
    def command(
        gpu: common.GpuOption,
        elements: Count,
        inputs: Count = 1,
        outputs: Count = 1,
        ops_per_element: Annotated[float, typer.Option()] = 0.0 if family == "copy" else 1.0,
        dtype: Dtype = "fp32",
        law: common.LawOption = "tile",
        weights: common.WeightsOption = None,
        microbenchmark: common.MicrobenchmarkOption = False,
        level: common.LevelOption = 0.8,
        cache: Cache = "cold",
        json: common.JsonOption = False,
    ) -> None:
        _answer(family, gpu, dtype, law, weights, microbenchmark, level, cache, json,
                elements=elements, inputs=inputs, outputs=outputs,
                ops_per_element=ops_per_element)  # fmt: skip

    app.command(family, help=help_text)(command)


_pointwise("elementwise", "An elementwise kernel.")
_pointwise("copy", "A copy.")


@app.command("reduction")
def reduction(
    gpu: common.GpuOption,
    rows: Count,
    columns: Count,
    kind: Annotated[str, typer.Option(help="sum, softmax, layer_norm, ...")] = "sum",
    dtype: Dtype = "fp32",
    law: common.LawOption = "tile",
    weights: common.WeightsOption = None,
    microbenchmark: common.MicrobenchmarkOption = False,
    level: common.LevelOption = 0.8,
    cache: Cache = "cold",
    json: common.JsonOption = False,
) -> None:
    """A reduction over each row."""
    _answer("reduction", gpu, dtype, law, weights, microbenchmark, level, cache, json,
            rows=rows, columns=columns, kind=kind)  # fmt: skip


@app.command("conv")
def conv(
    gpu: common.GpuOption,
    batch: Count,
    in_channels: Annotated[int, typer.Option("--in", help="Channels in.")],
    out_channels: Annotated[int, typer.Option("--out", help="Channels out.")],
    size: Annotated[int, typer.Option(help="Height and width of the input.")],
    kernel: Annotated[int, typer.Option(help="Height and width of the filter.")],
    stride: Count = 1,
    padding: Count = 0,
    groups: Count = 1,
    pass_: Annotated[str, typer.Option("--pass", help="fwd, dgrad or wgrad.")] = "fwd",
    dtype: Dtype = "fp32",
    law: common.LawOption = "tile",
    weights: common.WeightsOption = None,
    microbenchmark: common.MicrobenchmarkOption = False,
    level: common.LevelOption = 0.8,
    cache: Cache = "cold",
    json: common.JsonOption = False,
) -> None:
    """A 2-d convolution."""
    _answer("conv", gpu, dtype, law, weights, microbenchmark, level, cache, json,
            batch=batch, in_channels=in_channels, out_channels=out_channels, size=size,
            kernel=kernel, stride=stride, padding=padding, groups=groups,
            direction=pass_)  # fmt: skip


@app.command("embedding")
def embedding(
    gpu: common.GpuOption,
    tokens: Count,
    width: Count,
    rows: Annotated[int, typer.Option(help="Rows of the table.")],
    dtype: Dtype = "fp32",
    law: common.LawOption = "tile",
    weights: common.WeightsOption = None,
    microbenchmark: common.MicrobenchmarkOption = False,
    level: common.LevelOption = 0.8,
    cache: Cache = "cold",
    json: common.JsonOption = False,
) -> None:
    """An embedding look-up."""
    _answer("embedding", gpu, dtype, law, weights, microbenchmark, level, cache, json,
            tokens=tokens, width=width, rows=rows)  # fmt: skip
