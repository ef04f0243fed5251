"""What holds of every blueprint: its graph is well formed, and it is written fast."""

from __future__ import annotations

import json
import time
from math import prod
from typing import Any

import pytest
from blueprint_counting import SMALL
from hypothesis import given, settings
from hypothesis import strategies as st

from tilecast.errors import InputError
from tilecast.workload import presets
from tilecast.workload.blueprint import blueprint
from tilecast.workload.graph import Graph, Kind, Phase

RUNS: list[dict[str, Any]] = [
    {"mode": "inference"},
    {"mode": "inference", "attention": "eager", "dtype": "fp16"},
    {"mode": "training", "optimizer": "adamw", "dtype": "bf16"},
    {"mode": "training", "optimizer": "sgd", "accumulate_gradients": True},
    {"mode": "training", "loss": "none", "dropout": False, "attention": "eager"},
]
TRANSLATORS = [name for name in SMALL if name.startswith("t5")]
CACHED = [name for name in SMALL if name != "bert" and "d_model" not in SMALL[name]]


def _check(graph: Graph) -> None:
    written: set[int] = set()
    there = {Kind.PARAMETER, Kind.BUFFER, Kind.INPUT, Kind.OPTIMIZER_STATE, Kind.GRADIENT}
    for op in graph.ops:
        for index in op.inputs:
            assert index in written or graph.tensors[index].kind in there, op
        assert not written.intersection(op.outputs), op
        written.update(op.outputs)
        shapes = [graph.tensors[i].shape for i in op.inputs]
        result = graph.tensors[op.outputs[0]].shape if op.outputs else ()
        if op.name in ("aten.mm", "aten.addmm", "aten.bmm"):
            left, right = shapes[-2:]
            assert left[-1] == right[-2]
            assert result == (*left[:-1], right[-1])
        if op.name in ("aten.view", "aten._unsafe_view", "aten.clone"):
            assert prod(result) == prod(shapes[0])
        assert list(op.attrs) == sorted(op.attrs), op
    for index, tensor in enumerate(graph.tensors):
        assert 0 <= tensor.storage <= index
        assert graph.tensors[tensor.storage].kind is tensor.kind
        assert tensor.strides is None or len(tensor.strides) == len(tensor.shape)
    assert all(0 <= index < len(graph.tensors) for index in graph.saved)
    json.dumps(graph.meta)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("run", RUNS, ids=str)
def test_every_run_is_a_well_formed_graph(name: str, run: dict[str, Any]) -> None:
    graph = blueprint(SMALL[name], batch=2, seq=8, **run)
    _check(graph)
    training = run["mode"] == "training"
    assert bool(graph.saved) == training
    if not training:
        assert {op.phase for op in graph.ops} == {Phase.FORWARD}
        return
    order = [Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER]
    ranks = [order.index(op.phase) for op in graph.ops]
    assert ranks == sorted(ranks)
    trained = graph.parameters - _unread(graph)
    gradients = sum(t.elements for t in graph.of_kind(Kind.GRADIENT))
    # A router that is converted has its held gradient twice.
    assert gradients == trained or (name.startswith("switch") and gradients > trained)
    if run.get("optimizer") == "adamw":
        states = sum(t.elements for t in graph.of_kind(Kind.OPTIMIZER_STATE))
        assert states == 2 * trained


def _unread(graph: Graph) -> int:
    """Elements of parameters that no operator reads."""
    read = {graph.tensors[i].storage for op in graph.ops for i in op.inputs}
    return sum(t.elements for t in graph.of_kind(Kind.PARAMETER) if t.storage not in read)


@pytest.mark.parametrize("name", CACHED)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_cache_is_read_and_grows(name: str, attention: str) -> None:
    options: dict[str, Any] = {"batch": 2, "attention": attention, "head": "causal-lm"}
    _check(blueprint(SMALL[name], mode="prefill", seq=8, **options))
    _check(blueprint(SMALL[name], mode="prefill", seq=4, context=12, **options))
    graph = blueprint(SMALL[name], mode="decode", context=4, **options)
    _check(graph)
    keys = [t for t in graph.of_kind(Kind.INPUT) if t.name.endswith(".keys")]
    assert len(keys) == 2  # one for each layer
    grown = [op for op in graph.ops if op.name == "aten.cat"
             and graph.tensors[op.inputs[0]].kind is Kind.INPUT]  # fmt: skip
    assert [graph.tensors[op.outputs[0]].shape[2] for op in grown] == [5] * 4


@pytest.mark.parametrize("name", TRANSLATORS)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_decoder_reads_what_its_encoder_left(name: str, attention: str) -> None:
    options: dict[str, Any] = {"batch": 2, "attention": attention}
    first = blueprint(SMALL[name], mode="prefill", seq=8, **options)
    later = blueprint(SMALL[name], mode="decode", context=8, **options)
    layers = SMALL[name]["num_decoder_layers"]
    for graph in (first, later, blueprint(SMALL[name], mode="prefill", seq=3, context=8)):
        _check(graph)
    assert any(op.module.startswith("encoder") for op in first.ops)
    assert not any(op.module.startswith("encoder") for op in later.ops)
    # Its weights are there all the same.
    assert first.parameters == later.parameters
    keys = [t.shape for t in later.of_kind(Kind.INPUT) if t.name.endswith(".keys")]
    # of the decoder's tokens, and of the encoder's
    assert keys == [(2, 4, 8, SMALL[name]["d_kv"])] * 2 * layers
    grown = [op for op in later.ops if op.name == "aten.cat"]
    assert [later.tensors[op.outputs[0]].shape[2] for op in grown] == [9] * 2 * layers


