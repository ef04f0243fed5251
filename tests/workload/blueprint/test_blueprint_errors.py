"""Every refusal of a blueprint is one line that names the field and what was expected."""

from __future__ import annotations

from typing import Any

import pytest
from blueprint_counting import SMALL
from hypothesis import given, settings
from hypothesis import strategies as st

from tilecast.errors import InputError, UnknownNameError
from tilecast.workload.blueprint import blueprint, supports

SIZES = {
    "gpt2": ("n_embd", "n_layer", "n_head", "vocab_size", "n_positions"),
    "bert": ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    "opt": ("hidden_size", "num_hidden_layers", "num_attention_heads", "ffn_dim", "vocab_size"),
    "llama": ("hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size"),
    "switch": ("d_model", "num_layers", "num_heads", "d_ff", "vocab_size"),
    "t5": ("d_model", "num_layers", "num_heads", "d_ff", "vocab_size"),
}
REQUIRED = [(name, field) for name, fields in SIZES.items() for field in fields]


def _message(config: dict[str, Any], **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        blueprint(config, **{"seq": 8, **options})
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(("name", "field"), REQUIRED)
@pytest.mark.parametrize("value", [0, -4, 10**9, "768", 7.5, True, [768]])
def test_absurd_sizes_are_refused(name: str, field: str, value: Any) -> None:
    text = _message({**SMALL[name], field: value})
    assert field in text
    assert "expected" in text


@pytest.mark.parametrize(("name", "field"), REQUIRED)
def test_missing_sizes_are_refused(name: str, field: str) -> None:
    config = {key: value for key, value in SMALL[name].items() if key != field}
    text = _message(config)
    assert f"{field} is missing" in text


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("gpt2", "n_head", 5),
        ("gpt2", "n_layer", 1_000_000),
        ("gpt2", "activation_function", "selu6"),
        ("gpt2", "resid_pdrop", 1.5),
        ("gpt2", "resid_pdrop", float("nan")),
        ("gpt2", "attn_pdrop", "0.1"),
        ("gpt2", "add_cross_attention", True),
        ("gpt2", "tie_word_embeddings", "yes"),
        ("bert", "num_attention_heads", 6),
        ("bert", "hidden_dropout_prob", -0.1),
        ("bert", "hidden_act", 3),
        ("opt", "num_attention_heads", 3),
        ("opt", "layer_norm_elementwise_affine", False),
        ("llama", "num_key_value_heads", 3),
        ("llama", "head_dim", 0),
        ("llama", "head_dim", 7),
        ("mistral", "sliding_window", -1),
        ("switch", "num_experts", 10_000),
        ("switch", "expert_capacity", 0),
        ("switch", "router_dtype", "int8"),
        ("switch", "router_jitter_noise", 2.0),
        ("switch", "num_sparse_encoder_layers", -1),
        ("switch", "output_router_logits", True),
        ("switch", "architectures", ["SwitchTransformersEncoderModel"]),
        ("t5", "num_decoder_layers", 0),
        ("t5", "relative_attention_num_buckets", 3),
        ("t5", "feed_forward_proj", "gated-selu6"),
        ("t5", "dropout_rate", 1.0),
        ("t5", "is_encoder_decoder", False),
        ("t5", "architectures", ["T5EncoderModel"]),
        ("mixtral", "num_experts_per_tok", 5),
        ("mixtral", "num_local_experts", 10_000),
        ("mixtral", "output_router_logits", True),
        ("mixtral", "router_jitter_noise", 0.1),
    ],
)
def test_fields_that_do_not_fit_are_refused(name: str, field: str, value: Any) -> None:
    assert field in _message({**SMALL[name], field: value}, mode="training")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch": 0}, "batch is 0"),
        ({"batch": -2}, "batch is -2"),
        ({"batch": 1.5}, "batch is 1.5"),
        ({"batch": True}, "batch is True"),
        ({"seq": 0}, "seq is 0"),
        ({"seq": None}, "seq"),
        ({"seq": 65}, "n_positions is 64"),
        ({"mode": "decode", "seq": 1, "context": 64}, "n_positions is 64"),
        ({"mode": "decode", "seq": 1}, "context is 0"),
        ({"context": 3}, "context is 3"),
        ({"mode": "train"}, "training"),
        ({"dtype": "float32"}, "dtype"),
        ({"dtype": "int4"}, "dtype"),
        ({"attention": "flash"}, "fp16 or bf16"),
        ({"attention": "xformers"}, "attention"),
        ({"loss": "mse"}, "loss"),
        ({"optimizer": "lion", "mode": "training"}, "optimizer"),
        ({"optimizer": "adam"}, "optimizer is 'adam'"),
        ({"head": "masked-lm"}, "head"),
        ({"head": "base", "loss": "model", "mode": "training"}, "loss is 'model'"),
    ],
    ids=str,
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], said: str) -> None:
    assert said in _message(SMALL["gpt2"], **options)


def test_an_encoder_has_no_cache() -> None:
    assert "is_decoder" in _message(SMALL["bert"], mode="prefill")


def test_switch_runs_as_its_code_can() -> None:
    # Its forward takes no cache switch, and its attention has no fused form.
    assert "mode is 'prefill'" in _message(SMALL["switch"], mode="prefill")
    assert "attention is 'sdpa'" in _message(SMALL["switch"], attention="sdpa")
    assert blueprint(SMALL["switch"], seq=8).meta["attention"] == "eager"


def test_flash_is_refused_where_it_would_not_run() -> None:
    assert blueprint(SMALL["mistral"], seq=4, dtype="bf16", attention="flash").ops
    assert "flash" in _message(SMALL["mistral"], seq=8, dtype="bf16", attention="flash")


def test_grouped_products_want_rows_of_16_bytes() -> None:
    config = {**SMALL["mixtral"], "intermediate_size": 60}
    assert blueprint(config, seq=8, dtype="fp16").ops
    assert "intermediate_size is 60" in _message(config, dtype="bf16")


def test_unknown_models_suggest_known_ones() -> None:
    assert supports(SMALL["gpt2"])
    assert not supports({"model_type": "gpt22"})
    assert not supports({})
    with pytest.raises(UnknownNameError, match="gpt2"):
        blueprint({"model_type": "gpt22"}, seq=8)
    assert "model_type" in _message({})


@given(
    st.dictionaries(
        st.sampled_from(sorted({key for config in SMALL.values() for key in config})),
        st.one_of(
            st.none(), st.integers(-3, 300), st.floats(), st.sampled_from(["", "8"]), st.booleans()
        ),
        max_size=4,
    ),
    st.sampled_from(sorted(SMALL)),
)
@settings(deadline=None, max_examples=150)
def test_any_config_is_built_or_refused(changes: dict[str, Any], name: str) -> None:
    changes.pop("model_type", None)
    try:
        graph = blueprint({**SMALL[name], **changes}, seq=4, mode="training")
    except InputError as error:
        refusal = str(error)
        lines = refusal.count("\n") + 1
    else:
        lines = int(graph.parameters > 0)
    assert lines == 1
