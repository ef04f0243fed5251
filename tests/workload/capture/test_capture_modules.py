"""Any module or function: operators, data edges, memory, phases and what is left untouched."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilecast.errors import InputError, UnknownNameError
from tilecast.workload.capture import capture
from tilecast.workload.graph import Graph, Kind, Op, Phase

torch = pytest.importorskip("torch")
nn = torch.nn
F = torch.nn.functional


def names(graph: Graph, phase: Phase) -> list[str]:
    return [op.name.removeprefix("aten.") for op in graph.ops if op.phase is phase]


def one(graph: Graph, name: str) -> Op:
    (op,) = [op for op in graph.ops if op.name == name]
    return op


class Classifier(nn.Module):
    """Two linear layers with a ReLU between."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32)
        self.act = nn.ReLU()
        self.second = nn.Linear(32, 4)

    def forward(self, x):
        return self.second(self.act(self.first(x)))


def train_classifier(**options) -> Graph:
    return capture(Classifier(), torch.empty(8, 16), mode="training", **options)


def test_every_operator_of_a_training_step_in_order() -> None:
    graph = train_classifier(optimizer="sgd")
    assert names(graph, Phase.FORWARD) == [
        "t", "addmm", "relu", "t", "addmm", "view", "_log_softmax", "nll_loss_forward",
    ]  # fmt: skip
    # Each addmm has two products and a bias sum in backward (the first has no input gradient);
    # each parameter's gradient is kept by a detach.
    assert names(graph, Phase.BACKWARD) == [
        "ones_like", "nll_loss_backward", "_log_softmax_backward_data", "view",
        "t", "mm", "t", "mm", "t", "sum", "view", "detach",
        "t", "detach", "threshold_backward",
        "t", "mm", "t", "sum", "view", "detach", "t", "detach",
    ]  # fmt: skip
    assert names(graph, Phase.OPTIMIZER) == ["_foreach_add_"]


def test_shapes_attributes_and_modules() -> None:
    graph = train_classifier(optimizer="none")
    shapes = lambda ids: [graph.tensors[i].shape for i in ids]  # noqa: E731
    first = next(op for op in graph.ops if op.name == "aten.addmm")
    assert shapes(first.inputs) == [(32,), (8, 16), (16, 32)]
    assert shapes(first.outputs) == [(8, 32)]
    assert one(graph, "aten._log_softmax").attr("dim") == 1
    assert one(graph, "aten.nll_loss_forward").attr("reduction") == 1
    by_module = {
        op.name: op.module
        for op in graph.ops
        if op.name in ("aten.relu", "aten.threshold_backward")
    }
    assert by_module == {"aten.relu": "act", "aten.threshold_backward": "act"}
    products = [op.module for op in graph.ops if op.name == "aten.mm"]
    assert products == ["second", "second", "first"]


def test_the_graph_says_how_it_was_made() -> None:
    meta = train_classifier(optimizer="sgd").meta
    assert meta["source"] == "capture"
    assert meta["torch"] == torch.__version__
    assert meta["inputs"] == {"x": [8, 16]}
    assert {key: meta[key] for key in ("mode", "batch", "dtype", "loss", "optimizer")} == {
        "mode": "training", "batch": 8, "dtype": "fp32", "loss": "cross-entropy",
        "optimizer": "sgd",
    }  # fmt: skip


def test_kinds_names_and_parameters() -> None:
    graph = train_classifier(optimizer="adamw")
    count = 16 * 32 + 32 + 32 * 4 + 4
    assert graph.parameters == count
    assert sum(t.elements for t in graph.of_kind(Kind.GRADIENT)) == count
    assert sum(t.elements for t in graph.of_kind(Kind.OPTIMIZER_STATE)) == 2 * count
    assert {t.name for t in graph.of_kind(Kind.PARAMETER)} == {
        "first.weight", "first.bias", "second.weight", "second.bias",
    }  # fmt: skip
    assert {t.name for t in graph.of_kind(Kind.INPUT)} == {"x", "labels"}


