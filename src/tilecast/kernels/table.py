"""Kernels as a struct of arrays: what every law takes.

One row is one distinct GPU kernel launch (a name, a shape, a precision). The numbers of a row are
what the work *is* (shape, FLOPs, bytes); what a GPU makes of them (tiles, waves, time) is a law's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tilecast.precision import PRECISION_CODE, PRECISIONS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Kernel families, in the order of their codes.
FAMILIES: Final[tuple[str, ...]] = (
    "gemm", "elementwise", "reduction", "conv", "pool", "embedding", "index", "copy",
    "attention", "other",
)  # fmt: skip
FAMILY_CODE: Final[dict[str, int]] = {name: code for code, name in enumerate(FAMILIES)}

#: What each column of `dims` means, by family. Unused columns are 0.
DIM_NAMES: Final[dict[str, tuple[str, ...]]] = {
    # layout: 0 NN, 1 NT, 2 TN, 3 TT (is A, is B stored transposed); epilogue: 0 none, 1 bias
    "gemm": ("batch", "m", "n", "k", "layout", "epilogue"),
    # transposed: an operand and the result differ in which dimension is contiguous
    "elementwise": ("elements", "inputs", "outputs", "ops_per_element", "transposed"),
    # kind: index in REDUCTION_KINDS; a row of `columns` elements is reduced; `inner` is the stride
    # between its elements (1 = contiguous rows)
    "reduction": ("rows", "columns", "kind", "inner"),
    # pass: 0 forward, 1 data gradient, 2 weight gradient
    "conv": ("batch", "in", "out", "height", "width", "kernel_h", "kernel_w",
             "stride", "padding", "dilation", "groups", "pass"),
    "pool": ("batch", "channels", "height", "width", "kernel", "stride", "padding", "backward"),
    "embedding": ("tokens", "width", "rows", "backward"),
    "index": ("elements", "width", "scatter"),
    "copy": ("elements", "transposed"),
    "attention": ("batch", "heads", "kv_heads", "head_dim", "q_len", "kv_len", "causal",
                  "window", "backward"),
    "other": ("elements",),
}  # fmt: skip
DIMS: Final[int] = max(map(len, DIM_NAMES.values()))

#: Reductions that have formulas of their own, in the order of their codes.
REDUCTION_KINDS: Final[tuple[str, ...]] = (
    "sum", "softmax", "log_softmax", "layer_norm", "rms_norm", "batch_norm", "group_norm",
    "softmax_backward", "log_softmax_backward", "layer_norm_backward", "rms_norm_backward",
    "batch_norm_backward", "group_norm_backward", "nll_loss", "argmax", "topk", "sort", "cumsum",
    "variance", "dot",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel launch.

    Attributes:
        name: what a profile would group by (`gemm_nt`, `elementwise_gelu`, `softmax`).
        family: one of `FAMILIES`.
        precision: what the arithmetic runs in.
        dims: by `DIM_NAMES[family]`, padded with zeros to `DIMS`.
        flops: floating-point operations (a multiply-add is two).
        bytes_read, bytes_written: unique bytes in and out (each operand once).
        itemsize: bytes of one element of its main operand.
        estimated: True when no family describes the op: it is priced by its bytes only.
    """

    name: str
    family: str
    precision: str
    dims: tuple[int, ...]
    flops: float
    bytes_read: float
    bytes_written: float
    itemsize: float = 4.0
    estimated: bool = False

    @property
    def footprint(self) -> float:
        """Unique bytes touched."""
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True, slots=True)
class KernelTable:
    """n distinct kernels as arrays of length n.

    Attributes:
        family: codes into `FAMILIES` (int8).
        precision: codes into `PRECISIONS` (int8).
        dims: (n, DIMS) int64, meaning by `DIM_NAMES`.
        flops, bytes_read, bytes_written, itemsize: as in `Kernel` (float64).
        warm: 0 to 1, how much of what it reads may already be in the L2 when it starts, as far
            as it fits there (0 cold, 1 when the same tensors were just used).
        estimated: priced by bytes only (bool).
        name: codes into `names` (int32).
        names: distinct kernel names.
    """

    family: NDArray[np.int8]
    precision: NDArray[np.int8]
    dims: Ints
    flops: Floats
    bytes_read: Floats
    bytes_written: Floats
    itemsize: Floats
    warm: Floats
    estimated: NDArray[np.bool_]
    name: NDArray[np.int32]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.flops)

    @property
    def footprint(self) -> Floats:
        """Unique bytes touched (n,)."""
        return self.bytes_read + self.bytes_written

    def name_of(self, row: int) -> str:
        """Kernel name of one row."""
        return self.names[int(self.name[row])]

    def family_of(self, row: int) -> str:
        """Family of one row."""
        return FAMILIES[int(self.family[row])]

    def dim(self, family: str, name: str) -> Ints:
        """One column of `dims` by the name it has in `family` (n,)."""
        return self.dims[:, DIM_NAMES[family].index(name)]

    def rows_of(self, family: str) -> NDArray[np.intp]:
        """Positions of the rows of one family."""
        return np.flatnonzero(self.family == FAMILY_CODE[family])

    def take(self, rows: NDArray[Any] | slice) -> KernelTable:
        """A table of some rows, in that order."""
        return KernelTable(
            self.family[rows], self.precision[rows], self.dims[rows], self.flops[rows],
            self.bytes_read[rows], self.bytes_written[rows], self.itemsize[rows],
            self.warm[rows], self.estimated[rows], self.name[rows], self.names,
        )  # fmt: skip

    def with_warm(self, warm: ArrayLike) -> KernelTable:
        """The same kernels with another cache state (scalar or (n,))."""
        state = np.broadcast_to(np.asarray(warm, dtype=np.float64), (len(self),))
        return KernelTable(
            self.family, self.precision, self.dims, self.flops, self.bytes_read,
            self.bytes_written, self.itemsize, state, self.estimated, self.name, self.names,
        )  # fmt: skip

    @staticmethod
    def from_kernels(kernels: Sequence[Kernel], warm: float = 0.0) -> KernelTable:
        """A table with one row for each kernel given, in order."""
        names: dict[str, int] = {}
        codes = [names.setdefault(kernel.name, len(names)) for kernel in kernels]
        dims = np.zeros((len(kernels), DIMS), dtype=np.int64)
        for row, kernel in enumerate(kernels):
            dims[row, : len(kernel.dims)] = kernel.dims
        return KernelTable(
            family=np.array([FAMILY_CODE[k.family] for k in kernels], dtype=np.int8),
            precision=np.array([PRECISION_CODE[k.precision] for k in kernels], dtype=np.int8),
            dims=dims,
            flops=np.array([k.flops for k in kernels], dtype=np.float64),
            bytes_read=np.array([k.bytes_read for k in kernels], dtype=np.float64),
            bytes_written=np.array([k.bytes_written for k in kernels], dtype=np.float64),
            itemsize=np.array([k.itemsize for k in kernels], dtype=np.float64),
            warm=np.full(len(kernels), warm),
            estimated=np.array([k.estimated for k in kernels], dtype=np.bool_),
            name=np.array(codes, dtype=np.int32),
            names=tuple(names),
        )

    @staticmethod
    def from_columns(
        family: str,
        name: str,
        dims: Mapping[str, ArrayLike],
        *,
        flops: ArrayLike,
        bytes_read: ArrayLike,
        bytes_written: ArrayLike,
        precision: str | Sequence[str] = "fp32",
        itemsize: ArrayLike = 4.0,
        warm: ArrayLike = 0.0,
    ) -> KernelTable:
        """A table of one family from columns (scalars are repeated); `dims` by name."""
        work = np.atleast_1d(np.asarray(flops, dtype=np.float64))
        rows = len(work)

        def column(values: ArrayLike) -> Floats:
            return np.broadcast_to(np.asarray(values, dtype=np.float64), (rows,)).copy()

        table_dims = np.zeros((rows, DIMS), dtype=np.int64)
        for key, values in dims.items():
            table_dims[:, DIM_NAMES[family].index(key)] = np.asarray(values)
        codes = (
            PRECISION_CODE[precision]
            if isinstance(precision, str)
            else [PRECISION_CODE[p] for p in precision]
        )
        return KernelTable(
            family=np.full(rows, FAMILY_CODE[family], dtype=np.int8),
            precision=np.broadcast_to(np.asarray(codes, dtype=np.int8), (rows,)).copy(),
            dims=table_dims,
            flops=work,
            bytes_read=column(bytes_read),
            bytes_written=column(bytes_written),
            itemsize=column(itemsize),
            warm=column(warm),
            estimated=np.zeros(rows, dtype=np.bool_),
            name=np.zeros(rows, dtype=np.int32),
            names=(name,),
        )

    @staticmethod
    def concatenate(tables: Sequence[KernelTable]) -> KernelTable:
        """One table with the rows of several, in order."""
        names: dict[str, int] = {}
        codes = []
        for table in tables:
            of_table = np.array([names.setdefault(n, len(names)) for n in table.names], np.int32)
            codes.append(of_table[table.name])
        columns = {
            column: np.concatenate([getattr(table, column) for table in tables])
            for column in ("family", "precision", "dims", "flops", "bytes_read", "bytes_written",
                           "itemsize", "warm", "estimated")
        }  # fmt: skip
        return KernelTable(**columns, name=np.concatenate(codes), names=tuple(names))

    @property
    def precision_names(self) -> list[str]:
        """Precision of each row, by name."""
        return [PRECISIONS[int(code)] for code in self.precision]


@dataclass(frozen=True, slots=True)
class Launches:
    """The launch sequence of a graph over a table of its distinct kernels.

    Attributes:
        table: distinct kernels.
        kernel: row of `table` of each launch (launches,), in the order the host issues them.
        op: index in the graph's `ops` of each launch (launches,).
    """

    table: KernelTable
    kernel: NDArray[np.int32]
    op: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.kernel)
