"""`kernel`: one kernel on one GPU, from its dimensions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from tilecast.errors import InputError
from tilecast.forecast.engine import shape_text
from tilecast.hardware import GPU
from tilecast.hardware import gpu as find_gpu
from tilecast.kernels import attention, conv, copy, elementwise, embedding, gemm, reduction
from tilecast.kernels.table import REDUCTION_KINDS, KernelTable
from tilecast.precision import PRECISIONS
from tilecast.predict import Law, load_law
from tilecast.predict.law import BOUNDS, DOMAINS

LAYOUTS: Final = ("nn", "nt", "tn", "tt")
PASSES: Final = ("fwd", "dgrad", "wgrad")
CACHES: Final = ("cold", "warm")
#: Larger than any kernel; a size above it is a slip of the keyboard.
MAX_SIZE: Final = 10**12


@dataclass(frozen=True, slots=True)
class KernelForecast:
    """Forecast of one kernel.

    Attributes:
        latency_s, interval_s: seconds, at `level`.
        flops, bytes: of its shape; unique bytes.
        tile: M, N, K of the tile that weighs most; None where the family has none.
        waves: rounds of tiles that fill the SMs.
        utilisation: bound over latency, in (0, 1].
        bound_by: `compute`, `memory` or `launch`.
        domain: `inside`, `edge` or `outside` what the law was fitted on.
    """

    family: str
    name: str
    shape: str
    gpu: str
    dtype: str
    latency_s: float
    interval_s: tuple[float, float]
    level: float
    flops: float
    bytes: float
    tile: tuple[int, int, int] | None
    waves: float
    utilisation: float
    bound_by: str
    domain: str
    sources: tuple[dict[str, str], ...]

    def to_dict(self) -> dict[str, Any]:
        """The forecast as plain JSON values."""
        return asdict(self)


def kernel(
    family: str,
    *,
    gpu: str | GPU,
    dtype: str = "fp32",
    law: str | Law = "tile",
    weights: str | None = None,
    microbenchmark: bool = False,
    level: float = 0.8,
    cache: str = "cold",
    **dims: Any,
) -> KernelForecast:
    """How long one kernel takes on a GPU.

    Args:
        family: gemm (`b, m, n, k, layout`), elementwise or copy (`elements, inputs, outputs,
            ops_per_element`), reduction (`rows, columns, kind`), conv (`batch, in_channels,
            out_channels, size, kernel, stride, padding, groups, direction`), attention (`batch,
            heads, kv_heads, head_dim, q_len, kv_len, causal, window`) or embedding
            (`tokens, width, rows`).
        gpu: as in `forecast`.
        dtype: a precision of `tilecast.precision.PRECISIONS`.
        law, weights, microbenchmark, level: as in `forecast`.
        cache: whether what it reads may be in the L2 when it starts: `cold` or `warm`.
        **dims: sizes in elements, by name.

    Raises:
        InputError: an unknown family or option, or an impossible size, naming it.
    """
    from tilecast.forecast.api import check_level

    build = _FAMILIES.get(family)
    if build is None:
        raise InputError(f"kernel family {family!r}: expected {', '.join(_FAMILIES)}")
    _one_of("dtype", dtype, PRECISIONS)
    _one_of("cache", cache, CACHES)
    check_level(level)
    place = gpu if isinstance(gpu, GPU) else find_gpu(gpu)
    chosen = load_law(law, weights, microbenchmark) if isinstance(law, str) else law
    try:
        table = build(dtype, **dims).with_warm(1.0 if cache == "warm" else 0.0)
    except TypeError as error:
        raise InputError(f"kernel {family}: {error}") from error
    made = chosen.predict(table, place, level)
    tile = tuple(int(size) for size in made.tile[0])
    domain = DOMAINS[int(made.domain[0])]
    return KernelForecast(
        family=family,
        name=table.name_of(0),
        shape=shape_text(table, 0),
        gpu=place.name,
        dtype=dtype,
        latency_s=float(made.latency_s[0]),
        interval_s=(float(made.low_s[0]), float(made.high_s[0])),
        level=level,
        flops=float(table.flops[0]),
        bytes=float(table.footprint[0]),
        tile=(tile[0], tile[1], tile[2]) if any(tile) else None,
        waves=float(made.waves[0]),
        utilisation=float(made.utilisation[0]),
        bound_by=BOUNDS[int(made.bound_by[0])],
        domain=domain,
        sources=(
            {"what": family, "law": chosen.name, "data": chosen.data, "stack": chosen.stack,
             "domain": domain},
        ),
    )  # fmt: skip


def _one_of(option: str, value: str, known: tuple[str, ...]) -> int:
    if value not in known:
        raise InputError(f"--{option} {value}: expected {', '.join(known)}")
    return known.index(value)


def _sizes(least: int = 1, **values: int) -> None:
    for option, value in values.items():
        flag = option.replace("_", "-")
        if isinstance(value, bool) or not isinstance(value, int):
            raise InputError(f"--{flag} {value!r}: expected a whole number")
        if not least <= value <= MAX_SIZE:
            raise InputError(f"--{flag} {value}: expected {least} to {MAX_SIZE}")


def _gemm(dtype: str, *, m: int, n: int, k: int, b: int = 1, layout: str = "nn") -> KernelTable:
    _sizes(b=b, m=m, n=n, k=k)
    return gemm.table(b, m, n, k, layout=_one_of("layout", layout, LAYOUTS), precision=dtype)


def _elementwise(
    dtype: str, *, elements: int, inputs: int = 1, outputs: int = 1, ops_per_element: float = 1.0
) -> KernelTable:
    _sizes(elements=elements, outputs=outputs)
    _sizes(0, inputs=inputs)
    if not 0 <= ops_per_element <= 1e6:
        raise InputError(f"--ops-per-element {ops_per_element}: expected 0 to 1000000")
    return elementwise.table(elements, inputs, outputs, ops_per_element, precision=dtype)


def _copy(
    dtype: str, *, elements: int, inputs: int = 1, outputs: int = 1, ops_per_element: float = 0.0
) -> KernelTable:
    if inputs != 1 or outputs != 1 or ops_per_element:
        return _elementwise(
            dtype, elements=elements, inputs=inputs, outputs=outputs,
            ops_per_element=ops_per_element,
        )  # fmt: skip
    _sizes(elements=elements)
    return copy.table(elements, precision=dtype)


def _reduction(dtype: str, *, rows: int, columns: int, kind: str = "sum") -> KernelTable:
    _sizes(rows=rows, columns=columns)
    _one_of("kind", kind, REDUCTION_KINDS)
    return reduction.table(rows, columns, kind, precision=dtype)


def _conv(
    dtype: str,
    *,
    batch: int,
    in_channels: int,
    out_channels: int,
    size: int,
    kernel: int,
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
    direction: str = "fwd",
) -> KernelTable:
    _sizes(batch=batch, out=out_channels, size=size, kernel=kernel, stride=stride, groups=groups)
    _sizes(**{"in": in_channels})
    _sizes(0, padding=padding)
    if kernel > size + 2 * padding:
        raise InputError(f"--kernel {kernel}: larger than the padded input, {size + 2 * padding}")
    for option, channels in (("in", in_channels), ("out", out_channels)):
        if channels % groups:
            raise InputError(f"--groups {groups}: does not divide --{option} {channels}")
    return conv.table(
        batch, in_channels, out_channels, size, size, kernel, kernel, stride=stride,
        padding=padding, groups=groups, direction=_one_of("pass", direction, PASSES),
        precision=dtype,
    )  # fmt: skip


def _attention(
    dtype: str,
    *,
    heads: int,
    head_dim: int,
    q_len: int,
    kv_len: int,
    batch: int = 1,
    kv_heads: int | None = None,
    causal: bool = False,
    window: int = 0,
) -> KernelTable:
    shared = heads if kv_heads is None else kv_heads
    _sizes(batch=batch, heads=heads, kv_heads=shared, head_dim=head_dim, q_len=q_len, kv_len=kv_len)
    _sizes(0, window=window)
    if heads % shared:
        raise InputError(f"--kv-heads {shared}: does not divide --heads {heads}")
    return attention.table(
        batch, heads, shared, head_dim, q_len, kv_len, causal=causal, window=window,
        precision=dtype,
    )  # fmt: skip


def _embedding(dtype: str, *, tokens: int, width: int, rows: int) -> KernelTable:
    _sizes(tokens=tokens, width=width, rows=rows)
    return embedding.table(tokens, width, rows, precision=dtype)


_FAMILIES: Final[dict[str, Callable[..., KernelTable]]] = {
    "gemm": _gemm,
    "attention": _attention,
    "elementwise": _elementwise,
    "copy": _copy,
    "reduction": _reduction,
    "conv": _conv,
    "embedding": _embedding,
}
