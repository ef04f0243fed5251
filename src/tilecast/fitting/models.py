"""`evaluate models`: forecast whole models as they were measured, then look at what was measured.

The layout (recognised by its columns) is that of NeuSight's end-to-end table: one row a run with
`device, model, mode, seq, batch, option` and the measured `e2e_latency` in ms. How those runs
were made sets the options here: Hugging Face eager in fp32 with TF32 off and attention `eager`;
inference under `no_grad` with full logits (BERT as sequence classifier); training with dropout,
forward timed without the loss, then the backward of a cross-entropy over the logits, with gradients
added to ones that exist, and no optimizer step (BERT as for pre-training).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Final

from tilecast.errors import InputError, TilecastError
from tilecast.fitting.protocols import summarise
from tilecast.fitting.readers import read_columns
from tilecast.forecast import Options, Prepared, graph_of, prepare, price
from tilecast.hardware import gpu as find_gpu
from tilecast.predict import Law, load_law
from tilecast.workload.graph import Graph, Op, Phase

LAYOUT: Final = "neusight-models"
ASKED: Final = ("device", "model", "mode", "seq", "batch", "option")
MEASURED: Final = "e2e_latency"
MODES: Final = {"inf": "inference", "train": "training"}
#: Forward operators of a loss, which those runs did not time.
LOSS_OPS: Final = frozenset({"aten._log_softmax", "aten.nll_loss_forward"})


def evaluate_models(
    files: Sequence[str | Path],
    *,
    layout: str | None = None,
    law: str | Law = "tile",
    weights: str | None = None,
    microbenchmark: bool = False,
    level: float = 0.8,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Forecast every row of measured whole models, then compare.

    Args:
        files: CSV or Parquet files in the layout above. A folder `model_configs` beside a file
            holds `<model>.json` configs; the shapes of the models of NeuSight's table are known.
        layout: name of the layout; None recognises it by its columns.
        law, weights, microbenchmark: as in `forecast`.
        level: of the intervals.
        progress: called with (rows done, rows in all).

    Returns:
        `rows` in file order (`device, model, mode, seq, batch, option, measured_s, latency_s,
        interval_s, error`), `groups` by device, model and mode, `total`.

    Raises:
        InputError: a file that is not in the layout, or weights that cannot be used.
    """
    if layout not in (None, LAYOUT):
        raise InputError(f"--layout {layout}: expected {LAYOUT}")
    chosen = load_law(law, weights, microbenchmark) if isinstance(law, str) else law
    tables = []
    for file in files:
        columns = read_columns(file)
        missing = [name for name in (*ASKED, MEASURED) if name not in columns]
        if missing:
            raise InputError(f"{file}: column {missing[0]} is missing, not a {LAYOUT} table")
        measured = columns.pop(MEASURED)
        asked = [
            {name: columns[name][row] for name in ASKED} for row in range(len(columns[ASKED[0]]))
        ]
        tables.append((Path(file), asked, measured))
    total = sum(len(asked) for _, asked, _ in tables)
    rows: list[dict[str, Any]] = []
    for file, asked, measured in tables:
        answers = _forecast_rows(file, asked, chosen, level, progress, len(rows), total)
        # only now, with every forecast made, is the measured column looked at
        for answer, value in zip(answers, measured, strict=True):
            seconds = _positive_ms(value)
            answer["measured_s"] = seconds
            if seconds is None and answer["error"] is None:
                answer["error"] = f"{MEASURED} {value!r}: expected a time above 0 ms"
            rows.append(answer)
    return {"rows": rows, **summarise(rows, ("device", "model", "mode"))}


def _positive_ms(value: Any) -> float | None:
    try:
        seconds = float(value) * 1e-3
    except (TypeError, ValueError):
        return None
    return seconds if 0.0 < seconds < float("inf") else None


def _forecast_rows(
    file: Path,
    asked: list[dict[str, Any]],
    law: Law,
    level: float,
    progress: Callable[[int, int], None] | None,
    done: int,
    total: int,
) -> list[dict[str, Any]]:
    prepared: dict[tuple[Any, ...], Prepared | str] = {}
    answers = []
    for row in asked:
        answer: dict[str, Any] = {
            **{name: _plain(row[name]) for name in ASKED},
            "measured_s": None, "latency_s": None, "interval_s": None, "phases_s": None,
            "error": None,
        }  # fmt: skip
        try:
            key = tuple(answer[name] for name in ASKED[1:])
            if key not in prepared:
                try:
                    prepared[key] = prepare(measured_graph(file, answer))
                except TilecastError as error:
                    prepared[key] = str(error)
            ready = prepared[key]
            if isinstance(ready, str):
                raise InputError(ready)
            forecast = price(ready, find_gpu(str(answer["device"])), law, level=level, top=0)
            answer["latency_s"] = forecast.latency_s
            answer["interval_s"] = list(forecast.interval_s)
            answer["phases_s"] = forecast.phases_s
        except TilecastError as error:
            answer["error"] = str(error)
        answers.append(answer)
        if progress is not None:
            progress(done + len(answers), total)
    return answers


def _plain(value: Any) -> Any:
    """A cell as a plain value: empty and NaN as "", whole numbers as int."""
    if value is None or value != value:
        return ""
    if isinstance(value, str):
        text = value.strip()
        return int(text) if text.lstrip("-").isdigit() else text
    return int(value) if float(value).is_integer() else float(value)


def measured_graph(file: Path, row: Mapping[str, Any]) -> Graph:
    """The graph that one row timed.

    Raises:
        InputError: a model without a config, or an option that is not forecast.
    """
    if row["option"]:
        raise InputError(f"option {row['option']}: only eager runs on one GPU are forecast so far")
    if row["mode"] not in MODES:
        raise InputError(f"mode {row['mode']!r}: expected {', '.join(MODES)}")
    mode = MODES[row["mode"]]
    config = config_of(str(row["model"]), file.parent / "model_configs")
    heads = {"inference": "sequence-classification", "training": "pretraining"}
    training = mode == "training"
    graph = graph_of(
        config,
        Options(
            mode=mode, batch=row["batch"], seq=row["seq"], dtype="fp32", attention="eager",
            loss="cross-entropy" if training else "none", optimizer="none",
            accumulate_gradients=training,
            head=heads[mode] if config.get("model_type") == "bert" else "auto",
        ),
    )  # fmt: skip
    graph.name = str(row["model"])
    if training:
        graph.ops = [op for op in graph.ops if not _of_loss(op)]
    return graph


def _of_loss(op: Op) -> bool:
    return op.phase is Phase.FORWARD and op.name in LOSS_OPS


def config_of(model: str, folder: Path) -> dict[str, Any]:
    """Config of a measured model: from the folder beside the table, else as known.

    Raises:
        InputError: neither has it, or the file is not a config.
    """
    file = folder / f"{model}.json"
    if file.is_file():
        from tilecast.forecast.resolve import read_config

        return read_config(file)
    known = json.loads(
        resources.files("tilecast.fitting").joinpath("measured_models.json").read_text("utf-8")
    )
    for family in known.values():
        if isinstance(family, dict) and model in family["models"]:
            return {**family["common"], **family["models"][model]}
    raise InputError(f"model {model}: no config, expected {model}.json in {folder.name}/")
