"""Reading a model config: every field checked, every refusal one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilecast.errors import InputError

#: No published size (hidden, vocabulary, layers, positions) comes near this.
LARGEST = 10_000_000
#: Nor does any model have so many layers; a graph has some hundred operators for each.
MOST_LAYERS = 10_000


class Fields:
    """Checked access to the fields of a config (the keys of a Hugging Face `config.json`).

    Args:
        config: parsed JSON object.
        model: name for messages.
    """

    def __init__(self, config: Mapping[str, Any], model: str = "") -> None:
        self._config = config
        self.model = model or str(config.get("model_type", "config"))

    def _find(self, names: tuple[str, ...]) -> tuple[str, Any]:
        for name in names:
            if self._config.get(name) is not None:
                return name, self._config[name]
        return names[0], None

    def fail(self, field: str, expected: str) -> InputError:
        """An error about one field, to be raised by the caller."""
        value = self._config.get(field)
        had = "is missing" if value is None else f"is {value!r}"
        return InputError(f"{self.model}: {field} {had}; expected {expected}")

    def size(
        self, *names: str, default: int | None = None, least: int = 1, most: int = LARGEST
    ) -> int:
        """A positive whole number under the first of `names` that is set.

        Raises:
            InputError: missing without a default, not whole, below `least` or over `most`.
        """
        name, value = self._find(names)
        if value is None:
            if default is None:
                raise self.fail(name, f"a whole number of at least {least}")
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(name, f"a whole number of at least {least}")
        if not least <= value <= most:
            raise self.fail(name, f"a whole number from {least} to {most}")
        return value

    def layers(self, *names: str) -> int:
        """Number of layers."""
        return self.size(*names, most=MOST_LAYERS)

    def number(
        self, *names: str, default: float, low: float = 0.0, high: float = float("inf")
    ) -> float:
        """A finite number in [low, high]."""
        name, value = self._find(names)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.fail(name, f"a number from {low:g} to {high:g}")
        if not low <= value <= high:
            raise self.fail(name, f"a number from {low:g} to {high:g}")
        return float(value)

    def probability(self, *names: str, default: float) -> float:
        """A dropout probability, 0 to below 1."""
        return self.number(*names, default=default, low=0.0, high=0.999999)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._config.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.fail(name, "true or false")
        return value

    def refuse(self, *names: str) -> None:
        """Refuse options that no blueprint writes.

        Raises:
            InputError: one of them is true.
        """
        for name in names:
            if self.flag(name, False):
                raise self.fail(name, "false: blueprints do not have it, capture does")

    def labels(self) -> int:
        """Number of classes: `num_labels`, else the size of `id2label`, else 2."""
        named = self._config.get("id2label")
        usual = len(named) if isinstance(named, Mapping) and named else 2
        return self.size("num_labels", default=usual)

    def choice(self, *names: str, default: str, allowed: tuple[str, ...]) -> str:
        """One of a few words."""
        name, value = self._find(names)
        if value is None:
            return default
        if value not in allowed:
            raise self.fail(name, " or ".join(allowed))
        return str(value)

    def heads(self, hidden: int, *names: str) -> tuple[int, int]:
        """(number of heads, size of one) where the heads share out the hidden size.

        Raises:
            InputError: the hidden size is no multiple of the heads.
        """
        heads = self.size(*names)
        if hidden % heads:
            field = self._find(names)[0]
            raise self.fail(field, f"a divisor of the hidden size {hidden}")
        return heads, hidden // heads

    def rotary_heads(self, hidden: int, usual: int | None) -> tuple[int, int]:
        """(number of heads, size of one), the size by `head_dim` where given.

        Args:
            hidden: hidden size.
            usual: size in this family when the config gives none (None: hidden / heads).

        Raises:
            InputError: an odd size, which rotary embeddings cannot halve.
        """
        if usual is None and self._config.get("head_dim") is None:
            heads, size = self.heads(hidden, "num_attention_heads")
        else:
            heads, size = self.size("num_attention_heads"), self.size("head_dim", default=usual)
        if size % 2:
            raise InputError(
                f"{self.model}: head_dim is {size}; expected an even number (rotary embedding)"
            )
        return heads, size

    def optional_size(self, name: str) -> int | None:
        """A positive whole number, or None where the config has none."""
        return None if self._config.get(name) is None else self.size(name)

    def padding(self) -> int:
        """`pad_token_id`, -1 where there is none (a list, as some configs have, is none)."""
        value = self._config.get("pad_token_id")
        return value if isinstance(value, int) and value >= 0 else -1

    def text(self, name: str) -> str:
        """A string, or an empty one."""
        value = self._config.get(name)
        return value if isinstance(value, str) else ""

    def items(self, name: str) -> list[Any]:
        """A list, or an empty one."""
        value = self._config.get(name)
        return list(value) if isinstance(value, (list, tuple)) else []
