"""A fit on times that a known law made finds that law again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from measured_kernels import measured_by, rows_of, write

from tilecast.errors import InputError
from tilecast.fitting import evaluate_kernels, fit
from tilecast.fitting.start import START, free_fields, pack, unpack
from tilecast.predict import load_law
from tilecast.predict.parameters import Parameters
from tilecast.predict.tile import TileLaw

pytest.importorskip("scipy")


def known_law() -> TileLaw:
    gemm = replace(
        START.gemm["gemm", "fp32"], tile_efficiency=START.gemm["gemm", "fp32"].tile_efficiency * 0.7
    )
    streams = {
        key: replace(stream, dram_efficiency=np.full(stream.dram_efficiency.shape, 0.6))
        for key, stream in START.stream.items()
    }
    law = replace(START, gemm={**START.gemm, ("gemm", "fp32"): gemm}, stream=streams)
    return TileLaw(Parameters.from_tensors(law.to_tensors()))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for kind, count in (("gemm", 120), ("rows", 80)):
        rows = rows_of(kind, count)
        write(folder / f"{kind}.csv", rows, measured_by(known_law(), rows, noise=0.02))
    (folder / "notes.csv").write_text("what,ever\n1,2\n")
    return folder


def test_a_known_law_is_found_again(data: Path, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    out = tmp_path / "w.safetensors"
    answer = fit([data], protocol="a", out=out, progress=lambda *step: steps.append(step))
    assert answer["rows"] == 4 * 120 + 8 * 80
    assert steps[-1][0] == steps[-1][1]
    files = [data / "gemm.csv", data / "rows.csv"]
    before = evaluate_kernels(files)["total"]
    after = evaluate_kernels(files, weights=out)["total"]
    assert after["mean_ape"] < 8.0
    assert after["mean_ape"] < before["mean_ape"] / 2
    law = load_law("tile", out)
    assert isinstance(law, TileLaw)
    found = law.parameters.stream["elementwise", "fp32"].dram_efficiency
    assert found[0, 1] == pytest.approx(0.6, rel=0.05)  # both GPUs have stacked memory
    # what was left out in turn is reported, and the interval comes from it
    assert {row["device"] for row in answer["left_out"]} == set(answer["devices"])
    held = evaluate_kernels(files, weights=out, level=0.8)["total"]["coverage"]
    assert held > 0.6


def test_a_fit_is_the_same_every_time(data: Path, tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.safetensors" for i in range(2)]
    for path in paths:
        fit([data / "rows.csv"], out=path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_left_out_gpus_are_not_used(data: Path) -> None:
    answer = fit([data / "rows.csv"], leave_out=["Tesla V100-PCIE-32GB"])
    assert len(answer["devices"]) == 1
    assert answer["rows"] == 4 * 80


def test_bad_data(data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no table of measured kernels"):
        fit([data / "notes.csv"])
    with pytest.raises(InputError, match="no such file or folder"):
        fit([tmp_path / "none"])
    with pytest.raises(InputError, match="--protocol z"):
        fit([data], protocol="z")
    rows = [{**row, "split": "test"} for row in rows_of("rows", 1)]
    write(tmp_path / "test.csv", rows, [1.0] * len(rows))
    with pytest.raises(InputError, match="no row that protocol a may fit on"):
        fit([tmp_path / "test.csv"])


@pytest.mark.parametrize("group", ["gemm", "conv", "elementwise", "reduction"])
def test_packing(group: str) -> None:
    free = free_fields(group)
    values, low, high = pack(START, free)
    assert ((low < values) & (values < high)).all()
    again = unpack(START, free, values)
    for key, value in START.to_tensors().items():
        np.testing.assert_allclose(again.to_tensors()[key], value, rtol=1e-3, atol=1e-3)
