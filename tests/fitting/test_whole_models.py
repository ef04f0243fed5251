"""Whole models: forecast first, compare afterwards."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest

from tilecast.errors import InputError
from tilecast.fitting import evaluate_models
from tilecast.fitting.models import config_of, measured_graph
from tilecast.workload.graph import Phase

COLUMNS = ["device", "model", "mode", "seq", "batch", "option", "e2e_latency"]
ROWS: list[list[Any]] = [
    ["NVIDIA_A100-PCIE-40GB", "bert", "inf", 128, 2, "", 5.0],
    ["Tesla_T4", "bert", "inf", 128, 2, "", 9.0],
    ["Tesla_T4", "gpt2_med", "train", 64, 1, "", 80.0],
    ["Tesla_T4", "gpt2_med", "inf", 64, 1, "", 30.0],
    ["Tesla_T4", "gpt2_med", "inf", 4096, 1, "", 30.0],
    ["Tesla_T4", "bert", "inf", 128, 2, "fusion", 7.0],
    ["Tesla_T4", "nobody", "inf", 128, 2, "", 7.0],
    ["Tesla_T5", "bert", "inf", 128, 2, "", 7.0],
]


def write(path: Path, rows: list[list[Any]], columns: list[str] | None = None) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns or COLUMNS, *rows])
    return path


def test_rows_come_back_in_order_with_errors_where_they_cannot_be_forecast(tmp_path: Path) -> None:
    answer = evaluate_models([write(tmp_path / "runs.csv", ROWS)])
    rows = answer["rows"]
    assert [row["device"] for row in rows] == [row[0] for row in ROWS]
    assert [row["measured_s"] for row in rows] == [row[-1] * 1e-3 for row in ROWS]
    assert [row["error"] is None for row in rows] == [True] * 4 + [False] * 4
    assert all((row["latency_s"] is None) == (row["error"] is not None) for row in rows)
    for row in rows[:4]:
        assert row["interval_s"][0] <= row["latency_s"] <= row["interval_s"][1]
    assert answer["total"]["rows"] == 8
    assert answer["total"]["answered"] == 4
    says = ["1024", "fusion", "nobody.json", "Tesla_T5"]
    assert all(text in row["error"] for text, row in zip(says, rows[4:], strict=True))


def test_shuffling_what_was_measured_changes_no_forecast(tmp_path: Path) -> None:
    measured = [row[-1] for row in ROWS]
    random.Random(1).shuffle(measured)
    shuffled = [[*row[:-1], value] for row, value in zip(ROWS, measured, strict=True)]
    one = evaluate_models([write(tmp_path / "a.csv", ROWS)])["rows"]
    two = evaluate_models([write(tmp_path / "b.csv", shuffled)])["rows"]
    assert [row["measured_s"] for row in one] != [row["measured_s"] for row in two]
    for key in ("latency_s", "interval_s", "phases_s", "error"):
        assert [row[key] for row in one[:6]] == [row[key] for row in two[:6]]


def test_training_is_timed_without_loss_and_optimizer() -> None:
    row = {"model": "gpt2_med", "mode": "train", "seq": 64, "batch": 1, "option": ""}
    graph = measured_graph(Path("runs.csv"), row)
    assert {op.phase for op in graph.ops} == {Phase.FORWARD, Phase.BACKWARD}
    forward = {op.name for op in graph.ops if op.phase is Phase.FORWARD}
    assert "aten._log_softmax" not in forward
    assert "aten.native_dropout" in forward
    assert "aten._softmax" in forward


def test_a_config_beside_the_table_goes_first(tmp_path: Path) -> None:
    folder = tmp_path / "model_configs"
    folder.mkdir()
    known = config_of("bert", folder)
    (folder / "bert.json").write_text(json.dumps({**known, "num_hidden_layers": 1}))
    file = write(tmp_path / "runs.csv", ROWS[:1])
    short = evaluate_models([file])["rows"][0]["latency_s"]
    (folder / "bert.json").unlink()
    assert short < evaluate_models([file])["rows"][0]["latency_s"]


def test_shapes_are_those_of_the_measured_models() -> None:
    # that data's gpt3_xl is wider than the paper's: 24 layers of 3072
    config = config_of("gpt3_xl", Path("none"))
    assert (config["n_layer"], config["n_embd"], config["n_head"]) == (24, 3072, 24)


@pytest.mark.parametrize("column", ["device", "e2e_latency"])
def test_a_missing_column_is_named(tmp_path: Path, column: str) -> None:
    place = COLUMNS.index(column)
    rows = [[cell for i, cell in enumerate(row) if i != place] for row in ROWS]
    file = write(tmp_path / "runs.csv", rows, [name for name in COLUMNS if name != column])
    with pytest.raises(InputError, match=f"runs.csv.*{column}"):
        evaluate_models([file])


@pytest.mark.parametrize("value", [0, -1, "", "fast", "nan"])
def test_a_time_that_is_none_is_an_error_of_its_row(tmp_path: Path, value: object) -> None:
    row = evaluate_models([write(tmp_path / "runs.csv", [[*ROWS[0][:-1], value]])])["rows"][0]
    assert row["measured_s"] is None
    assert "e2e_latency" in row["error"]
