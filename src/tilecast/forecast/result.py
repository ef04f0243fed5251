"""The answer: how long, why, how sure, and from what."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class KernelShare:
    """Time of one distinct kernel in a forecast.

    Attributes:
        name: kernel name. shape: its dimensions by name.
        count: launches. latency_s: of all launches together. share: of the GPU's busy time.
        bound_by: `compute`, `memory` or `launch`.
        roofline_share: bound over forecast, the part of the machine's limit that is reached.
    """

    name: str
    family: str
    shape: str
    count: int
    latency_s: float
    share: float
    bound_by: str
    roofline_share: float


@dataclass(frozen=True, slots=True)
class ModuleShare:
    """GPU time of the modules of one path; indices of a stack of layers are one `*`."""

    module: str
    launches: int
    latency_s: float
    share: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecast of one model on one GPU.

    Attributes:
        latency_s: start of the host's work to the end of the last kernel, seconds.
        interval_s: low and high at `level`.
        phases_s: `forward`, `backward`, `optimizer`, those that ran; they add up to `latency_s`.
        host_s: what the host needs to issue everything. gpu_busy_s: sum of kernel times.
        flops: multiply-adds of GEMM, convolution and attention, counted as two.
        bytes: unique bytes that the kernels touch, summed.
        mfu: flops over latency and the GPU's dense peak at the compute precision.
        bound_by: where most of the time goes: `compute`, `memory`, `launch` or `host`.
        families_s: GPU time of each kernel family.
        kernels, modules: where the GPU's time goes, largest first.
        estimated_ops: operators that no family describes, priced by their bytes:
            `{op, count, share}`.
        sources: `{what, law, data, stack, domain}` of each family's law and of the host's.
    """

    model: str
    gpu: str
    mode: str
    dtype: str
    batch: int
    seq: int | None
    context: int
    latency_s: float
    interval_s: tuple[float, float]
    level: float
    phases_s: dict[str, float]
    host_s: float
    gpu_busy_s: float
    launches: int
    parameters: int
    flops: float
    bytes: float
    mfu: float
    bound_by: str
    families_s: dict[str, float]
    kernels: tuple[KernelShare, ...]
    modules: tuple[ModuleShare, ...]
    estimated_ops: tuple[dict[str, Any], ...] = ()
    sources: tuple[dict[str, str], ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The forecast as plain JSON values."""
        return asdict(self)
