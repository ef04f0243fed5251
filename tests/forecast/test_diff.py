"""What changed between two forecasts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tilecast.errors import InputError
from tilecast.forecast import diff, read_forecast


def answer(gemm: float, idle: float, **asked: Any) -> dict[str, Any]:
    latency = gemm + 1.0 + idle
    return {
        "model": "m", "gpu": "a", "mode": "inference", "dtype": "fp32", "batch": 1,
        "latency_s": latency, "phases_s": {"forward": latency}, "gpu_busy_s": gemm + 1.0,
        "host_s": 0.5, "bound_by": "compute", "families_s": {"gemm": gemm, "copy": 1.0},
        "kernels": [{"name": "gemm_nt", "family": "gemm", "latency_s": gemm}], "options": {},
        **asked,
    }  # fmt: skip


def test_the_same_twice_is_no_change() -> None:
    same = diff(answer(3.0, 0.0), answer(3.0, 0.0))
    assert same["asked"] == {}
    assert same["latency_s"]["change"] == 0.0
    assert same["why"] == "nothing changed"


def test_the_larger_part_of_a_change_is_named() -> None:
    found = diff(answer(3.0, 0.0), answer(1.0, 0.5, gpu="b"))
    assert found["asked"] == {"gpu": {"before": "a", "after": "b"}}
    assert found["latency_s"]["ratio"] == pytest.approx(2.5 / 4.0)
    assert found["families"][0] == {
        "family": "gemm", "before_s": 3.0, "after_s": 1.0, "change_s": -2.0
    }  # fmt: skip
    assert "faster" in found["why"]
    assert "gemm kernels" in found["why"]


def test_families_and_idle_time_add_up_to_the_change() -> None:
    found = diff(answer(3.0, 0.25), answer(1.0, 0.5))
    parts = sum(row["change_s"] for row in found["families"])
    idle = found["idle_s"]["after"] - found["idle_s"]["before"]
    assert parts + idle == pytest.approx(found["latency_s"]["change"])


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "not JSON"), ("[]", "expected the JSON object"), ('{"model": "m"}', "gpu is missing")],
)
def test_a_file_that_is_no_forecast_is_refused(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(text)
    with pytest.raises(InputError, match=says):
        read_forecast(file)


def test_a_forecast_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps(answer(3.0, 0.0)))
    assert read_forecast(file)["latency_s"] == 4.0


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read it"):
        read_forecast(tmp_path / "none.json")
