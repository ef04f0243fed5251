"""Which GPU for a training run: prepare the model once, price it everywhere.

python examples/choose_gpu.py
"""

from __future__ import annotations

import tilecast

CANDIDATES = ["v100", "a100", "l40s", "h100", "mi210"]


def main() -> None:
    config = tilecast.load_preset("gpt2-medium")
    graph = tilecast.blueprint(
        config, name="gpt2-medium", mode="training", batch=8, seq=1024, optimizer="adamw"
    )
    prepared = tilecast.prepare(graph)
    law = tilecast.load_law()
    answers = [tilecast.price(prepared, tilecast.gpu(name), law) for name in CANDIDATES]
    for answer in sorted(answers, key=lambda one: one.latency_s):
        low, high = answer.interval_s
        print(
            f"{answer.gpu:16} {answer.latency_s * 1e3:7.0f} ms a step "
            f"({low * 1e3:.0f} to {high * 1e3:.0f}), MFU {answer.mfu:.0%}, "
            f"bound by {answer.bound_by}"
        )


if __name__ == "__main__":
    main()