def test_saved_tensors_are_what_backward_needs() -> None:
    graph = train_classifier()
    saved = {graph.tensors[i].storage for i in graph.saved}
    produced = {
        name: graph.tensors[one(graph, name).outputs[0]].storage
        for name in ("aten.relu", "aten._log_softmax")
    }
    by_name = {t.name: t.storage for t in graph.tensors if t.name}
    (_, total_weight) = one(graph, "aten.nll_loss_forward").outputs
    assert saved == {
        by_name["x"],
        by_name["second.weight"],
        by_name["labels"],
        produced["aten.relu"],
        produced["aten._log_softmax"],
        graph.tensors[total_weight].storage,
    }


def test_edges_join_makers_and_readers() -> None:
    graph = train_classifier()
    made: set[int] = set()
    outside = {i for i, t in enumerate(graph.tensors) if t.kind is not Kind.ACTIVATION}
    for op in graph.ops:
        assert set(op.inputs) <= made | outside, op
        assert not made & set(op.outputs)
        made.update(op.outputs)


def test_views_and_in_place_results_share_storage() -> None:
    def run(x):
        y = x.view(4, 4).t()
        y.add_(1)
        return torch.relu(y)

    graph = capture(run, torch.empty(16))
    tensors = graph.tensors
    view, transpose, add, relu = graph.ops
    storage = tensors[view.inputs[0]].storage
    assert {tensors[op.outputs[0]].storage for op in (view, transpose, add)} == {storage}
    assert tensors[relu.outputs[0]].storage != storage
    assert tensors[view.outputs[0]].strides is None
    assert tensors[transpose.outputs[0]].strides == (1, 4)
    assert add.outputs != add.inputs
    assert relu.inputs == add.outputs


def test_operators_with_several_results() -> None:
    def run(x):
        values, indices = torch.topk(x, 3, dim=1)
        left, right = torch.split(x, 4, dim=1)
        return values, indices, left @ right.t()

    graph = capture(run, torch.empty(8, 8))
    assert len(one(graph, "aten.topk").outputs) == 2
    assert one(graph, "aten.topk").attr("k") == 3
    halves = one(graph, "aten.split").outputs
    assert [graph.tensors[i].shape for i in halves] == [(8, 4), (8, 4)]


def test_a_module_with_several_outputs_trains_on_its_logits() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(8, 8)
            self.head = nn.Linear(8, 3)

        def forward(self, x, *, scale):
            hidden = self.body(x) * scale
            return {"hidden": hidden, "logits": self.head(hidden)}

    graph = capture(Two(), {"x": torch.empty(2, 5, 8), "scale": 2.0}, mode="training")
    assert graph.tensors[one(graph, "aten._log_softmax").inputs[0]].shape == (10, 3)


@pytest.mark.parametrize("operand", [torch.empty(3, 3, device="meta"), torch.empty(3, 3)])
def test_a_function_of_tensors_that_need_gradients(operand) -> None:
    operand = operand.requires_grad_()
    graph = capture(lambda x: torch.tanh(x @ x), operand, mode="training", loss=lambda y: y.sum())
    assert "tanh_backward" in names(graph, Phase.BACKWARD)
    assert graph.parameters == 0


def test_a_function_over_a_module_without_data() -> None:
    with torch.device("meta"):
        layer = nn.Linear(8, 4)
    graph = capture(lambda x: layer(x).sum(), torch.empty(2, 8), mode="training", loss="model")
    assert {t.name for t in graph.of_kind(Kind.PARAMETER)} == {"layer.weight", "layer.bias"}
    assert one(graph, "aten.addmm").module == "layer"
    assert layer.weight.grad is None


def test_a_function_that_makes_the_model() -> None:
    def build():
        return Classifier(), {"x": torch.empty(8, 16)}

    def build_reading_values():
        width = int(torch.tensor([16.0]).item())  # fails without data
        return nn.Linear(width, 2), torch.empty(4, width)

    assert capture(build).ops == capture(Classifier(), torch.empty(8, 16)).ops
    assert capture(build_reading_values).name == "Linear"
    with pytest.raises(InputError, match="inputs: expected the example tensors"):
        capture(lambda: Classifier())


