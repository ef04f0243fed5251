"""Forecasts of whole graphs: against physics, published counts and their own parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilecast
from tilecast.errors import InputError, MissingExtraError
from tilecast.forecast import HostModel, Options, graph_of, prepare, price
from tilecast.predict import load_law
from tilecast.predict.bound import bound_s

NO_COST = HostModel(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
TINY = {
    "model_type": "gpt2", "n_embd": 256, "n_head": 4, "n_layer": 3, "vocab_size": 1000,
    "n_positions": 512,
}  # fmt: skip


def made(**options: Any) -> tilecast.forecast.Prepared:
    return prepare(graph_of(TINY, Options(**{"seq": 256, **options})))


def test_phases_and_families_add_up() -> None:
    answer = tilecast.forecast(TINY, gpu="a100", mode="training", batch=8, seq=512)
    assert sum(answer.phases_s.values()) == pytest.approx(answer.latency_s)
    assert sum(answer.families_s.values()) == pytest.approx(answer.gpu_busy_s)
    assert answer.latency_s >= answer.gpu_busy_s
    assert answer.interval_s[0] <= answer.latency_s <= answer.interval_s[1]


def test_every_launch_is_counted_once() -> None:
    prepared = made(mode="training")
    answer = price(prepared, tilecast.gpu("a100"), load_law(), top=10**6)
    assert sum(kernel.count for kernel in answer.kernels) == len(prepared.launches)
    assert sum(module.launches for module in answer.modules) == len(prepared.launches)
    assert sum(kernel.share for kernel in answer.kernels) == pytest.approx(1.0)


def test_a_small_batch_is_bound_by_the_host_and_a_large_one_is_not() -> None:
    small = tilecast.forecast(TINY, gpu="h100", batch=1, seq=8)
    large = tilecast.forecast(TINY, gpu="t4", batch=64, seq=512)
    assert small.bound_by == "host"
    assert small.latency_s >= small.host_s
    assert large.bound_by != "host"


def test_recorded_launches_take_the_host_out() -> None:
    eager = tilecast.forecast(TINY, gpu="h100", batch=1, seq=8)
    graphs = tilecast.forecast(TINY, gpu="h100", batch=1, seq=8, cuda_graphs=True)
    assert graphs.host_s == 0.0
    assert graphs.latency_s == pytest.approx(graphs.gpu_busy_s)
    assert graphs.latency_s < eager.latency_s


def test_accumulation_repeats_all_but_the_optimizer() -> None:
    once = price(made(mode="training", accumulate_gradients=True), tilecast.gpu("t4"), load_law())
    four = tilecast.forecast(TINY, gpu="t4", mode="training", seq=256, accumulate=4)
    assert four.phases_s["forward"] == pytest.approx(4 * once.phases_s["forward"])
    assert four.phases_s["optimizer"] == pytest.approx(once.phases_s["optimizer"])
    assert four.flops == pytest.approx(4 * once.flops)


@settings(max_examples=25, deadline=None)
@given(
    field=st.sampled_from(["memory_bandwidth_bytes_per_s", "sms", "boost_clock_hz", "l2_bytes"]),
    factor=st.floats(1.0, 4.0),
    name=st.sampled_from(["t4", "v100", "a100", "l4", "h100", "mi210"]),
    batch=st.sampled_from([1, 8, 32]),
)
def test_a_better_gpu_is_never_slower(field: str, factor: float, name: str, batch: int) -> None:
    prepared, law = made(batch=batch), load_law()
    base = tilecast.gpu(name)
    value = getattr(base, field) * factor
    better = tilecast.gpu(f"{name},{field}={int(value) if field == 'sms' else value}")
    before = price(prepared, base, law).latency_s
    assert price(prepared, better, law).latency_s <= before * (1 + 1e-9)


@pytest.mark.parametrize("law", ["tile", "roofline"])
@pytest.mark.parametrize("name", ["p4", "a100", "b200", "mi300x", "arc-pro-b60"])
def test_no_forecast_beats_the_bound_of_its_gpu(law: str, name: str) -> None:
    prepared, gpu = made(batch=16), tilecast.gpu(name)
    table, row = prepared.distinct_on(gpu)
    bound = np.maximum.reduce(bound_s(table, gpu))[row].sum()
    answer = price(prepared, gpu, load_law(law), host=NO_COST)
    assert np.isfinite(answer.latency_s)
    assert answer.latency_s >= bound


def test_layers_add_up_without_a_host() -> None:
    def layers(count: int) -> float:
        graph = graph_of({**TINY, "n_layer": count}, Options(seq=256, batch=8))
        return price(prepare(graph), tilecast.gpu("a100"), load_law(), host=NO_COST).latency_s

    one, two, three = (layers(count) for count in (1, 2, 3))
    assert three - two == pytest.approx(two - one, rel=1e-6)


# FLOPs of one forward pass, from shapes alone: every weight matrix once a token, the head, and
# QK' and AV over the full square
def dense_flops(layer_weights: int, layers: int, head: int, hidden: int, seq: int) -> float:
    return 2.0 * seq * (layers * layer_weights + head) + layers * 4.0 * seq * seq * hidden


def test_counts_of_published_language_models() -> None:
    seq = 512
    gpt2 = tilecast.forecast("gpt2-large", gpu="a100", seq=seq, attention="eager")
    assert gpt2.parameters == 774_030_080  # Hugging Face model card
    assert gpt2.flops == dense_flops(12 * 1280**2, 36, 50257 * 1280, 1280, seq)
    bert = tilecast.forecast("bert-large", gpu="a100", seq=seq, attention="eager", head="base")
    assert bert.parameters == 335_141_888
    # the pooler sees one token
    assert bert.flops == dense_flops(12 * 1024**2, 24, 0, 1024, seq) + 2 * 1024**2
    llama = tilecast.forecast("llama-3-8b", gpu="a100", seq=seq, attention="eager")
    assert llama.parameters == 8_030_261_248  # Meta's model card
    weights = 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    assert llama.flops == pytest.approx(
        dense_flops(weights, 32, 128256 * 4096, 4096, seq), rel=1e-4
    )  # and the rotary table, a product of 64 frequencies


@pytest.mark.parametrize(
    ("preset", "parameters", "published_macs"),
    # He et al. (arXiv 1512.03385), torchvision's model cards
    [("resnet-50", 25_557_032, 4.089e9), ("vit-base-16", 86_567_656, 17.56e9)],
)
def test_counts_of_published_vision_models(
    preset: str, parameters: int, published_macs: float
) -> None:
    pytest.importorskip("torch")
    answer = tilecast.forecast(preset, gpu="a100", attention="eager")
    assert answer.parameters == parameters
    assert answer.flops == pytest.approx(2 * published_macs, rel=0.01)


def test_compare_prepares_once_and_ranks() -> None:
    answer = tilecast.compare(TINY, gpus=["t4", "h100", "p4"], batch=16, seq=512)
    assert answer.ranking == ("h100-sxm", "t4", "p4")


@pytest.mark.parametrize(
    "options",
    [{"batch": 0}, {"batch": True}, {"seq": -1}, {"seq": 1.5}, {"mode": "x"}, {"speed": 1},
     {"context": 5}, {"accumulate": 0}, {"seq": 513}],
)  # fmt: skip
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        tilecast.forecast(TINY, gpu="a100", **options)


def test_a_missing_extra_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'tilecast\[torch\]'"):
        tilecast.forecast({"model_type": "falcon", "vocab_size": 9}, gpu="a100", seq=8)
