"""Hugging Face configurations: parameters, FLOPs, phases, caches, experts and bad input."""

from __future__ import annotations

import json
from math import prod

import pytest

from tilecast.errors import InputError, UnknownNameError
from tilecast.precision import itemsize
from tilecast.workload.capture import capture
from tilecast.workload.graph import Graph, Kind, Op, Phase

torch = pytest.importorskip("torch")
hf = pytest.importorskip("transformers")

FLASH = "aten._scaled_dot_product_flash_attention"
SMALL = {
    "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 64,
}  # fmt: skip


def small_gpt2(**values):
    return hf.GPT2Config(**{"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 100, **values})


def llama(**values):
    return hf.LlamaConfig(**{**SMALL, **values})


def shapes(graph: Graph, ids) -> list[tuple[int, ...]]:
    return [graph.tensors[i].shape for i in ids]


def product_flops(graph: Graph) -> float:
    """2 M N K of every matrix product, convolution and attention, from the shapes recorded."""
    return sum(flops_of(graph, op) for op in graph.ops)


def flops_of(graph: Graph, op: Op) -> float:
    ins, outs = shapes(graph, op.inputs), shapes(graph, op.outputs)
    name = op.name.removeprefix("aten.")
    if name in ("mm", "addmm", "bmm", "baddbmm"):
        return 2 * prod(outs[0]) * ins[-1][-2]
    if name == "convolution":
        return 2 * prod(outs[0]) * prod(ins[1][1:])
    if name == "convolution_backward":
        grad, _, weight = ins[:3]
        return 2 * prod(grad) * prod(weight[1:]) * sum(op.attr("output_mask")[:2])
    if name.startswith("_scaled_dot_product"):
        backward = name.endswith("_backward")
        query, key, value = ins[1:4] if backward else ins[:3]
        pairs = prod(query[:3]) * key[2]
        once = 2 * pairs * query[3], 2 * pairs * value[3]
        # Backward: the scores again, then gradients of q, k, the weights and v.
        return 3 * once[0] + 2 * once[1] if backward else sum(once)
    return 0


# ---- sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "options", "parameters"),
    [
        # torchvision's published counts; Hugging Face's own for the language models.
        (lambda: hf.ResNetConfig(num_labels=1000), {}, 25_557_032),
        (lambda: hf.ViTConfig(num_labels=1000), {}, 86_567_656),
        (
            lambda: hf.BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
                                  intermediate_size=4096),
            {"head": "base", "seq": 8},
            335_141_888,
        ),
        (
            lambda: hf.GPT2Config(n_embd=1280, n_layer=36, n_head=20),
            {"seq": 8},
            774_030_080,
        ),
        (
            lambda: hf.LlamaConfig(vocab_size=128_256, intermediate_size=14_336,
                                   num_key_value_heads=8),
            {"seq": 8, "dtype": "bf16"},
            8_030_261_248,
        ),
    ],
    ids=["resnet-50", "vit-b/16", "bert-large", "gpt2-large", "llama-3-8b"],
)  # fmt: skip
def test_published_parameter_counts(config, options, parameters) -> None:
    graph = capture(config(), **options)
    assert graph.parameters == parameters
    assert {op.phase for op in graph.ops} == {Phase.FORWARD}


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (small_gpt2, {"seq": 32, "batch": 2}),
        (small_gpt2, {"seq": 32, "attention": "eager"}),
        (llama, {"seq": 32, "batch": 3}),
        (lambda: llama(num_key_value_heads=4), {"seq": 32, "dtype": "bf16"}),
        (lambda: hf.ResNetConfig(depths=[1, 1, 1, 1]), {"batch": 2}),
        (lambda: hf.ViTConfig(num_hidden_layers=1, hidden_size=48, num_attention_heads=3), {}),
    ],
)
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_flops_are_pytorchs_own_count(config, options, mode) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    with counter:
        graph = capture(config(), mode=mode, **options)
    assert product_flops(graph) == counter.get_total_flops() > 0


# ---- a training step -----------------------------------------------------------------------------


