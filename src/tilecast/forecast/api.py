"""`forecast` and `compare`: one model on one GPU, or on several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilecast.errors import InputError
from tilecast.forecast.engine import price
from tilecast.forecast.host import HostModel
from tilecast.forecast.options import Options
from tilecast.forecast.prepared import Prepared, prepare
from tilecast.forecast.resolve import graph_of
from tilecast.forecast.result import Forecast
from tilecast.hardware import GPU
from tilecast.hardware import gpu as find_gpu
from tilecast.predict import Law, load_law


def check_level(level: float) -> float:
    """The level of an interval, if it is one.

    Raises:
        InputError: not between 0 and 1.
    """
    if not 0.0 < level < 1.0:
        raise InputError(f"--level {level}: expected more than 0 and less than 1, as in 0.8")
    return level


def forecast(
    model: Any,
    *,
    gpu: str | GPU,
    law: str | Law = "tile",
    weights: str | None = None,
    microbenchmark: bool = False,
    level: float = 0.8,
    top: int = 10,
    cuda_graphs: bool = False,
    host: HostModel | None = None,
    **options: Any,
) -> Forecast:
    """How long a model takes on a GPU, why and how sure.

    Args:
        model: a preset name, a config.json or its folder, `module:callable`, an `nn.Module`, a
            Hugging Face config, a `Graph`, or one made ready by `prepare`.
        gpu: a catalogue name or alias, a TOML file, `NAME,field=value,...`, or a `GPU`.
        law: name of the latency law, or one loaded before.
        weights: file of fitted weights in place of the law's own.
        microbenchmark: use published measurements in the GPU's file, where it has them.
        level: of the interval.
        top: kernels and modules to list.
        cuda_graphs: replay recorded launches, so that the host costs nothing.
        host: eager host costs.
        **options: fields of `Options`: mode, batch, seq, context, dtype, attention, loss,
            optimizer, dropout, accumulate, head.

    Returns:
        The forecast; times in seconds.

    Raises:
        TilecastError: an unknown name, an impossible option, a file that cannot be used.
    """
    check_level(level)
    chosen = _options(options)
    where = gpu if isinstance(gpu, GPU) else find_gpu(gpu)
    prepared = model if isinstance(model, Prepared) else prepare(graph_of(model, chosen))
    return price(
        prepared,
        where,
        law if not isinstance(law, str) else load_law(law, weights, microbenchmark),
        host=host,
        level=level,
        top=top,
        cuda_graphs=cuda_graphs,
        repeats=chosen.accumulate,
    )


def _options(options: dict[str, Any]) -> Options:
    try:
        return Options(**options)
    except TypeError as error:
        raise InputError(f"options: {error}") from error


@dataclass(frozen=True, slots=True)
class Comparison:
    """One model on several GPUs: the forecasts as given, and GPU names from fastest to slowest."""

    forecasts: tuple[Forecast, ...]
    ranking: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain JSON values."""
        return {
            "forecasts": [one.to_dict() for one in self.forecasts],
            "ranking": {"time": list(self.ranking)},
        }


def compare(model: Any, *, gpus: Sequence[str | GPU], **options: Any) -> Comparison:
    """Forecast one model on each GPU and rank them by time.

    Args:
        model: as in `forecast`; it is captured and lowered once.
        gpus: catalogue names, TOML files, overrides or `GPU`s.
        **options: as in `forecast`.

    Raises:
        TilecastError: as `forecast`, or no GPU is given.
    """
    if not gpus:
        raise InputError("--gpus: expected at least one GPU")
    places = [one if isinstance(one, GPU) else find_gpu(one) for one in gpus]
    own = {field: options[field] for field in Options.__slots__ if field in options}
    rest = {key: value for key, value in options.items() if key not in own}
    law = rest.pop("law", "tile")
    weights, micro = rest.pop("weights", None), rest.pop("microbenchmark", False)
    if isinstance(law, str):
        law = load_law(law, weights, micro)
    prepared = model if isinstance(model, Prepared) else prepare(graph_of(model, _options(own)))
    answers = tuple(forecast(prepared, gpu=place, law=law, **rest, **own) for place in places)
    order = sorted(answers, key=lambda one: one.latency_s)
    return Comparison(answers, tuple(one.gpu for one in order))
