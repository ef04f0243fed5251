"""`evaluate kernels`: rows in order, and forecasts that never see what was measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from measured_kernels import measured_by, rows_of, write

from tilecast.errors import InputError
from tilecast.fitting import evaluate_kernels
from tilecast.predict import load_law

FORECAST = ("latency_s", "interval_s")


@pytest.fixture
def asked() -> list[dict]:
    return rows_of("gemm", 4)


@pytest.mark.parametrize("law", ["tile", "roofline"])
def test_shuffling_the_measured_column_changes_no_forecast(
    tmp_path: Path, asked: list[dict], law: str
) -> None:
    times = measured_by(load_law("roofline"), asked)
    shuffled = np.random.default_rng(0).permutation(times).tolist()
    first, second, third = (
        evaluate_kernels([write(tmp_path / f"{i}.csv", asked, values)], law=law)
        for i, values in enumerate((times, shuffled, ["x"] * len(times)))
    )
    for a, b, c in zip(first["rows"], second["rows"], third["rows"], strict=True):
        assert [a[key] for key in FORECAST] == [b[key] for key in FORECAST]
        assert [a[key] for key in FORECAST] == [c[key] for key in FORECAST]
    assert first["total"]["mean_ape"] != second["total"]["mean_ape"]
    assert third["total"]["answered"] == 0


def test_rows_keep_the_order_and_identity_of_the_file(tmp_path: Path, asked: list[dict]) -> None:
    asked = asked[::-1]
    answer = evaluate_kernels([write(tmp_path / "t.csv", asked, [1.0] * len(asked))])
    keys = ("device", "op", "B", "M", "N", "K", "split")
    assert [[row[key] for key in keys] for row in answer["rows"]] == [
        [row[key] for key in keys] for row in asked
    ]
    assert {row["measured_s"] for row in answer["rows"]} == {1e-3}
    for row in answer["rows"]:
        assert row["interval_s"][0] <= row["latency_s"] <= row["interval_s"][1]
        assert row["error"] is None
    assert [(g["device"], g["op"]) for g in answer["groups"]] == list(
        dict.fromkeys((row["device"], row["op"]) for row in asked)
    )
    assert answer["total"]["rows"] == answer["total"]["answered"] == len(asked)


def test_bad_rows_are_answered_with_an_error(tmp_path: Path, asked: list[dict]) -> None:
    rows = [dict(row) for row in asked[:4]]
    rows[1]["device"] = "Imaginary 9000"
    rows[2]["M"] = 0
    answer = evaluate_kernels([write(tmp_path / "t.csv", rows, [1.0, 1.0, 1.0, -5.0])])
    errors = [row["error"] for row in answer["rows"]]
    assert errors[0] is None
    assert "Imaginary 9000" in errors[1]
    assert errors[2] == "M: expected a whole number of at least 1"
    assert errors[3] == "latency_ms '-5.0': expected a time above 0 ms"
    assert answer["rows"][1]["latency_s"] is None
    assert answer["rows"][3]["latency_s"] > 0
    assert answer["total"]["answered"] == 1


def test_bad_files_and_options(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="not a neusight-kernels table"):
        evaluate_kernels([tmp_path / "t.csv"])
    with pytest.raises(InputError, match="--layout other"):
        evaluate_kernels([], layout="other")
    with pytest.raises(InputError, match="--level 1"):
        evaluate_kernels([], level=1)
    with pytest.raises(InputError, match="--weights"):
        evaluate_kernels([], weights=str(tmp_path / "none"))
