"""Sorts, selections and scans over a whole tensor: several kernels each.

Large sorts are radix sorts (CUB): a histogram, a scan, then one pass over keys and values for each
eight bits of the key.
"""

from __future__ import annotations

from typing import Final

from tilecast.kernels import index, reduction
from tilecast.kernels.formula import ceil_div
from tilecast.kernels.rules.call import Call, precision_of, rule, unique_bytes
from tilecast.kernels.rules.copies import fill, move
from tilecast.kernels.rules.pointwise import pointwise
from tilecast.kernels.rules.reductions import reduce, row_stride
from tilecast.kernels.table import Kernel
from tilecast.precision import STORAGE_BITS, itemsize
from tilecast.workload.graph import Tensor

#: Bits of the key that one pass of a radix sort orders.
RADIX_BITS: Final = 8
#: Longest row that is sorted in one thread block (`should_use_small_sort` in ATen's Sort.h).
SMALL_SORT: Final = 4096


def radix_sort(count: int, key_bits: int, key_bytes: float, value_bytes: float) -> list[Kernel]:
    """Kernels that sort `count` pairs by `key_bits` of their keys."""
    keys, pairs = count * key_bytes, count * (key_bytes + value_bytes)
    passes = ceil_div(max(1, key_bits), RADIX_BITS)
    bins = Tensor((passes << RADIX_BITS,), "int32")
    one_pass = index.kernel(
        count, scatter=True, itemsize=key_bytes, read=pairs, written=pairs, name="radix_sort_pass"
    )
    return [
        reduction.kernel(
            1, count, "sum", itemsize=key_bytes, read=keys, written=unique_bytes(bins),
            name="radix_sort_histogram",
        ),
        reduction.kernel(
            passes, 1 << RADIX_BITS, "cumsum", read=unique_bytes(bins), written=unique_bytes(bins),
            name="radix_sort_scan",
        ),
        *[one_pass] * passes,
    ]  # fmt: skip


def nonzero_kernels(mask: Tensor, coordinates: Tensor | None = None) -> list[Kernel]:
    """Count what is set, pick the positions, and turn them into (rows, rank) coordinates."""
    dims = tuple(range(len(mask.shape)))
    rows = mask.elements if coordinates is None else coordinates.shape[0]
    flat = Tensor((rows,), "int64")
    kernels = [
        reduce("nonzero_count", "sum", mask, (Tensor((), "int32"),), dims),
        reduction.kernel(
            1, max(1, mask.elements), "cumsum", itemsize=itemsize(mask.dtype),
            read=unique_bytes(mask), written=unique_bytes(flat), name="nonzero_select",
        ),
    ]  # fmt: skip
    if len(mask.shape) > 1:
        spread = Tensor((rows, len(mask.shape)), "int64")
        kernels.append(pointwise("nonzero_coordinates", (flat,), (spread,), 1.0))
    return kernels


@rule("nonzero", "argwhere", "nonzero_static")
def nonzero(call: Call) -> list[Kernel]:
    """A count (which the host reads), a selection, and coordinates."""
    return nonzero_kernels(call.inputs[0], call.outputs[0] if call.outputs else None)


@rule("masked_select")
def masked_select(call: Call) -> list[Kernel]:
    """Positions of the mask, then a gather."""
    source, mask = call.inputs[:2]
    out = call.outputs[0]
    flat = Tensor((mask.elements,), mask.dtype)
    gather = index.kernel(
        out.elements, precision=precision_of(out), itemsize=itemsize(source.dtype),
        written=unique_bytes(out),
    )  # fmt: skip
    return [*nonzero_kernels(flat), gather]


