"""Check the light core: importing takes at most 0.3 s and brings no heavy library along."""

from __future__ import annotations

import subprocess
import sys
import time

LIMIT_S = 0.3
HEAVY = ("torch", "transformers", "scipy", "pyarrow", "pandas")


def main() -> int:
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import tilecast"], check=True)
        with_package = time.perf_counter() - begin
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        best = min(best, with_package - (time.perf_counter() - begin))
    code = (
        "import sys, tilecast; tilecast.forecast('gpt2', gpu='a100', seq=8); "
        f"print(*[name for name in {HEAVY!r} if name in sys.modules])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()
    print(f"import tilecast: {best:.3f} s (at most {LIMIT_S}); heavy modules: {loaded or 'none'}")
    return 0 if best <= LIMIT_S and not loaded else 1


if __name__ == "__main__":
    sys.exit(main())
