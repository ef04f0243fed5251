"""The package as a whole: light, lazy, complete."""

from __future__ import annotations

import subprocess
import sys

import tilecast


def python(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_importing_brings_nothing_heavy() -> None:
    code = (
        "import sys, tilecast; "
        "print(*[m for m in ('torch', 'numpy', 'pydantic', 'typer', 'scipy') if m in sys.modules])"
    )
    assert python(code) == ""


def test_a_forecast_needs_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None; import tilecast; "
        "print(tilecast.forecast('gpt2', gpu='a100', seq=64).latency_s > 0)"
    )
    assert python(code) == "True"


def test_every_public_name_is_there() -> None:
    for name in tilecast.__all__:
        assert getattr(tilecast, name) is not None


def test_the_verb_stays_a_function_however_its_room_is_reached() -> None:
    for first in ("import tilecast.forecast.engine, tilecast", "import tilecast",
                  "import tilecast; from tilecast.forecast import price"):  # fmt: skip
        code = f"{first}; print(tilecast.forecast('gpt2', gpu='t4', seq=8).gpu)"
        assert python(code) == "t4"
