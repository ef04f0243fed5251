"""Presets: every one loads, says where it is from, and is found however it is written."""

from __future__ import annotations

import pytest

from tilecast.errors import UnknownNameError
from tilecast.workload import presets
from tilecast.workload.blueprint import blueprint, supports


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_is_sourced_and_written(name: str) -> None:
    config = presets.load(name)
    assert config["model_type"]
    assert config["_name_or_path"] == name
    assert len(presets.source(name)) > 20
    assert not {"aliases", "source"} & config.keys()
    if supports(config):
        assert blueprint(config, name=name, seq=2).name == name


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("GPT2", "gpt2"),
        ("openai-community/gpt2-large", "gpt2-large"),
        ("gpt2_xl", "gpt2-xl"),
        ("GPT-2-XL", "gpt2-xl"),
        ("gpt3-1.3B", "gpt3-xl"),
        ("bert_large_uncased", "bert-large"),
        ("facebook/opt-1.3b", "opt-1.3b"),
        ("OPT_1_3B", "opt-1.3b"),
        ("opt-13b", "opt-13b"),
        ("meta-llama/Llama-2-7b-hf", "llama-2-7b"),
        ("llama2-7b", "llama-2-7b"),
        ("meta-llama/Meta-Llama-3-8B", "llama-3-8b"),
        ("Llama 3.1 405B", "llama-3.1-405b"),
        ("mistralai/Mistral-7B-v0.1", "mistral-7b"),
        ("Qwen/Qwen2.5-7B", "qwen2.5-7b"),
        ("qwen-2.5-0.5b", "qwen2.5-0.5b"),
        ("google/switch-base-8", "switch-base-8"),
        ("vit_b_16", "vit-base-16"),
        ("ResNet50", "resnet-50"),
    ],
)
def test_spellings_find_their_preset(written: str, name: str) -> None:
    assert presets.resolve(written) == name


def test_unknown_names_get_suggestions() -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean.*llama-3-8b"):
        presets.load("llama-3-9b")


def test_no_two_presets_share_a_spelling() -> None:
    assert all(presets.resolve(name) == name for name in presets.names())


def test_a_loaded_preset_is_the_callers_own() -> None:
    presets.load("resnet-50")["hidden_sizes"].append(1)
    presets.load("gpt2")["n_layer"] = 1
    assert presets.load("resnet-50")["hidden_sizes"] == [256, 512, 1024, 2048]
    assert presets.load("gpt2")["n_layer"] == 12
