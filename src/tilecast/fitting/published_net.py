"""Train the perceptrons of the published laws: AdamW in NumPy, the same on every run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tilecast.kernels.table import Floats
from tilecast.predict.published.net import Net

SEED: Final = 20251
#: Share of the rows that choose the epoch whose weights are kept.
VALIDATION: Final = 0.2
#: Largest gradient of an output that a row may have.
CLIP: Final = 5.0
_DECAY: Final = (0.9, 0.999)

#: Outputs (b, outputs) and the rows that they are of to losses (b,) and their gradients.
Loss = Callable[[Floats, NDArray[np.intp]], tuple[Floats, Floats]]


def train(
    inputs: Floats,
    loss: Loss,
    outputs: Sequence[float],
    *,
    hidden: Sequence[int] = (64, 64, 64, 64),
    epochs: int = 60,
    batch: int = 256,
    rate: float = 2e-3,
    weight_decay: float = 1e-4,
) -> Net:
    """A net that makes the mean of `loss` small, with the weights of its best validation epoch.

    Args:
        inputs: (n, inputs), standardised here.
        loss: of some rows.
        outputs: where the outputs start.
        hidden: widths of the hidden layers.
        epochs, batch, rate, weight_decay: of AdamW; the rate falls to 0 as a cosine.
    """
    draw = np.random.default_rng(SEED)
    mean, scale = inputs.mean(axis=0), inputs.std(axis=0)
    scale = np.where(scale < 1e-9, 1.0, scale)
    x = ((inputs - mean) / scale).astype(np.float32)
    order = draw.permutation(len(x))
    kept = order[: int(VALIDATION * len(x))] if len(x) >= 20 else order
    fitted = order[len(kept) :] if len(x) >= 20 else order
    widths = [x.shape[1], *hidden, len(outputs)]
    values: list[NDArray[np.float32]] = []
    for wide, narrow in pairwise(widths):
        values.append(draw.normal(0, np.sqrt(2 / wide), (wide, narrow)).astype(np.float32))
        values.append(np.zeros(narrow, dtype=np.float32))
    values[-2] *= np.float32(0.1)
    values[-1] += np.array(outputs, dtype=np.float32)
    first = [np.zeros_like(value) for value in values]
    second = [np.zeros_like(value) for value in values]
    best, least, step = [value.copy() for value in values], np.inf, 0
    steps = epochs * -(-len(fitted) // batch)
    for _ in range(epochs):
        shuffled = draw.permutation(fitted)
        for begin in range(0, len(shuffled), batch):
            rows = shuffled[begin : begin + batch]
            layers = _forward(values, x[rows])
            gradient = np.clip(loss(layers[-1].astype(np.float64), rows)[1], -CLIP, CLIP)
            slopes = _backward(values, layers, (gradient / len(rows)).astype(np.float32))
            now = rate * 0.5 * (1.0 + np.cos(np.pi * step / steps))
            step += 1
            for value, slope, one, two in zip(values, slopes, first, second, strict=True):
                one += (1 - _DECAY[0]) * (slope - one)
                two += (1 - _DECAY[1]) * (slope * slope - two)
                size = np.sqrt(two / (1 - _DECAY[1] ** step)) + 1e-8
                value -= (now / (1 - _DECAY[0] ** step)) * one / size
                if value.ndim == 2:
                    value *= 1 - now * weight_decay
        made = _forward(values, x[kept])[-1].astype(np.float64)
        error = float(loss(made, kept)[0].mean())
        if error < least:
            best, least = [value.copy() for value in values], error
    weights = [value.astype(np.float64) for value in best]
    return Net(mean, scale, weights[0::2], weights[1::2])


def _forward(
    values: list[NDArray[np.float32]], x: NDArray[np.float32]
) -> list[NDArray[np.float32]]:
    """Inputs of every layer, and the outputs."""
    layers = [x]
    last = len(values) // 2 - 1
    for layer in range(last + 1):
        y = layers[-1] @ values[2 * layer] + values[2 * layer + 1]
        layers.append(y if layer == last else np.maximum(y, 0))
    return layers


def _backward(
    values: list[NDArray[np.float32]],
    layers: list[NDArray[np.float32]],
    gradient: NDArray[np.float32],
) -> list[NDArray[np.float32]]:
    """Gradients of weights and biases, in the order of `values`."""
    slopes: list[NDArray[np.float32]] = []
    for layer in range(len(values) // 2 - 1, -1, -1):
        slopes += [gradient.sum(axis=0), layers[layer].T @ gradient]
        if layer:
            gradient = (gradient @ values[2 * layer].T) * (layers[layer] > 0)
    return slopes[::-1]
