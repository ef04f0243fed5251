"""A GPU as data: what its silicon offers, in SI units, each figure with its source."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tilecast.precision import PRECISIONS

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
PositiveInt = Annotated[int, Field(gt=0)]

#: Bytes that one SM's port to the L2 moves in a clock cycle: what holds on NVIDIA GPUs since
#: Volta (64 B/clk/SM, "Dissecting the NVIDIA Volta GPU architecture", arXiv 1804.06826, table 3).
#: Stands in where no L2 bandwidth was published.
L2_BYTES_PER_CLOCK_PER_SM = 64.0


class Link(BaseModel):
    """A wire that leaves the GPU.

    Attributes:
        bandwidth_bytes_per_s: in one direction, all lanes or bricks of this GPU together.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    bandwidth_bytes_per_s: Positive


class Microbenchmarks(BaseModel):
    """Published measurements of the GPU itself; each optional, each with its source.

    Attributes:
        large_gemm_flops: FLOP/s that a large GEMM reaches, by precision.
        copy_bandwidth_bytes_per_s: bytes read plus written per second by a large copy.
        launch_s: time of an empty kernel in a stream of launches.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    large_gemm_flops: dict[str, Positive] = Field(default_factory=dict)
    copy_bandwidth_bytes_per_s: Positive | None = None
    launch_s: Positive | None = None


class GPU(BaseModel):
    """What one GPU offers (one device as the driver shows it: one die of an MI250, say).

    Peaks are dense, at boost clock. `vector_flops` are the ordinary lanes', `matrix_flops` the
    tensor or matrix cores', by precision (`tilecast.precision.PRECISIONS`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    full_name: str = ""
    vendor: str
    architecture: str
    compute_capability: str = ""
    aliases: tuple[str, ...] = ()
    released: str = ""
    sms: PositiveInt
    base_clock_hz: Positive | None = None
    boost_clock_hz: Positive
    memory_bytes: Positive
    memory_bandwidth_bytes_per_s: Positive
    memory_kind: str = ""
    l2_bytes: Positive
    l2_bandwidth_bytes_per_s: Positive | None = None
    shared_memory_per_sm_bytes: Positive
    shared_memory_per_block_bytes: Positive
    registers_per_sm: PositiveInt
    max_threads_per_sm: PositiveInt
    max_blocks_per_sm: PositiveInt
    warp_size: PositiveInt = 32
    tdp_w: Positive
    process_nm: Positive
    vector_flops: dict[str, Positive]
    matrix_flops: dict[str, Positive] = Field(default_factory=dict)
    links: tuple[Link, ...] = ()
    microbenchmarks: Microbenchmarks = Microbenchmarks()
    sources: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> GPU:
        for field in ("vector_flops", "matrix_flops"):
            unknown = sorted(set(getattr(self, field)) - set(PRECISIONS))
            if unknown:
                known = ", ".join(PRECISIONS)
                raise ValueError(f"{field}: unknown precision {unknown[0]!r}, expected {known}")
        if "fp32" not in self.vector_flops:
            raise ValueError("vector_flops: fp32 is missing")
        if self.base_clock_hz is not None and self.base_clock_hz > self.boost_clock_hz:
            raise ValueError("base_clock_hz: must not exceed boost_clock_hz")
        return self

    @property
    def l2_bandwidth(self) -> float:
        """Bytes/s between the L2 and all SMs: as published, else SMs x 64 B x clock."""
        if self.l2_bandwidth_bytes_per_s is not None:
            return self.l2_bandwidth_bytes_per_s
        return self.sms * L2_BYTES_PER_CLOCK_PER_SM * self.boost_clock_hz

    def vector_peak(self, precision: str) -> float:
        """FLOP/s of the vector lanes; a precision that they lack runs as fp32 (or fp64's own)."""
        if precision in self.vector_flops:
            return self.vector_flops[precision]
        return self.vector_flops["fp32"]

    def matrix_peak(self, precision: str) -> float:
        """FLOP/s for GEMM-like work: the faster of matrix cores and vector lanes.

        A format that the GPU lacks runs in the next wider one that it has (fp8 weights are
        widened to 16 bits, tf32 is plain fp32), as libraries do.
        """
        widen = {
            "nvfp4": "mxfp4", "mxfp4": "mxfp8", "mxfp8": "fp8", "fp8-block": "fp8", "fp8": "fp16",
            "int4": "int8", "int8": "fp16", "bf16": "fp32", "fp16": "fp32", "tf32": "fp32",
        }  # fmt: skip
        at: str | None = precision
        while at is not None:
            peak = max(self.matrix_flops.get(at, 0.0), self.vector_flops.get(at, 0.0))
            if peak > 0:
                return peak
            at = widen.get(at)
        return self.vector_flops["fp32"]