def test_experts_take_no_more_than_their_capacity() -> None:
    def rows(batch: int, seq: int, **changes: Any) -> list[int]:
        graph = blueprint({**SMALL["switch-tight"], **changes}, batch=batch, seq=seq)
        assert _unread(graph) >= 100 * 32  # the table that untied stacks do not share
        return [
            graph.tensors[op.inputs[0]].shape[0] for op in graph.ops
            if op.name == "aten.mm" and op.module.startswith("encoder.block.0.layer.1.mlp.experts")
        ][::2]  # fmt: skip

    assert rows(1, 7) == [2, 2, 2, 1]
    assert rows(1, 9) == rows(1, 64) == [2, 2, 2, 2]
    assert rows(3, 64) == [6, 6, 6, 6]
    assert rows(1, 64, expert_capacity=64) == [16, 16, 16, 16]
    assert rows(1, 3) == [1, 1, 1]  # the last expert has nothing to do


@given(
    name=st.sampled_from(CACHED),
    batch=st.integers(1, 5),
    seq=st.integers(1, 20),
    context=st.integers(0, 30),
    dtype=st.sampled_from(["fp32", "fp16", "bf16", "fp64"]),
)
@settings(max_examples=50, deadline=None)
def test_prefill_in_chunks_is_well_formed(
    name: str, batch: int, seq: int, context: int, dtype: str
) -> None:
    _check(
        blueprint(
            SMALL[name], mode="prefill", batch=batch, seq=seq, context=context, dtype=dtype,
            head="causal-lm",
        )
    )  # fmt: skip


def test_attention_kernels_follow_the_dtype() -> None:
    def kernels(config: dict[str, Any], **options: Any) -> set[str]:
        graph = blueprint(config, seq=8, **options)
        return {op.name for op in graph.ops if "scaled_dot" in op.name or "softmax" in op.name}

    flash = {"aten._scaled_dot_product_flash_attention"}
    efficient = {"aten._scaled_dot_product_efficient_attention"}
    assert kernels(SMALL["gpt2"], dtype="bf16") == flash
    assert kernels(SMALL["gpt2"]) == efficient
    assert kernels(SMALL["mistral"], dtype="bf16") == efficient  # a window needs a mask
    assert kernels(SMALL["llama"], dtype="fp16") == flash
    assert kernels(SMALL["llama"]) == {"aten._safe_softmax"}  # grouped heads in fp32
    assert kernels(SMALL["gpt2"], dtype="fp64") == {"aten._safe_softmax"}
    assert kernels(SMALL["gpt2"], attention="eager") == {"aten._softmax"}


@pytest.mark.parametrize(("tokens", "loads"), [(1, [1, 1]), (3, [2, 2, 1, 1]), (8, [4] * 4)])
def test_experts_share_the_tokens(tokens: int, loads: list[int]) -> None:
    one_by_one = blueprint(SMALL["mixtral"], seq=tokens)
    inside = [op for op in one_by_one.ops if op.module == "model.layers.1.mlp.experts"]
    rows = [one_by_one.tensors[op.inputs[0]].shape[0] for op in inside if op.name == "aten.mm"]
    assert rows == [load for load in loads for _ in ("gate_up", "down")]
    grouped = blueprint(SMALL["mixtral"], seq=tokens, dtype="bf16")
    rows = [
        grouped.tensors[op.inputs[0]].shape[0] for op in grouped.ops
        if op.name == "aten._grouped_mm"
    ]  # fmt: skip
    assert rows == [sum(loads)] * 4  # two products in each of two layers


def test_dropout_is_in_training_only() -> None:
    def drops(**options: Any) -> int:
        graph = blueprint(SMALL["gpt2"], seq=8, **options)
        return sum(op.name == "aten.native_dropout" for op in graph.ops)

    assert drops(mode="training") == 5  # embeddings, then two residual paths in two layers
    assert drops(mode="training", attention="eager") == 7
    assert drops(mode="training", dropout=False) == drops(mode="inference") == 0
    plain = {**SMALL["gpt2"], "resid_pdrop": 0.0, "embd_pdrop": 0.0}
    graph = blueprint(plain, seq=8, mode="training")
    assert not any(op.name == "aten.native_dropout" for op in graph.ops)


def test_a_position_bias_needs_a_kernel_with_a_mask() -> None:
    for dtype in ("fp32", "bf16"):
        graph = blueprint(SMALL["t5"], mode="training", seq=8, batch=2, dtype=dtype)
        names = [op.name for op in graph.ops if op.name.endswith("attention")]
        assert names == ["aten._scaled_dot_product_efficient_attention"] * 6
        last = [op for op in graph.ops if op.name.endswith("attention_backward")]
        # Self-attention has a gradient of the bias, cross-attention (zeros) has none.
        assert sorted(len(op.outputs) for op in last) == [3, 3, 4, 4, 4, 4]
    with pytest.raises(InputError, match="flash"):
        blueprint(SMALL["t5"], seq=8, dtype="bf16", attention="flash")


def test_tied_weights_are_one_parameter() -> None:
    tied, untied = (
        blueprint({**SMALL["llama"], "tie_word_embeddings": tie}, seq=8, mode="training")
        for tie in (True, False)
    )
    assert untied.parameters - tied.parameters == 100 * 32
    for graph in (tied, untied):
        assert sum(t.elements for t in graph.of_kind(Kind.GRADIENT)) == graph.parameters


def test_a_training_step_of_gpt2_large_is_written_in_150_ms() -> None:
    config = presets.load("gpt2-large")

    def once() -> float:
        start = time.perf_counter()
        blueprint(config, mode="training", batch=4, seq=1024, optimizer="adamw")
        return time.perf_counter() - start

    assert min(once() for _ in range(5)) < 0.15
