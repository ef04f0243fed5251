"""Weights files: what is read back, and one clear line for what cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tilecast.errors import InputError
from tilecast.predict import load_law
from tilecast.predict import weights as weights_file
from tilecast.predict.parameters import FEATURES, QUANTILES, Parameters

HEADER = {"format": weights_file.FORMAT, "format_version": weights_file.FORMAT_VERSION}
KEY = weights_file.KEY


def shipped() -> dict[str, np.ndarray]:
    return weights_file.read()[0]


def test_shipped_weights_say_where_they_come_from() -> None:
    _, about = weights_file.read()
    assert about["data"]
    assert about["stack"]
    assert about["protocol"] in ("a", "ship")
    card = weights_file.SHIPPED.with_suffix(".md").read_text("utf-8")
    assert "tilecast fit" in card


def test_parameters_survive_a_round_trip(tmp_path: Path) -> None:
    parameters = Parameters.from_tensors(shipped())
    weights_file.write(tmp_path / "w.safetensors", parameters.to_tensors(), data="d", rows=3)
    again, about = weights_file.read(tmp_path / "w.safetensors")
    assert about["data"] == "d"
    assert about["rows"] == "3"
    for key, value in parameters.to_tensors().items():
        np.testing.assert_array_equal(again[key], value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w.safetensors"]


def test_quantiles_rise_and_ranges_are_in_order() -> None:
    parameters = Parameters.from_tensors(shipped())
    for (group, _), spread in parameters.spread.items():
        assert (np.diff(spread.log_error) >= 0).all(), group
        assert spread.log_error.shape == QUANTILES.shape
        assert (spread.feature_low <= spread.feature_high).all()
        assert len(spread.feature_low) == len(FEATURES[group])


def broken(tmp_path: Path, tensors: dict[str, np.ndarray], header: dict[str, str]) -> Path:
    path = tmp_path / "broken.safetensors"
    save_file(
        {key: np.array(value) for key, value in tensors.items()},
        path,
        metadata={KEY: json.dumps(header)},
    )
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gemm/fp32/quantised": np.array(np.nan)}, "gemm/fp32/quantised is not within"),
        ({"gemm/fp32/quantised": np.array(1.5)}, "gemm/fp32/quantised is not within 0 to 1"),
        ({"gemm/fp32/tail": np.ones(2)}, r"gemm/fp32/tail has shape \(2,\)"),
        ({"gemm/fp31/tail": np.ones(2)}, "unknown precision 'fp31'"),
    ],
)
def test_damaged_values(tmp_path: Path, change: dict[str, np.ndarray], message: str) -> None:
    path = broken(tmp_path, {**shipped(), **change}, HEADER)
    with pytest.raises(InputError, match=message) as caught:
        load_law("tile", path)
    assert "\n" not in str(caught.value)


def test_a_missing_array(tmp_path: Path) -> None:
    tensors = shipped()
    del tensors["gemm/fp32/tail"]
    with pytest.raises(InputError, match="gemm/fp32/tail is missing"):
        load_law("tile", broken(tmp_path, tensors, HEADER))


def test_a_foreign_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not weights of the tile law"):
        load_law("tile", broken(tmp_path, {"a": np.ones(2)}, {}))
    with pytest.raises(InputError, match="format version 99, expected 1"):
        load_law("tile", broken(tmp_path, shipped(), {**HEADER, "format_version": "99"}))


@pytest.mark.parametrize("content", [b"", b"hello", b"\xff" * 64])
def test_not_safetensors(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a whole safetensors file"):
        load_law("tile", path)


def test_a_truncated_file(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(weights_file.SHIPPED.read_bytes()[:-40])
    with pytest.raises(InputError, match="not a whole safetensors file"):
        load_law("tile", path)


def test_missing_folder_and_oversized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="cannot read it"):
        load_law("tile", tmp_path / "none.safetensors")
    with pytest.raises(InputError, match="expected a file"):
        load_law("tile", tmp_path)
    monkeypatch.setattr(weights_file, "MAX_BYTES", 100)
    with pytest.raises(InputError, match="expected at most 100"):
        load_law("tile")
    with pytest.raises(InputError, match="cannot write it"):
        weights_file.write(tmp_path / "no" / "w.safetensors", {})
