"""T5 (also v1.1 and Flan-T5) as Transformers' `T5ForConditionalGeneration`."""

from __future__ import annotations

from dataclasses import replace

from tilecast.workload.blueprint.builder import Builder
from tilecast.workload.blueprint.encdec import ACTIVATIONS, Feed, Stack, translate
from tilecast.workload.blueprint.fields import MOST_LAYERS, Fields

HEADS = ("seq2seq-lm",)
#: Classes that have another head, or no decoder.
OTHERS = ("T5EncoderModel", "T5ForSequenceClassification", "T5ForTokenClassification",
          "T5ForQuestionAnswering")  # fmt: skip
PROJECTIONS = (*ACTIVATIONS, *(f"gated-{name}" for name in ACTIVATIONS))


def build(b: Builder, config: Fields) -> int:
    """Emit the forward pass; source and target have the run's length.

    Returns:
        (batch, seq, vocabulary) logits; (batch, seq, width) for head `base`.
    """
    stacks = read_stacks(config, _feed(config))
    scaled = config.flag("scale_decoder_outputs", config.flag("tie_word_embeddings", True))
    base = b.run.head == "base"
    if b.run.head == "auto":
        for name in config.items("architectures"):
            if name in OTHERS:
                raise config.fail("architectures", "T5ForConditionalGeneration or T5Model")
            base = base or name == "T5Model"
    return translate(b, stacks, scaled=scaled, head=not base)


def read_stacks(config: Fields, feed: Feed) -> tuple[Stack, Stack]:
    """(encoder, decoder) of a config.

    Raises:
        InputError: sizes that cannot be used, or a model of one stack.
    """
    if not config.flag("is_encoder_decoder", True):
        raise config.fail("is_encoder_decoder", "true: blueprints have no model of one stack")
    layers = config.layers("num_layers", "num_hidden_layers")
    encoder = Stack(
        "encoder",
        layers=layers,
        width=config.size("d_model", "hidden_size"),
        heads=config.size("num_heads", "num_attention_heads"),
        head_dim=config.size("d_kv", "head_dim", default=64),
        vocabulary=config.size("vocab_size"),
        # Fewer leave no bucket for near tokens.
        buckets=config.size("relative_attention_num_buckets", default=32, least=4),
        drop=config.probability("dropout_rate", default=0.1),
        decoder=False,
        feed=feed,
    )
    layers = config.size("num_decoder_layers", default=layers, most=MOST_LAYERS)
    return encoder, replace(encoder, name="decoder", layers=layers, decoder=True)


def _feed(config: Fields) -> Feed:
    width = config.size("d_model", "hidden_size")
    inner = config.size("d_ff")
    drop = config.probability("dropout_rate", default=0.1)
    projection = config.choice("feed_forward_proj", default="relu", allowed=PROJECTIONS)
    gated = config.flag("is_gated_act", projection.startswith("gated-"))
    usual = projection.removeprefix("gated-")
    if projection == "gated-gelu":
        usual = "gelu_new"
    activation = config.choice("dense_act_fn", default=usual, allowed=ACTIVATIONS)

    def feed(b: Builder, x: int, name: str, layer: int) -> int:
        name = f"{name}.DenseReluDense"
        h = b.linear(x, f"{name}.wi_0" if gated else f"{name}.wi", inner, bias=False)
        b.module = f"{name}.act"
        h = b.activation(h, activation)
        if gated:
            up = b.linear(x, f"{name}.wi_1", inner, bias=False)
            b.module = name
            h = b.mul(h, up)
        b.module = f"{name}.dropout"
        h = b.dropout(h, drop)
        return b.linear(h, f"{name}.wo", width, bias=False)

    return feed