def test_gradients_that_exist_are_added_to() -> None:
    assert "add_" not in names(train_classifier(), Phase.BACKWARD)
    adding = names(train_classifier(accumulate_gradients=True), Phase.BACKWARD)
    assert Counter(adding)["add_"] == 4


def test_loss_none_starts_from_a_given_gradient() -> None:
    graph = train_classifier(loss="none", optimizer="none")
    assert names(graph, Phase.FORWARD)[-1] == "addmm"
    assert names(graph, Phase.BACKWARD)[0] == "t"
    assert "grad_output" in {t.name for t in graph.of_kind(Kind.INPUT)}


@pytest.mark.parametrize(
    ("optimizer", "states"), [("sgd", 0), ("sgd-momentum", 1), ("adam", 2), ("adamw", 2)]
)
def test_optimizers_are_multi_tensor_and_start_with_their_state(optimizer, states) -> None:
    graph = train_classifier(optimizer=optimizer)
    steps = names(graph, Phase.OPTIMIZER)
    assert steps
    assert all(name.startswith("_foreach_") for name in steps)
    state = sum(t.elements for t in graph.of_kind(Kind.OPTIMIZER_STATE))
    assert state == states * graph.parameters


def test_adamw_is_the_update_of_its_paper() -> None:
    # Decay, two moments, the corrected square root plus epsilon, and the step itself.
    assert names(train_classifier(optimizer="adamw"), Phase.OPTIMIZER) == [
        "_foreach_mul_", "_foreach_lerp_", "_foreach_mul_", "_foreach_addcmul_", "_foreach_sqrt",
        "_foreach_div_", "_foreach_add_", "_foreach_addcdiv_",
    ]  # fmt: skip


def test_the_module_given_is_left_as_it_was() -> None:
    module = Classifier().eval()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    capture(module, torch.empty(8, 16), mode="training", dtype="bf16")
    assert not module.training
    assert all(p.grad is None and not p.is_meta for p in module.parameters())
    assert all(torch.equal(before[name], t) for name, t in module.state_dict().items())