def test_phases_modules_and_memory_of_a_training_step() -> None:
    graph = capture(small_gpt2(), mode="training", batch=2, seq=16)
    phases = [op.phase for op in graph.ops]
    assert phases == sorted(phases, key=list(Phase).index)
    assert set(phases) == set(Phase)
    for phase, operator in (
        (Phase.FORWARD, "aten.addmm"),
        (Phase.BACKWARD, "aten.mm"),
    ):
        modules = {op.module for op in graph.ops if op.phase is phase and op.name == operator}
        for layer in range(2):
            for part in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"):
                assert f"transformer.h.{layer}.{part}" in modules
    gradients = sum(t.elements for t in graph.of_kind(Kind.GRADIENT))
    assert gradients == graph.parameters
    states = sum(t.elements for t in graph.of_kind(Kind.OPTIMIZER_STATE))
    assert states == 2 * graph.parameters


def test_tied_weights_count_once() -> None:
    tied, untied = (
        capture(small_gpt2(tie_word_embeddings=tie), seq=8).parameters for tie in (True, False)
    )
    assert untied - tied == 100 * 64


def test_activations_kept_for_backward_follow_the_layers() -> None:
    """Korthikanti et al. 2022 count 34 bytes an element of a layer's input in half precision with
    dropout (19 without the mask's and the input's repeats that GELU's own chain adds): check that
    what is kept grows by the same amount with every layer and is of that order."""

    def kept(layers: int) -> float:
        graph = capture(
            small_gpt2(n_layer=layers, activation_function="gelu"), mode="training", batch=2,
            seq=32, dtype="bf16",
        )  # fmt: skip
        storages = {}
        for index in graph.saved:
            tensor = graph.tensors[index]
            if tensor.kind is Kind.ACTIVATION:
                size = tensor.elements * itemsize(tensor.dtype)
                storages[tensor.storage] = max(size, storages.get(tensor.storage, 0))
        return sum(storages.values()) / (2 * 32 * 64)

    one, two, three = kept(1), kept(2), kept(3)
    assert two - one == pytest.approx(three - two)
    assert 30 <= two - one <= 38


# ---- generation ----------------------------------------------------------------------------------


def test_decode_reads_a_cache_of_the_context() -> None:
    graph = capture(llama(), mode="decode", batch=3, context=20, dtype="bf16")
    cache = [t for t in graph.of_kind(Kind.INPUT) if t.name.startswith("past_key_values")]
    assert len(cache) == 2 * 2  # keys and values of each layer
    assert {t.shape for t in cache} == {(3, 2, 20, 16)}
    assert {t.dtype for t in cache} == {"bfloat16"}
    attention = [op for op in graph.ops if op.name == FLASH]
    assert shapes(graph, attention[0].inputs)[:2] == [(3, 4, 1, 16), (3, 2, 21, 16)]
    assert graph.meta["seq"] == 1
    assert graph.meta["context"] == 20


def test_prefill_fills_the_cache_and_computes_one_tokens_logits() -> None:
    graph = capture(llama(), mode="prefill", seq=12, dtype="bf16")
    assert shapes(graph, graph.ops[-1].outputs) == [(1, 1, 100)]
    assert graph.meta["logits_to_keep"] == 1
    everything = capture(llama(), mode="inference", seq=12, dtype="bf16")
    assert shapes(everything, everything.ops[-1].outputs) == [(1, 12, 100)]
    chunk = capture(llama(), mode="prefill", seq=12, context=8, dtype="bf16")
    assert (1, 2, 20, 16) in {t.shape for t in chunk.tensors}


def test_encoder_decoder_models() -> None:
    config = hf.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4, vocab_size=100)
    graph = capture(config, mode="training", seq=8, loss="model")
    assert graph.name == "T5ForConditionalGeneration"
    assert {"input_ids", "decoder_input_ids", "labels"} <= {t.name for t in graph.tensors}
    decode = capture(config, mode="decode", context=8)
    assert not any(op.module.startswith("encoder") for op in decode.ops)


# ---- experts -------------------------------------------------------------------------------------


