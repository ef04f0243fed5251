"""BERT as Transformers' `BertModel` and the heads on it."""

from __future__ import annotations

from tilecast.workload.blueprint.builder import Builder
from tilecast.workload.blueprint.fields import Fields
from tilecast.workload.blueprint.tape import NONE

ACTIVATIONS = ("gelu", "gelu_new", "relu", "silu", "tanh", "gelu_pytorch_tanh")
HEADS = ("masked-lm", "pretraining", "causal-lm", "sequence-classification",
         "token-classification")  # fmt: skip
_BY_CLASS = {
    "BertForMaskedLM": "masked-lm", "BertForPreTraining": "pretraining",
    "BertLMHeadModel": "causal-lm", "BertForSequenceClassification": "sequence-classification",
    "BertForTokenClassification": "token-classification", "BertModel": "base",
}  # fmt: skip


def resolve_head(b: Builder, config: Fields) -> str:
    """The head that is built: `auto` is the config's architecture, else the language model."""
    if b.run.head != "auto":
        return b.run.head
    for name in config.items("architectures"):
        if name in _BY_CLASS:
            return _BY_CLASS[name]
    return "causal-lm" if config.flag("is_decoder", False) else "masked-lm"


def build(b: Builder, config: Fields) -> int:
    """Emit the forward pass.

    Returns:
        The logits of the head: (batch, seq, vocabulary or labels), (batch, labels) for sequence
        classification, (batch, seq, hidden) for head `base`.
    """
    run = b.run
    head = resolve_head(b, config)
    width = config.size("hidden_size")
    layers = config.layers("num_hidden_layers")
    heads, head_dim = config.heads(width, "num_attention_heads")
    inner = config.size("intermediate_size")
    vocabulary = config.size("vocab_size")
    limit = config.size("max_position_embeddings", default=512)
    types = config.size("type_vocab_size", default=2)
    activation = config.choice("hidden_act", default="gelu", allowed=ACTIVATIONS)
    drop = config.probability("hidden_dropout_prob", default=0.1)
    attention_drop = config.probability("attention_probs_dropout_prob", default=0.1)
    decoder = config.flag("is_decoder", False)
    config.refuse("add_cross_attention")
    run.check_positions(limit, "max_position_embeddings")
    if run.cached and not decoder:
        raise config.fail("is_decoder", f"true for mode '{run.mode}', which needs a KV cache")
    root = "" if head == "base" else "bert."
    b.shifts_labels = head == "causal-lm"

    x = _embed(b, f"{root}embeddings", vocabulary, width, limit, types,
               config.size("pad_token_id", default=0, least=0))  # fmt: skip
    b.module = f"{root}embeddings.dropout"
    x = b.dropout(x, drop)
    b.module = root.rstrip(".")
    mask, causal = b.causal_mask(NONE) if decoder else (NONE, False)

    split = (run.batch, run.seq, heads, head_dim)
    for layer in range(layers):
        name = f"{root}encoder.layer.{layer}"
        parts = []
        for part in ("query", "key", "value"):
            h = b.linear(x, f"{name}.attention.self.{part}", width)
            b.module = f"{name}.attention.self"
            parts.append(b.transpose(b.view(h, *split), 1, 2))
        q, k, v = parts
        k, v = b.cache(b.module, k, v)
        h = b.attend(q, k, v, mask, head_dim**-0.5, attention_drop, causal=causal)
        h = b.reshape(h, run.batch, run.seq, width)
        h = b.linear(h, f"{name}.attention.output.dense", width)
        x = _add_norm(b, h, x, f"{name}.attention.output", drop)
        h = b.linear(x, f"{name}.intermediate.dense", inner)
        b.module = f"{name}.intermediate.intermediate_act_fn"
        h = b.activation(h, activation)
        h = b.linear(h, f"{name}.output.dense", width)
        x = _add_norm(b, h, x, f"{name}.output", drop)

    pooled = NONE
    if head in ("base", "pretraining", "sequence-classification"):
        b.module = f"{root}pooler"
        h = b.linear(b.select(x, 1, 0), f"{root}pooler.dense", width)
        b.module = f"{root}pooler.activation"
        pooled = b.unary("aten.tanh", h)
    if head == "base":
        return x
    labels = config.labels()
    if head == "sequence-classification":
        b.module = "dropout"
        return b.linear(b.dropout(pooled, drop), "classifier", labels)
    if head == "token-classification":
        b.module = "dropout"
        return b.linear(b.dropout(x, drop), "classifier", labels)
    if head == "causal-lm":
        b.module = ""
        x = b.kept_positions(x)
    h = b.linear(x, "cls.predictions.transform.dense", width)
    b.module = "cls.predictions.transform.transform_act_fn"
    h = b.activation(h, activation)
    h = b.layer_norm(h, "cls.predictions.transform.LayerNorm")
    tied = config.flag("tie_word_embeddings", True)
    logits = b.linear(h, "cls.predictions.decoder", vocabulary, bias="cls.predictions.bias",
                      tied=f"{root}embeddings.word_embeddings.weight" if tied else "")  # fmt: skip
    if head == "pretraining":
        b.second_output = b.linear(pooled, "cls.seq_relationship", 2)
    return logits


def _embed(
    b: Builder, name: str, vocabulary: int, width: int, limit: int, types: int, padding: int
) -> int:
    """Sum of word, token-type and position embeddings, normalised."""
    batch, seq = b.run.batch, b.run.seq
    b.module = name
    places = b.buffer(f"{name}.position_ids", (1, limit), "int64")
    kinds = b.buffer(f"{name}.token_type_ids", (1, limit), "int64")
    ids = b.input("input_ids", (batch, seq))
    places = b.slice(places, 1, b.run.context, b.run.length)
    kinds = b.expand(kinds, 1, -1)
    kinds = b.index("aten.gather", kinds, places, shape=(1, seq), attrs=(("dim", 1),))
    kinds = b.expand(kinds, batch, seq)
    x = b.embedding(ids, f"{name}.word_embeddings", vocabulary, width, padding)
    x = b.add(x, b.embedding(kinds, f"{name}.token_type_embeddings", types, width))
    x = b.add(x, b.embedding(places, f"{name}.position_embeddings", limit, width))
    return b.layer_norm(x, f"{name}.LayerNorm")


def _add_norm(b: Builder, h: int, residual: int, name: str, drop: float) -> int:
    b.module = f"{name}.dropout"
    h = b.dropout(h, drop)
    b.module = name
    return b.layer_norm(b.add(h, residual), f"{name}.LayerNorm")


def loss(b: Builder, logits: int) -> int:
    """Cross-entropy of the logits; for the pretraining head's own, of both outputs."""
    total = b.token_loss(logits)
    if b.run.loss == "model" and b.second_output >= 0:
        labels = b.input("next_sentence_label", (b.run.batch,))
        rows = b.view(b.second_output, -1, 2)
        total = b.add(total, b.cross_entropy(rows, b.view(labels, -1)))
    return total
