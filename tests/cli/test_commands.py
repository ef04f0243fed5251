"""The command: JSON that is JSON, one line for bad input, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tilecast.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code, out, err = run(capsys, *arguments)
    assert (code, err) == (0, "")
    value = json.loads(out)
    assert isinstance(value, dict)
    return value


FORECAST_KEYS = {
    "model", "gpu", "mode", "dtype", "batch", "seq", "context", "latency_s", "interval_s",
    "phases_s", "host_s", "gpu_busy_s", "flops", "bytes", "mfu", "bound_by", "kernels", "modules",
    "estimated_ops", "sources",
}  # fmt: skip


def test_forecast_json_has_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    value = answer(
        capsys, "forecast", "gpt2", "--gpu", "h100", "--mode", "training", "--batch", "2",
        "--seq", "128", "--json",
    )  # fmt: skip
    assert value.keys() >= FORECAST_KEYS
    assert value["phases_s"].keys() == {"forward", "backward", "optimizer"}
    assert sum(value["phases_s"].values()) == pytest.approx(value["latency_s"])
    assert value["interval_s"][0] <= value["latency_s"] <= value["interval_s"][1]
    assert set(value["kernels"][0]) >= {
        "name", "family", "count", "latency_s", "share", "bound_by", "roofline_share",
    }  # fmt: skip
    assert value["estimated_ops"] == []


def test_forecast_for_people_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "forecast", "gpt2", "--gpu", "h100", "--seq", "128")
    assert code == 0
    assert "gpt2" in out
    assert "bound by" in out


def test_compare_ranks_by_time(capsys: pytest.CaptureFixture[str]) -> None:
    value = answer(
        capsys, "compare", "gpt2", "--gpus", "p4,h100,a100", "--batch", "8", "--seq", "512",
        "--json",
    )  # fmt: skip
    by_gpu = {one["gpu"]: one["latency_s"] for one in value["forecasts"]}
    assert value["ranking"]["time"] == sorted(by_gpu, key=lambda name: by_gpu[name])
    assert value["ranking"]["time"][-1] == "p4"


def test_an_override_stays_with_its_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    value = answer(
        capsys, "compare", "gpt2", "--gpus", "t4,memory_bandwidth_bytes_per_s=6e11,t4", "--seq",
        "512", "--batch", "8", "--json",
    )  # fmt: skip
    fast, plain = (one["latency_s"] for one in value["forecasts"])
    assert fast < plain


def test_diff_of_two_answers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("a100", "h100"):
        value = answer(capsys, "forecast", "gpt2", "--gpu", name, "--seq", "64", "--json")
        (tmp_path / name).write_text(json.dumps(value))
    value = answer(capsys, "diff", str(tmp_path / "a100"), str(tmp_path / "h100"), "--json")
    assert value["asked"]["gpu"]["before"].startswith("a100")


def test_gpus_lists_and_explains(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(answer(capsys, "gpus", "--json")["gpus"]) >= 45
    one = answer(capsys, "gpus", "NVIDIA H100 80GB HBM3", "--json")
    assert one["sms"] == 132  # H100 whitepaper, table 3
    assert one["sources"]
    code, out, _ = run(capsys, "gpus", "h100")
    assert code == 0
    assert "memory_bandwidth_bytes_per_s" in out


KERNELS = [
    ["gemm", "--m", "1024", "--n", "512", "--k", "256"],
    ["gemm", "--b", "8", "--m", "128", "--n", "128", "--k", "64", "--layout", "nt"],
    ["elementwise", "--elements", "1000000"],
    ["copy", "--elements", "1000000"],
    ["reduction", "--rows", "4096", "--columns", "1024", "--kind", "softmax"],
    ["conv", "--batch", "8", "--in", "64", "--out", "128", "--size", "56", "--kernel", "3",
     "--padding", "1"],
    ["attention", "--batch", "2", "--heads", "8", "--head-dim", "64", "--q-len", "128",
     "--kv-len", "128", "--causal"],
    ["embedding", "--tokens", "4096", "--width", "1024", "--rows", "50257"],
]  # fmt: skip


@pytest.mark.parametrize("arguments", KERNELS, ids=lambda a: a[0])
def test_one_kernel(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    value = answer(capsys, "kernel", *arguments, "--gpu", "a100", "--json")
    assert value["latency_s"] > 0
    assert value["interval_s"][0] <= value["latency_s"] <= value["interval_s"][1]
    assert 0 < value["utilisation"] <= 1
    assert value["bound_by"] in ("compute", "memory", "launch")
    assert run(capsys, "kernel", *arguments, "--gpu", "a100")[0] == 0


def test_kernel_flops_are_the_closed_form(capsys: pytest.CaptureFixture[str]) -> None:
    value = answer(
        capsys, "kernel", "gemm", "--m", "10", "--n", "20", "--k", "30", "--gpu", "t4", "--json"
    )
    assert value["flops"] == 2 * 10 * 20 * 30
    assert value["bytes"] == 4 * (10 * 30 + 30 * 20 + 10 * 20)


BAD = [
    (["forecast", "gpt2", "--gpu", "h1000"], "unknown GPU"),
    (["forecast", "gpt2-larg", "--gpu", "h100"], "gpt2-large"),
    (["forecast", "gpt2", "--gpu", "h100", "--batch", "0"], "--batch 0"),
    (["forecast", "gpt2", "--gpu", "h100", "--batch", "-3"], "--batch -3"),
    (["forecast", "gpt2", "--gpu", "h100", "--seq", "2048"], "1024"),
    (["forecast", "gpt2", "--gpu", "h100", "--mode", "dreaming"], "--mode dreaming"),
    (["forecast", "gpt2", "--gpu", "h100", "--dtype", "fp31"], "--dtype fp31"),
    (["forecast", "gpt2", "--gpu", "h100", "--law", "magic"], "magic"),
    (["forecast", "gpt2", "--gpu", "h100", "--level", "1.5"], "--level"),
    (["forecast", "gpt2", "--gpu", "h100,sms=0"], "sms"),
    (["forecast", "gpt2", "--gpu", "h100,tdp_w=nan"], "tdp_w"),
    (["forecast", "no/such/config.json", "--gpu", "h100"], "no such file"),
    (["forecast", "gpt2"], "--gpu"),
    (["compare", "gpt2", "--gpus", ","], "--gpus"),
    (["kernel", "gemm", "--gpu", "a100", "--m", "0", "--n", "1", "--k", "1"], "--m"),
    (["kernel", "reduction", "--gpu", "a100", "--rows", "1", "--columns", "1", "--kind", "x"], "x"),
    (["gpus", "hundred"], "unknown GPU"),
    (["diff", "nothing.json", "nothing.json"], "cannot read"),
    (["fly"], "fly"),
]


@pytest.mark.parametrize(
    ("arguments", "says"), BAD, ids=lambda a: " ".join(a) if isinstance(a, list) else ""
)
def test_bad_input_is_one_clear_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert says.lower() in err.lower()


CONFIGS = [
    ("{", "not JSON"),
    ("[1]", "object"),
    ("{}", "model_type"),
    ('{"model_type": "gpt2"}', "n_embd"),
    ('{"model_type": "gpt2", "n_embd": -5, "n_head": 12, "n_layer": 2, "vocab_size": 9, '
     '"n_positions": 64}', "n_embd"),
    ('{"model_type": "gpt2", "n_embd": 100, "n_head": 12, "n_layer": 2, "vocab_size": 9, '
     '"n_positions": 64}', "n_head"),
    ('{"model_type": "gpt2", "n_embd": "x", "n_head": 12, "n_layer": 2, "vocab_size": 9, '
     '"n_positions": 64}', "n_embd"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), CONFIGS)
def test_a_bad_config_names_file_and_field(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, says: str
) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    code, out, err = run(capsys, "forecast", str(file), "--gpu", "h100", "--seq", "8")
    assert (code, out) == (2, "")
    assert "config.json" in err
    assert says in err
    assert err.count("\n") == 1


def test_foreign_weights_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    file.write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ")
    code, _, err = run(capsys, "forecast", "gpt2", "--gpu", "h100", "--weights", str(file))
    assert code == 2
    assert "w.safetensors" in err
    file.write_bytes(b"abc")
    assert run(capsys, "forecast", "gpt2", "--gpu", "h100", "--weights", str(file))[0] == 2