@rule("sort", "argsort", "msort", "sort_stable")
def sort(call: Call) -> list[Kernel]:
    """Values and positions: in one thread block for short rows, else a radix sort."""
    source = call.inputs[0]
    dim = int(call.attr("dim", -1)) % max(1, len(source.shape))
    columns = source.shape[dim] if source.shape else 1
    rows = source.elements // max(1, columns)
    places = Tensor(source.shape, "int64")
    values = Tensor(source.shape, source.dtype)
    if columns <= SMALL_SORT:
        both = unique_bytes(values) + unique_bytes(places)
        return [
            move(source, values),
            fill(places, "sort_positions"),
            reduction.kernel(
                rows, columns, "sort", inner=row_stride(source, (dim,)) if source.shape else 1,
                precision=precision_of(source), itemsize=itemsize(source.dtype), read=both,
                written=both,
            ),
        ]  # fmt: skip
    bits = STORAGE_BITS[source.dtype]
    return [
        fill(places, "sort_positions"),
        *radix_sort(source.elements, bits, bits / 8, itemsize("int64")),
    ]


@rule("topk", "kthvalue", "median", "nanmedian", "mode")
def topk(call: Call) -> list[Kernel]:
    """A selection by radix, and a sort of what was selected."""
    source = call.inputs[0]
    dim = int(call.attr("dim", -1)) % max(1, len(source.shape))
    columns = source.shape[dim] if source.shape else 1
    rows = source.elements // max(1, columns)
    size = itemsize(source.dtype)
    kernels = [
        reduction.kernel(
            rows, columns, "topk", inner=row_stride(source, (dim,)) if source.shape else 1,
            precision=precision_of(source), itemsize=size, read=unique_bytes(source),
            written=call.written,
        )
    ]  # fmt: skip
    chosen = call.outputs[0].elements // max(1, rows) if call.outputs else 1
    if call.name == "topk" and call.attr("sorted", True) and chosen > 1:
        kernels.append(
            reduction.kernel(
                rows, chosen, "sort", precision=precision_of(source), itemsize=size,
                read=call.written, written=call.written, name="topk_sort",
            )
        )  # fmt: skip
    return kernels


@rule("histc", "bincount", "histogram")
def histogram(call: Call) -> list[Kernel]:
    """Range of the values, zeroed bins, then one addition for each element."""
    source, bins = call.inputs[0], call.outputs[0]
    dims = tuple(range(len(source.shape)))
    return [
        reduce("aminmax", "sum", source, (Tensor((2,), source.dtype),), dims),
        fill(bins),
        index.kernel(
            source.elements, scatter=True, adds=True, itemsize=itemsize(source.dtype),
            read=unique_bytes(source), written=unique_bytes(bins), name="histogram",
        ),
    ]  # fmt: skip


@rule("_unique2", "unique_dim", "unique_consecutive", "unique", "_unique")
def unique(call: Call) -> list[Kernel]:
    """A sort, comparisons of neighbours, and a selection."""
    source = call.inputs[0]
    bits = STORAGE_BITS[source.dtype]
    flat = Tensor((source.elements,), source.dtype)
    differs = Tensor((source.elements,), "bool")
    return [
        fill(Tensor((source.elements,), "int64"), "sort_positions"),
        *radix_sort(source.elements, bits, bits / 8, itemsize("int64")),
        pointwise("ne", (flat,), (differs,), 1.0),
        *nonzero_kernels(differs),
    ]


@rule("searchsorted", "bucketize")
def searchsorted(call: Call) -> list[Kernel]:
    """One binary search for each value."""
    out = call.outputs[0]
    boundaries = max(2, min(t.elements for t in call.inputs))
    steps = float(boundaries.bit_length())
    return [pointwise(call.name, call.inputs, (out,), steps, call.read)]


@rule("randperm", "multinomial")
def random_choice(call: Call) -> list[Kernel]:
    """Random keys, then a sort of them."""
    out = call.outputs[0]
    size = max([t.elements for t in call.inputs] + [out.elements])
    keys = Tensor((size,), "int32")
    return [
        pointwise("random", (), (keys,), 1.0),
        *radix_sort(size, STORAGE_BITS["int32"], itemsize("int32"), itemsize("int64")),
    ]
