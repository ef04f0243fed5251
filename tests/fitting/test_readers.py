"""Reading measured kernels: sizes as the layout means them, and errors that name the cell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilecast.errors import InputError
from tilecast.fitting.readers import is_kernel_layout, kernel_rows, measured_seconds, read_columns


def test_n_is_the_reduced_dimension_of_the_layout() -> None:
    asked = kernel_rows(
        "file", {"device": ["x"], "op": ["bmm"], "B": [2], "M": [3], "N": [5], "K": [7]}
    )
    table = asked.table
    sizes = [int(table.dim("gemm", name)[0]) for name in ("batch", "m", "n", "k")]
    assert sizes == [2, 3, 7, 5]
    assert table.flops[0] == pytest.approx(2 * 2 * 3 * 5 * 7)
    assert table.warm[0] == 1.0


def test_every_kind_of_row() -> None:
    columns = {
        "device": ["x"] * 5,
        "op": ["add", "ln", "linear", "conv", "fft"],
        "B": [4, 4, 1, 2, 1],
        "H": [8, 8, None, None, 1],
        "M": [None, None, 3, None, 1],
        "N": [None, None, 5, None, 1],
        "K": [None, None, 7, None, 1],
        "Input_Channel": [None, None, None, 3, None],
        "Output_Channel": [None, None, None, 6, None],
        "Kernel_Size": [None, None, None, 3, None],
        "Input_Size": [None, None, None, 8, None],
        "Stride": [None, None, None, 1, None],
        "Padding": [None, None, None, 1, None],
    }
    asked = kernel_rows("file", columns)
    assert asked.rows.tolist() == [0, 1, 2, 3]
    assert asked.errors[4] == "op 'fft': not a kernel of the neusight-kernels layout"
    families = [asked.table.family_of(row) for row in range(4)]
    assert families == ["elementwise", "reduction", "gemm", "conv"]
    # add reads two tensors and writes one of 32 fp32 elements
    assert asked.table.footprint[0] == 3 * 32 * 4
    # 2 x 6 x 8 x 8 outputs of 3 x 3 x 3 multiply-adds
    assert asked.table.flops[3] == 2 * (2 * 6 * 8 * 8) * 27


@pytest.mark.parametrize("cell", [0, -3, 2.5, "many", None, float("nan"), 1e30])
def test_impossible_sizes_are_row_errors(cell: object) -> None:
    columns = {"device": ["x", "x"], "op": ["add", "add"], "B": [4, cell], "H": [8, 8]}
    asked = kernel_rows("file", columns)
    assert asked.errors == ["", "B: expected a whole number of at least 1"]
    assert asked.rows.tolist() == [0]


def test_measured_times() -> None:
    seconds = measured_seconds([1.5, "2", 0, -1, "x", None, float("inf")])
    np.testing.assert_allclose(seconds[:2], [1.5e-3, 2e-3])
    assert np.isnan(seconds[2:]).all()


def test_the_measured_column_may_not_come_in() -> None:
    with pytest.raises(InputError, match="kept apart"):
        kernel_rows("file", {"device": [], "op": [], "latency_ms": []})


def test_missing_files_and_columns(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_columns(tmp_path / "none.csv")
    with pytest.raises(InputError, match="column device is missing"):
        kernel_rows("file", {"op": ["add"]})
    with pytest.raises(InputError, match="column H is missing, needed by op add"):
        kernel_rows("file", {"device": ["x"], "op": ["add"], "B": [1]})
    (tmp_path / "ragged.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(InputError, match="line 3 has 1 cells, expected 2"):
        read_columns(tmp_path / "ragged.csv")
    (tmp_path / "twice.csv").write_text("a,a\n1,2\n")
    with pytest.raises(InputError, match="appears twice"):
        read_columns(tmp_path / "twice.csv")
    (tmp_path / "data.txt").write_text("a")
    with pytest.raises(InputError, match=r"expected a \.parquet or \.csv file"):
        read_columns(tmp_path / "data.txt")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read as CSV"):
        read_columns(tmp_path / "bytes.csv")


def test_an_empty_table(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("device,op,B,H,latency_ms\n")
    columns = read_columns(tmp_path / "empty.csv")
    assert is_kernel_layout(columns)
    columns.pop("latency_ms")
    assert len(kernel_rows("file", columns)) == 0


def test_parquet_is_read_as_csv_is(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"device": ["x"], "op": ["add"], "B": [2], "H": [3]})
    parquet.write_table(table, tmp_path / "t.parquet")
    assert read_columns(tmp_path / "t.parquet") == {
        "device": ["x"], "op": ["add"], "B": [2], "H": [3],
    }  # fmt: skip
    (tmp_path / "bad.parquet").write_bytes(b"PAR1nothing")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_columns(tmp_path / "bad.parquet")
