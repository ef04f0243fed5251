"""What would a faster memory buy: one model on a GPU and on what it might become.

python examples/gpu_of_your_own.py
"""

from __future__ import annotations

import tilecast


def main() -> None:
    base = tilecast.gpu("h100")
    for factor in (1.0, 1.25, 1.5, 2.0):
        bandwidth = base.memory_bandwidth_bytes_per_s * factor
        gpu = tilecast.gpu(f"h100,memory_bandwidth_bytes_per_s={bandwidth}")
        answer = tilecast.forecast("gpt2-xl", gpu=gpu, batch=4, seq=1024)
        print(
            f"{bandwidth / 1e12:5.2f} TB/s: {answer.latency_s * 1e3:6.1f} ms, "
            f"bound by {answer.bound_by}"
        )


if __name__ == "__main__":
    main()