def test_experts_share_the_tokens_evenly() -> None:
    config = hf.SwitchTransformersConfig(
        d_model=32, d_kv=8, d_ff=64, num_layers=2, num_decoder_layers=1, num_heads=4, num_experts=4,
        num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, vocab_size=100,
    )  # fmt: skip
    graph = capture(config, batch=2, seq=16)
    experts = [
        op for op in graph.ops
        if op.name == "aten.mm" and op.module.startswith("encoder") and ".expert_" in op.module
    ]  # fmt: skip
    assert [op.module.split(".expert_")[1] for op in experts] == [
        f"{expert}.{part}" for expert in range(4) for part in ("wi", "wo")
    ]
    assert {shapes(graph, op.inputs)[0][0] for op in experts} == {2 * 16 // 4}
    assert graph.meta["assumptions"] == ["experts get an even share of the tokens"]


def _rows(graph, prefix: str) -> list[int]:
    """Tokens of each expert that runs, in the forward pass of one layer."""
    return [
        shapes(graph, op.inputs)[0][0] for op in graph.ops
        if op.name == "aten.mm" and op.phase is Phase.FORWARD and op.module.startswith(prefix)
    ][::2]  # fmt: skip


def test_an_uneven_split_is_exact_and_keeps_to_the_capacity() -> None:
    config = hf.SwitchTransformersConfig(
        d_model=32, d_kv=8, d_ff=64, num_layers=1, num_decoder_layers=1, num_heads=4, num_experts=4,
        num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, vocab_size=100, expert_capacity=5,
    )  # fmt: skip
    where = "encoder.block.0.layer.1.mlp.experts"
    assert _rows(capture(config, batch=2, seq=7), where) == [4, 4, 3, 3]
    assert _rows(capture(config, batch=1, seq=3), where) == [1, 1, 1]
    assert _rows(capture(config, batch=2, seq=64), where) == [10, 10, 10, 10]
    mixtral = hf.MixtralConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2)
    where = "model.layers.0.mlp.experts"
    assert _rows(capture(mixtral, batch=1, seq=5), where) == [3, 3, 2, 2]


def test_experts_as_grouped_products_in_bf16_and_one_by_one_otherwise() -> None:
    config = hf.MixtralConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2)
    grouped = capture(config, mode="training", seq=16, dtype="bf16")
    assert any("grouped_mm" in op.name for op in grouped.ops)
    apart = capture(config, mode="training", seq=16, dtype="fp32")
    assert any("grouped_mm needs bf16" in text for text in apart.meta["assumptions"])
    rows = [
        shapes(apart, op.inputs)[0][0] for op in apart.ops
        if op.name == "aten.mm" and op.phase is Phase.FORWARD and op.module.endswith("experts")
    ]  # fmt: skip
    assert rows == [16 * 2 // 4] * (2 * 4 * 2)  # two products an expert, four experts, two layers


@pytest.mark.parametrize(("batch", "hit"), [(1, 2), (2, 4), (8, 4)])
def test_only_experts_with_a_token_run(batch: int, hit: int) -> None:
    config = hf.MixtralConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2)
    graph = capture(config, mode="decode", batch=batch, context=5)
    inside = [op for op in graph.ops if op.module == "model.layers.0.mlp.experts"]
    rows = [shapes(graph, op.inputs)[0][0] for op in inside if op.name == "aten.mm"]
    assert rows == [2 * batch // hit] * (2 * hit)
    # The loop asks each of them whether it is the class that stands for none.
    assert sum(op.name == "aten.eq" for op in inside) == hit


# ---- configurations ------------------------------------------------------------------------------


def test_config_from_a_file_a_folder_and_a_dict(tmp_path) -> None:
    values = {**llama().to_dict(), "architectures": ["LlamaForCausalLM"]}
    values = {"model_type": "llama", **{k: values[k] for k in (*SMALL, "architectures")}}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    graphs = [capture(source, seq=8) for source in (path, str(tmp_path), values)]
    assert [graph.name for graph in graphs] == ["LlamaForCausalLM"] * 3
    assert len({tuple(graph.ops) for graph in graphs}) == 1
    meta = graphs[0].meta
    assert meta["source"] == "capture"
    assert meta["torch"] == torch.__version__
    assert meta["transformers"] == hf.__version__
    assert meta["attention_implementation"] == "sdpa"
    assert json.loads(json.dumps(meta)) == meta


def test_a_model_that_exists_is_its_configuration() -> None:
    model = hf.LlamaForCausalLM(llama())
    options = {"mode": "decode", "context": 9, "batch": 2}
    for attention in ("auto", "eager"):
        made = capture(model, attention=attention, **options)
        assert made.ops == capture(llama(), attention=attention, **options).ops
    assert model.config._attn_implementation == "sdpa"
    assert not any(p.is_meta for p in model.parameters())
    built = capture(lambda: hf.LlamaForCausalLM(llama()), seq=8)
    assert built.ops == capture(llama(), seq=8).ops
    with pytest.raises(InputError, match="has its head already"):
        capture(model, seq=8, head="base")


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("auto", "BertForMaskedLM"),
        ("base", "BertModel"),
        ("none", "BertModel"),
        ("pretraining", "BertForPreTraining"),
        ("sequence-classification", "BertForSequenceClassification"),
        ("question-answering", "BertForQuestionAnswering"),
    ],
)
def test_heads(head, name) -> None:
    config = hf.BertConfig(
        num_hidden_layers=1, hidden_size=32, num_attention_heads=2, intermediate_size=64
    )
    graph = capture(config, head=head, seq=8, mode="training")
    assert graph.name == name
    if head not in ("base", "none"):
        own = capture(config, head=head, seq=8, mode="training", loss="model")
        assert own.meta["loss"] == "model"


