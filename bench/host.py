"""Measure what eager PyTorch costs the host for each operator: `python -m bench.host`.

Runs real models, made so small that their arithmetic is nothing, on the CPU with one thread;
counts the operators that were dispatched, and divides time among them by least squares. What is
left is the walk through Python, the dispatcher and autograd, which a GPU run pays as well. The
launch of each kernel comes on top and is not measured here.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers
from scipy.optimize import nnls
from torch.utils._python_dispatch import TorchDispatchMode

VIEWS = {
    "view", "_unsafe_view", "t", "transpose", "permute", "expand", "slice", "select", "unsqueeze",
    "squeeze", "detach", "alias", "split", "as_strided", "unbind", "chunk", "lift_fresh",
    "split_with_sizes", "_reshape_alias",
}  # fmt: skip


class Counter(TorchDispatchMode):
    """Counts operators that work, operators that only view, and tensors in foreach lists."""

    def __init__(self) -> None:
        super().__init__()
        self.work = self.views = self.listed = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in VIEWS:
            self.views += 1
        else:
            self.work += 1
            if name.startswith("_foreach"):
                self.listed += sum(len(a) for a in args if isinstance(a, list | tuple))
        return func(*args, **(kwargs or {}))


def models(layers: int) -> list[tuple[str, Any]]:
    """Small models of three architectures with a number of layers."""
    small = {"vocab_size": 16, "attn_implementation": "eager"}
    return [
        ("gpt2", transformers.GPT2Config(n_layer=layers, n_embd=8, n_head=2, **small)),
        ("bert", transformers.BertConfig(
            num_hidden_layers=layers, hidden_size=8, num_attention_heads=2, intermediate_size=16,
            is_decoder=True, **small)),
        ("llama", transformers.LlamaConfig(
            num_hidden_layers=layers, hidden_size=8, num_attention_heads=2, num_key_value_heads=2,
            intermediate_size=16, **small)),
    ]  # fmt: skip


def fastest(run: Callable[[], Any], repeats: int) -> float:
    """Mean of the five fastest of several runs, seconds."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return float(np.mean(sorted(times)[:5]))


def measure(repeats: int) -> dict[str, Any]:
    """Rows of (work, views, listed, seconds) by phase, and the fitted seconds of each."""
    rows: dict[str, list[list[float]]] = {"forward": [], "backward": [], "optimizer": []}
    for layers in (2, 6, 12):
        for _, config in models(layers):
            model = transformers.AutoModelForCausalLM.from_config(config).train()
            ids = torch.zeros((1, 2), dtype=torch.long)
            optimizer = torch.optim.AdamW(model.parameters(), foreach=True)

            def forward(model: Any = model, ids: Any = ids) -> Any:
                return model(ids).logits.sum()

            loss = forward()
            loss.backward()
            optimizer.step()

            def count(run: Callable[[], Any]) -> Counter:
                with Counter() as counter:
                    run()
                return counter

            def backward(forward: Any = forward) -> float:
                value = forward()
                begin = time.perf_counter()
                value.backward()
                return time.perf_counter() - begin

            value = forward()
            for phase, run in (
                ("forward", forward),
                ("backward", value.backward),
                ("optimizer", optimizer.step),
            ):
                counted = count(run)
                taken = (
                    float(np.mean(sorted(backward() for _ in range(repeats))[:5]))
                    if phase == "backward"
                    else fastest(run, repeats)
                )
                rows[phase].append([counted.work, counted.views, counted.listed, taken])
    fitted = {}
    for phase, measured in rows.items():
        table = np.array(measured)
        columns = [0, 1] if phase != "optimizer" else [0, 2]
        weight = 1.0 / table[:, 3]
        cost, _ = nnls(table[:, columns] * weight[:, None], np.ones(len(table)))
        forecast = table[:, columns] @ cost
        fitted[phase] = {
            "per_op_s": float(cost[0]),
            ("per_listed_tensor_s" if phase == "optimizer" else "per_view_s"): float(cost[1]),
            "mean_ape": float(np.mean(np.abs(forecast / table[:, 3] - 1)) * 100),
            "mean_over_all_ops_s": float(table[:, 3].sum() / table[:, :2].sum()),
        }
    return fitted


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    answer = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "phases": measure(arguments.repeats),
    }
    print(json.dumps(answer, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
