"""What the published laws share: classes, arrays, and predictions that keep to the contract."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from published_samples import made_gpu, mixed, rows_by, three_gpus

from tilecast.cli import main
from tilecast.errors import InputError, UnknownNameError
from tilecast.fitting import evaluate_kernels, fit_published
from tilecast.fitting.published import PUBLISHED, fitter_of
from tilecast.fitting.published_data import block_elements, tile_in, tiles_of
from tilecast.hardware.gpu import GPU
from tilecast.kernels import elementwise, gemm, reduction
from tilecast.kernels.table import Floats, KernelTable
from tilecast.predict import law_names, load_law
from tilecast.predict.bound import bound_s
from tilecast.predict.published import law_class
from tilecast.predict.published.base import CLASSES, classes_of, figures_of, roofline_s


def twice(table: KernelTable, gpu: GPU) -> Floats:
    """Twice the roofline without caches."""
    return 2.0 * roofline_s(table, gpu)


def test_every_published_law_can_be_named() -> None:
    assert set(PUBLISHED) <= set(law_names())
    for name in PUBLISHED:
        assert law_class(name).name == name
        with pytest.raises(InputError, match="expected --weights FILE"):
            load_law(name)
    with pytest.raises(UnknownNameError):
        law_class("none")
    with pytest.raises(InputError, match="--law none"):
        fitter_of("none")


def test_classes() -> None:
    table = KernelTable.concatenate([
        gemm.table(4, 8, 8, 8), gemm.table(1, 8, 8, 8), elementwise.table(8, 1),
        elementwise.table(8, 2), reduction.table(8, 8, "softmax"),
        reduction.table(8, 8, "rms_norm_backward"), reduction.table(8, 8, "sum"),
    ])  # fmt: skip
    found = [CLASSES[code] for code in classes_of(table).tolist()]
    assert found == ["bmm", "linear", "vec1", "vec2", "softmax", "norm", "other"]
    np.testing.assert_allclose(figures_of(made_gpu()), [32, 1000, 100, 20000, 20])


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("faithful", [False, True])
def test_predictions_keep_to_the_contract(name: str, faithful: bool) -> None:
    gpus = three_gpus()
    law = law_class(name)(fitter_of(name)(rows_by(gpus, twice), faithful, True))
    other = reduction.table([100, 10**6], [100, 1000], "sum")
    table = KernelTable.concatenate([mixed(5, seed=9), other])
    for gpu in (gpus[0], made_gpu(sms=300, memory_bandwidth_bytes_per_s=5e12)):
        made = law.predict(table, gpu)
        bound = np.max(bound_s(table, gpu), axis=0)
        np.testing.assert_array_equal(made.bound_s, bound)
        assert np.isfinite(made.latency_s).all()
        assert (made.latency_s >= bound).all()
        assert (made.low_s <= made.latency_s).all()
        assert (made.high_s >= made.latency_s).all()
        assert ((made.utilisation > 0) & (made.utilisation <= 1)).all()
        np.testing.assert_allclose(made.latency_s[-2:], roofline_s(other, gpu))
        assert (made.domain[-2:] == 2).all()
        again = law.predict(table.take(np.arange(len(table))[::-1]), gpu)
        np.testing.assert_allclose(again.latency_s[::-1], made.latency_s, rtol=1e-9)


@pytest.mark.parametrize("name", PUBLISHED)
def test_damaged_arrays(name: str) -> None:
    good = fitter_of(name)(rows_by(three_gpus(), twice, count=8), False, True)
    for key, value in good.items():
        with pytest.raises(InputError, match="not finite"):
            law_class(name)({**good, key: np.full(np.shape(value), np.nan)})
        with pytest.raises(InputError, match="has shape"):
            law_class(name)({**good, key: np.ones((2, 2, 2, 2))})


def test_tiles_in_names_and_grids() -> None:
    assert tile_in("volta_sgemm_128x32_sliced1x4_nn") == (128, 32)
    assert tile_in("cutlass_tilesize64x256x8") == (64, 256)
    assert tile_in("Cijk_Ailk_Bljk_SB_MT96x64x16_MI16") == (96, 64)
    assert tile_in("something else") == (0, 0)
    elements = np.array([512.0, 513.0, 1000.0])
    assert block_elements(elements, np.array([1.0, 1.0, 2.0])).tolist() == [512, 1024, 512]
    columns = {"B": [2, 2], "H": [600, 600], "grid_x": [3, float("nan")]}
    assert tiles_of(columns, np.array([0, 1])).tolist() == [[512, 0], [0, 0]]


def csv_of(path: Path, gpus: tuple[str, ...]) -> Path:
    """Rows in NeuSight's layout that run at 5 TFLOP/s and 50 us for the host."""
    draw = np.random.default_rng(3)
    lines = ["op,device,B,M,N,K,kernel,split,latency_ms"]
    for gpu in gpus:
        for op, batch in (("bmm", 8), ("linear", 1)):
            for m, n, k in np.exp(draw.uniform(5, 8, (30, 3))).astype(int).tolist():
                time = 0.05 + 2e3 * batch * m * n * k / 5e12
                lines.append(f"{op},{gpu},{batch},{m},{n},{k},sgemm_64x64,train,{time}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("name", PUBLISHED)
def test_fit_and_evaluate_by_command(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = csv_of(tmp_path / "gemm.csv", ("Tesla T4", "Tesla V100-PCIE-32GB"))
    weights = tmp_path / "w.safetensors"
    assert (
        main(["fit", "--law", name, "--data", str(tmp_path), "--out", str(weights), "--json"]) == 0
    )
    answer = json.loads(capsys.readouterr().out)
    assert answer["law"] == name
    assert answer["rows"] == 120
    assert {row["group"] for row in answer["left_out"]} == {"bmm", "linear"}
    assert main(["evaluate", "kernels", str(data), "--law", name, "--weights", str(weights)]) == 0
    assert "total" in capsys.readouterr().out
    rows = evaluate_kernels([data], law=name, weights=weights)["rows"]
    assert all(row["latency_s"] > 0 for row in rows)
    twin = fit_published(name, [tmp_path], out=tmp_path / "v.safetensors")
    assert twin["rows"] == 120
    assert weights.read_bytes() == (tmp_path / "v.safetensors").read_bytes()
    with pytest.raises(InputError, match="not weights of the tile law"):
        load_law("tile", weights)


def test_nothing_to_fit_on(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no table of measured kernels"):
        fit_published("linear", [tmp_path])
    csv_of(tmp_path / "gemm.csv", ("NVIDIA L4",))
    with pytest.raises(InputError, match="no row that protocol a"):
        fit_published("linear", [tmp_path])
    assert main(["fit", "--faithful", "--data", str(tmp_path), "--out", "w"]) == 2
