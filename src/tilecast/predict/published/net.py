"""A multilayer perceptron with ReLU, in NumPy: what the published laws learn with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilecast.kernels.table import Floats

Get = Callable[..., Floats]


class Net:
    """Layers of a perceptron on standardised inputs.

    Attributes:
        mean, scale: (inputs,) of the inputs.
        weights: (in, out) of each layer.
        biases: (out,) of each layer.
    """

    def __init__(
        self, mean: Floats, scale: Floats, weights: list[Floats], biases: list[Floats]
    ) -> None:
        self.mean, self.scale = mean, scale
        self.weights, self.biases = weights, biases

    def __call__(self, inputs: Floats) -> Floats:
        """Outputs (n, outputs) of inputs (n, inputs)."""
        x = (inputs - self.mean) / self.scale
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = x @ weight + bias
            if layer != last:
                x = np.maximum(x, 0.0)
        return x

    def to_tensors(self, prefix: str) -> dict[str, NDArray[Any]]:
        """As named float32 arrays."""
        arrays = {f"{prefix}/mean": self.mean, f"{prefix}/scale": self.scale}
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            arrays |= {f"{prefix}/weight{layer}": weight, f"{prefix}/bias{layer}": bias}
        return {key: value.astype(np.float32) for key, value in arrays.items()}

    @staticmethod
    def from_tensors(tensors: Any, get: Get, prefix: str, inputs: int, outputs: int) -> Net:
        """Read a net and check that its layers fit together.

        Args:
            tensors: mapping of all arrays.
            get: returns an array by name and shape (-1 any length) or raises InputError.
            prefix: as in `to_tensors`.
            inputs, outputs: widths that it must have.
        """
        mean, scale = get(f"{prefix}/mean", inputs), get(f"{prefix}/scale", inputs)
        count = sum(key.startswith(f"{prefix}/weight") for key in tensors)
        weights, biases, width = [], [], inputs
        for layer in range(max(count, 1)):
            last = layer >= count - 1
            weight = get(f"{prefix}/weight{layer}", width, outputs if last else -1)
            width = weight.shape[1]
            weights.append(weight)
            biases.append(get(f"{prefix}/bias{layer}", width))
        return Net(mean, np.where(scale == 0, 1.0, scale), weights, biases)