def test_attention_implementations() -> None:
    eager = capture(small_gpt2(), seq=8, attention="eager")
    assert eager.meta["attention_implementation"] == "eager"
    assert "aten._softmax" in {op.name for op in eager.ops}
    flash = capture(small_gpt2(), seq=8, attention="flash", dtype="fp16")
    assert flash.meta["attention_backends"] == ["flash"]


def test_given_inputs_replace_the_usual_ones() -> None:
    inputs = {
        "input_ids": torch.ones(2, 8, dtype=torch.int64),
        "attention_mask": torch.tensor([[1] * 8, [1] * 5 + [0] * 3]),
    }
    padded = capture(small_gpt2(), inputs)
    assert any(len(op.inputs) == 4 for op in padded.ops if "efficient_attention" in op.name)
    inputs["attention_mask"] = torch.ones(2, 8, dtype=torch.int64)
    full = capture(small_gpt2(), inputs)
    assert all(len(op.inputs) == 3 for op in full.ops if "efficient_attention" in op.name)


@pytest.mark.parametrize(
    ("source", "options", "text"),
    [
        (small_gpt2, {}, "--seq: expected the number of tokens"),
        (small_gpt2, {"seq": 1025}, "--seq: 1025 tokens, but n_positions of this gpt2 is 1024"),
        (small_gpt2, {"mode": "decode", "context": 1024}, "--seq: 1025 tokens"),
        (small_gpt2, {"mode": "decode"}, "--context 0: expected an integer of at least 1"),
        (small_gpt2, {"seq": 8, "head": "image-classification"}, "no such model for gpt2"),
        (small_gpt2, {"inputs": torch.empty(2, 2)}, "expected a dict by argument name"),
        (hf.ResNetConfig, {"mode": "prefill"}, "keeps no keys and values"),
        (lambda: hf.BertConfig(num_hidden_layers=1), {"seq": 8, "head": "base", "loss": "model",
                                                      "mode": "training"}, "no loss of its own"),
        (lambda: {"model_type": "llama", **SMALL, "num_attention_heads": 5}, {"seq": 8},
         "config: llama: .*validate"),
        (lambda: hf.WhisperConfig(encoder_layers=1, decoder_layers=1), {}, "reads input_features"),
        (lambda: {"n_layer": 2}, {}, "model_type: expected the name"),
        (lambda: "no/such/config.json", {}, "cannot read a model configuration"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_line(source, options, text) -> None:
    with pytest.raises(InputError, match=text) as caught:
        capture(source(), **options)
    assert "\n" not in str(caught.value)


def test_unknown_names_suggest_the_near_ones() -> None:
    with pytest.raises(UnknownNameError, match="did you mean gpt2"):
        capture({"model_type": "gpt-2"}, seq=8)
    with pytest.raises(UnknownNameError, match="did you mean causal-lm"):
        capture(small_gpt2(), seq=8, head="causal_lm")


def test_a_file_that_is_no_configuration(tmp_path) -> None:
    path = tmp_path / "config.json"
    for text in ("[1, 2]", "{", "\xff"):
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(InputError, match=r"config\.json"):
            capture(path, seq=8)
