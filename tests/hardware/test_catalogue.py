"""The catalogue against data sheets, and every figure against its source."""

from __future__ import annotations

import pytest

from tilecast.hardware import catalogue, gpu, source_of

# NVIDIA and AMD data sheets and whitepapers, written down apart from the catalogue's files:
# SMs or CUs, memory GB/s, dense 16-bit matrix TFLOP/s, fp32 vector TFLOP/s, W
SHEETS = {
    "NVIDIA H100 80GB HBM3": ("h100-sxm", 132, 3350, 989, 67, 700),
    "NVIDIA_H100_PCIe": ("h100-pcie", 114, 2039, 756, 51, 350),
    "NVIDIA_A100-PCIE-40GB": ("a100-pcie-40gb", 108, 1555, 312, 19.5, 250),
    "NVIDIA_A100_80GB_PCIe": ("a100-pcie-80gb", 108, 1935, 312, 19.5, 300),
    "NVIDIA A100-SXM4-80GB": ("a100-sxm4-80gb", 108, 2039, 312, 19.5, 400),
    "Tesla_V100-PCIE-32GB": ("v100-pcie-32gb", 80, 900, 112, 14, 250),
    "Tesla V100-SXM2-16GB": ("v100-sxm2-16gb", 80, 900, 125, 15.7, 300),
    "Tesla_T4": ("t4", 40, 320, 65, 8.1, 70),
    "NVIDIA_L4": ("l4", 58, 300, 121, 30.3, 72),
    "NVIDIA L40S": ("l40s", 142, 864, 362, 91.6, 350),
    "NVIDIA H200": ("h200-sxm", 132, 4800, 989, 67, 700),
    "NVIDIA A10": ("a10", 72, 600, 125, 31.2, 150),
    "NVIDIA A10G": ("a10g", 80, 600, 70, 35, 300),
    "AMD_Instinct_MI100": ("mi100", 120, 1229, 184.6, 23.1, 300),
    "AMD_Instinct_MI210": ("mi210", 104, 1638, 181, 22.6, 300),
    "AMD Instinct MI300X": ("mi300x", 304, 5300, 1307, 163.4, 750),
}

LANES = {
    "Pascal": (64, 128), "Volta": (64,), "Turing": (64,), "Ampere": (64, 128),
    "Ada Lovelace": (128,), "Hopper": (128,), "Blackwell": (128,), "Blackwell Ultra": (128,),
    "CDNA": (64,), "CDNA 2": (64,), "CDNA 3": (128,), "CDNA 4": (128,), "RDNA 3": (128,),
    "RDNA 4": (128,), "Xe2": (128,), "Xe-HPC": (128,),
}  # fmt: skip


@pytest.mark.parametrize("spoken", SHEETS)
def test_figures_are_those_of_the_data_sheet(spoken: str) -> None:
    name, sms, bandwidth, matrix, vector, power = SHEETS[spoken]
    found = gpu(spoken)
    assert found.name == name
    assert found.sms == sms
    assert found.memory_bandwidth_bytes_per_s == pytest.approx(bandwidth * 1e9, rel=0.01)
    assert found.matrix_flops["fp16"] == pytest.approx(matrix * 1e12, rel=0.01)
    assert found.vector_flops["fp32"] == pytest.approx(vector * 1e12, rel=0.015)
    assert found.tdp_w == power


def test_the_catalogue_is_large_and_its_names_differ() -> None:
    known = catalogue()
    assert len(known) >= 45
    spoken = [name for one in known for name in (one.name, *one.aliases)]
    assert len(spoken) == len(set(spoken))
    assert {one.vendor for one in known} == {"NVIDIA", "AMD", "Intel"}


@pytest.mark.parametrize("one", catalogue(), ids=lambda one: one.name)
def test_every_gpu_is_consistent_and_sourced(one: object) -> None:
    from tilecast.hardware import GPU

    assert isinstance(one, GPU)
    # a peak is SMs x lanes x 2 x boost clock
    peaks = [one.sms * lanes * 2 * one.boost_clock_hz for lanes in LANES[one.architecture]]
    assert any(one.vector_flops["fp32"] == pytest.approx(peak, rel=0.02) for peak in peaks)
    fields = one.model_dump(exclude={"sources", "microbenchmarks", "links", "aliases"})
    for field, value in fields.items():
        assert value is None or source_of(one, field)
    for precision in one.matrix_flops:
        assert source_of(one, f"matrix_flops.{precision}")
    reached = one.microbenchmarks.large_gemm_flops
    for precision, rate in reached.items():
        assert rate <= one.matrix_peak(precision)
        assert one.sources["microbenchmarks"]


def test_plain_names_mean_what_the_guide_says() -> None:
    meant = {
        "h100": "h100-sxm", "a100": "a100-sxm4-80gb", "v100": "v100-sxm2-32gb",
        "p100": "p100-pcie", "h200": "h200-sxm", "gh200": "gh200-96gb", "mi250": "mi250",
        "b60": "arc-pro-b60", "h100_sxm": "h100-sxm", "b200_sxm": "b200",
    }  # fmt: skip
    assert {name: gpu(name).name for name in meant} == meant


def test_a_device_is_what_the_driver_shows() -> None:
    # one die of two: half of the card's 90.5 TFLOP/s fp32 matrix peak and of its 128 GB
    die = gpu("AMD_Instinct_MI250")
    assert die.matrix_flops["fp32"] == pytest.approx(90.5e12 / 2, rel=0.01)
    assert die.memory_bytes == 64 * 2**30