def test_pytorch_is_left_as_it_was() -> None:
    class Fails(nn.Module):
        def forward(self, x):
            raise RuntimeError("no luck\nwith more lines")

    form = torch.Tensor.__format__
    for dtype in ("fp32", "amp-bf16"):
        with pytest.raises(InputError, match=r"Fails does not run .* no luck$"):
            capture(Fails(), torch.empty(1), dtype=dtype)
    assert torch.Tensor.__format__ is form
    assert not torch.is_autocast_enabled("cuda")
    ran = []

    class Names(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            ran.append(func._schema.name)
            return func(*args, **(kwargs or {}))

    x = torch.empty(4, device="meta")
    with Names():
        F.dropout(x, 0.5)
    assert "aten::native_dropout" not in ran


class Mixed(nn.Module):
    """Operators that run alike on every device."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 12)
        self.norm = nn.LayerNorm(12)
        self.conv = nn.Conv1d(6, 6, 3, padding=1, groups=2)
        self.mix = nn.Linear(12, 12, bias=False)
        self.heads = nn.ModuleList(nn.Linear(12, 5) for _ in range(2))

    def forward(self, tokens):
        x = self.norm(self.embed(tokens))
        x = x + F.gelu(self.conv(x))
        x = torch.cat([F.silu(self.mix(x)), x.transpose(1, 2).flip(1).transpose(1, 2)], 0)
        return self.heads[0](x) * torch.softmax(self.heads[1](x), -1)


def test_the_operators_are_those_of_a_real_run() -> None:
    """The same step with data, on the CPU, under a plain dispatch mode."""
    real: list[str] = []

    class Names(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            name = func._schema.name.replace("::", ".")
            if name != "aten.detach":  # a dispatch mode sees some that are not operators
                real.append(name)
            return func(*args, **(kwargs or {}))

    module, tokens = Mixed(), torch.randint(50, (3, 6))
    labels = torch.randint(5, (36,))
    with Names():
        logits = module(tokens)
        F.cross_entropy(logits.reshape(-1, 5), labels).backward()
    graph = capture(module, tokens, mode="training", optimizer="none")
    assert [op.name for op in graph.ops if op.name != "aten.detach"] == real
    assert {op.module for op in graph.ops if op.name.startswith("aten.convolution")} == {"conv"}


@given(
    widths=st.lists(st.integers(1, 40), min_size=2, max_size=5),
    batch=st.integers(1, 9),
    bias=st.booleans(),
)
@settings(max_examples=20, deadline=None)
def test_products_of_any_perceptron(widths, batch, bias) -> None:
    """2 M N K a product: one forward, two backward, and no input gradient in the first layer."""
    layers = [nn.Linear(a, b, bias=bias) for a, b in pairwise(widths)]
    graph = capture(nn.Sequential(*layers), torch.empty(batch, widths[0]), mode="training")
    flops = 0
    for op in graph.ops:
        if op.name in ("aten.mm", "aten.addmm"):
            left, right = (graph.tensors[i].shape for i in op.inputs[-2:])
            flops += 2 * left[0] * left[1] * right[1]
    sizes = [a * b for a, b in pairwise(widths)]
    assert flops == 2 * batch * (3 * sum(sizes) - sizes[0])
    assert graph.parameters == sum(sizes) + bias * sum(widths[1:])
    path = [op.module for op in graph.ops if op.name in ("aten.mm", "aten.addmm")]
    forward = [str(i) for i in range(len(layers))]
    assert path[: len(layers)] == forward
    assert set(path) == set(forward)


def test_small_integers_steer_the_model() -> None:
    class Branch(nn.Module):
        def forward(self, x, mask):
            return x.relu() if mask.all() else x.tanh()

    for mask, taken in (
        (torch.tensor([True, True]), "relu"),
        (torch.tensor([True, False]), "tanh"),
    ):
        assert taken in names(capture(Branch(), (torch.empty(2), mask)), Phase.FORWARD)


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (lambda x: x if x.sum() > 0 else -x, "reads a tensor's value"),
        (lambda x: x[x > 0], "selects elements by a mask"),
    ],
)
def test_branches_on_data_are_refused(run, text) -> None:
    with pytest.raises(InputError, match=text):
        capture(run, torch.empty(4))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "serve"}, "--mode serve: expected one of inference"),
        ({"mode": "decode", "context": 3}, "needs a Hugging Face model"),
        ({"dtype": "fp8"}, "--dtype fp8: expected one of fp64, fp32"),
        ({"batch": 0}, "--batch 0: expected an integer of at least 1"),
        ({"batch": True}, "--batch True"),
        ({"seq": -1}, "--seq -1"),
        ({"context": 5}, "--context: only prefill and decode"),
        ({"attention": "flash"}, "--attention flash: needs fp16 or bf16"),
        ({"attention": "fast"}, "--attention fast: expected one of auto"),
        ({"loss": "hinge"}, "--loss hinge: expected one of"),
        ({"inputs": None}, "inputs: expected the example tensors"),
        ({"inputs": torch.empty(8, 17)}, "Classifier does not run on shapes alone"),
    ],
)
def test_options_out_of_range(options, text) -> None:
    with pytest.raises(InputError, match=text):
        capture(Classifier(), **{"inputs": torch.empty(8, 16), **options})


def test_unknown_optimizer_suggests_the_near_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown optimizer 'adamv'; did you mean"):
        train_classifier(optimizer="adamv")


def test_what_cannot_be_captured() -> None:
    with pytest.raises(InputError, match="Classifier is a class"):
        capture(Classifier, torch.empty(8, 16))
    with pytest.raises(InputError, match="got int; expected a module"):
        capture(3, torch.empty(8, 16))
    with pytest.raises(InputError, match="nothing to train"):
        capture(torch.relu, torch.empty(3), mode="training")
    layer = nn.Linear(3, 3)
    with pytest.raises(InputError, match="layer, which <lambda> uses, holds data"):
        capture(lambda x: layer(x), torch.empty(3, 3))
    with pytest.raises(InputError, match="the model returns no loss"):
        train_classifier(loss="model")
