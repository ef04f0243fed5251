"""Names, files and overrides."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilecast.errors import InputError, UnknownNameError
from tilecast.hardware import gpu, source_of


@pytest.mark.parametrize("spec", ["h100", "H100", "NVIDIA_H100_80GB_HBM3", "nvidia h100", "H-100"])
def test_spelling_does_not_matter(spec: str) -> None:
    assert gpu(spec).name == "h100-sxm"


def test_a_near_miss_is_answered_with_suggestions() -> None:
    with pytest.raises(UnknownNameError, match="h100") as caught:
        gpu("h1000")
    assert "h100" in caught.value.suggestions


@given(st.floats(0.1, 10.0))
def test_peaks_follow_the_clock(factor: float) -> None:
    base = gpu("a100")
    changed = gpu(f"a100,boost_clock_hz={base.boost_clock_hz * factor}")
    for precision, peak in base.matrix_flops.items():
        assert changed.matrix_flops[precision] == pytest.approx(peak * factor)
    assert changed.vector_flops["fp32"] == pytest.approx(base.vector_flops["fp32"] * factor)
    assert changed.memory_bandwidth_bytes_per_s == base.memory_bandwidth_bytes_per_s


def test_a_peak_that_is_given_stays() -> None:
    changed = gpu("a100,sms=216,matrix_flops.bf16=5e14")
    assert changed.matrix_flops["bf16"] == 5e14
    assert changed.matrix_flops["fp16"] == pytest.approx(2 * 312e12)
    assert source_of(changed, "sms") == "given by the user"


BAD_OVERRIDES = {
    "h100,sms=0": "sms",
    "h100,sms=-4": "sms",
    "h100,tdp_w=nan": "tdp_w",
    "h100,tdp_w=inf": "tdp_w",
    "h100,memory_bytes=many": "memory_bytes",
    "h100,flux=1": "flux",
    "h100,sms": "field=value",
    "h100,vector_flops.fp33=1e12": "fp33",
    "": "nothing",
}


@pytest.mark.parametrize("spec", BAD_OVERRIDES)
def test_a_bad_override_names_its_field(spec: str) -> None:
    with pytest.raises(InputError, match=BAD_OVERRIDES[spec]):
        gpu(spec)


OWN = """
name = "mine"
vendor = "me"
architecture = "next"
sms = 100
boost_clock_hz = 2e9
memory_bytes = 1e11
memory_bandwidth_bytes_per_s = 5e12
l2_bytes = 1e8
shared_memory_per_sm_bytes = 262144
shared_memory_per_block_bytes = 262144
registers_per_sm = 65536
max_threads_per_sm = 2048
max_blocks_per_sm = 32
tdp_w = 500
process_nm = 3
[vector_flops]
fp32 = 5e13
"""


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(OWN)
    assert gpu(str(file)).sms == 100
    assert gpu(f"{file},sms=200").vector_flops["fp32"] == pytest.approx(1e14)


def test_a_file_on_top_of_a_known_gpu(tmp_path: Path) -> None:
    file = tmp_path / "more.toml"
    file.write_text('base = "h100"\nname = "h100-more"\nmemory_bandwidth_bytes_per_s = 5e12\n')
    found = gpu(str(file))
    assert (found.name, found.sms) == ("h100-more", 132)
    assert found.memory_bandwidth_bytes_per_s == 5e12


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("sms = 100", "sms = 0", "sms"),
        ("sms = 100", "sms = 'x'", "sms"),
        ("sms = 100", "", "sms"),
        ("tdp_w = 500", "tdp_w = nan", "tdp_w"),
        ("tdp_w = 500", "tdp_w = 500\nwarp = 3", "warp"),
        ("fp32 = 5e13", "fp16 = 5e13", "fp32"),
        ("fp32 = 5e13", "fp32 = 0", "vector_flops"),
        ('name = "mine"', 'name = "mine', "not TOML"),
    ],
)
def test_a_bad_file_names_file_and_field(tmp_path: Path, old: str, new: str, says: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(OWN.replace(old, new))
    with pytest.raises(InputError, match=says) as caught:
        gpu(str(file))
    assert "mine.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(InputError):
            gpu(f"{path}/" if path == tmp_path else str(path))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not TOML"):
        gpu(str(binary))
