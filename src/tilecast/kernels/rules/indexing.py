"""Embeddings, gathers and scatters."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilecast.kernels import embedding, index, reduction
from tilecast.kernels.formula import ceil_div
from tilecast.kernels.rules.call import Call, precision_of, rule, unique_bytes
from tilecast.kernels.rules.copies import fill, move
from tilecast.kernels.rules.pointwise import pointwise
from tilecast.kernels.rules.sorting import nonzero_kernels, radix_sort
from tilecast.kernels.table import Kernel
from tilecast.precision import STORAGE_BITS, itemsize
from tilecast.workload.graph import Tensor

#: Most indices whose dense embedding gradient is made without a sort (ATen's Embedding.cu).
UNSORTED_INDICES: Final = 3072
#: Rows of one segment that a thread block adds up (`NROWS_PER_THREAD` in EmbeddingBackwardKernel).
ROWS_PER_PARTIAL: Final = 10


@rule("embedding")
def embedding_forward(call: Call) -> list[Kernel]:
    """One gather of rows."""
    weight, indices = call.inputs[:2]
    return [
        embedding.kernel(
            indices.elements, weight.shape[1], weight.shape[0], precision=precision_of(weight),
            itemsize=itemsize(weight.dtype), index_bytes=itemsize(indices.dtype),
        )
    ]  # fmt: skip


@rule("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(call: Call) -> list[Kernel]:
    """A gather of rows, added up by bag."""
    weight, indices = call.inputs[:2]
    out = call.outputs[0]
    made = embedding.kernel(
        indices.elements, weight.shape[1], weight.shape[0], precision=precision_of(weight),
        itemsize=itemsize(weight.dtype), index_bytes=itemsize(indices.dtype),
    )  # fmt: skip
    additions = embedding.operations(indices.elements, weight.shape[1], True)
    return [
        replace(made, name="embedding_bag", flops=float(additions), bytes_written=unique_bytes(out))
    ]


@rule("embedding_dense_backward", "_embedding_bag_backward", "_embedding_bag_dense_backward")
def embedding_dense_backward(call: Call) -> list[Kernel]:
    """Zeros, then rows added up by index: directly for few indices, else after a sort.

    Sorted, the indices fall into segments of one row each. Kernels find the segments, cut long
    ones into partial sums, compute those, and add them into the table.
    """
    gradient, indices = call.inputs[:2]
    out = call.outputs[0]
    rows, width = out.shape[0], out.shape[-1]
    count = indices.elements
    size, index_size = itemsize(gradient.dtype), itemsize(indices.dtype)
    add = embedding.kernel(
        count, width, rows, backward=True, precision=precision_of(gradient), itemsize=size,
        index_bytes=index_size,
    )  # fmt: skip
    if count <= UNSORTED_INDICES:
        return [fill(out), add]
    segments = min(count, rows)
    partials = max(segments, ceil_div(count, ROWS_PER_PARTIAL))
    positions = Tensor((count,), indices.dtype)
    offsets = Tensor((segments,), indices.dtype)
    starts = Tensor((partials,), indices.dtype)
    sums = Tensor((partials, width), "float32" if size < 4 else gradient.dtype)
    return [
        fill(positions, "arange"),
        *radix_sort(count, max(1, (rows - 1).bit_length()), index_size, index_size),
        fill(out),
        fill(positions, "arange"),
        reduction.kernel(
            1, count, "cumsum", itemsize=index_size, read=2 * unique_bytes(positions),
            written=unique_bytes(offsets), name="unique_by_key",
        ),
        pointwise("segment_partials", (offsets,), (offsets,), 2.0),
        reduction.kernel(
            1, segments, "cumsum", itemsize=index_size, read=unique_bytes(offsets),
            written=unique_bytes(offsets), name="scan",
        ),
        pointwise("partial_offsets", (offsets, offsets), (starts,), 1.0),
        replace(
            add,
            bytes_read=add.bytes_read + unique_bytes(starts),
            bytes_written=unique_bytes(sums),
        ),
        index.kernel(
            segments * width, width, scatter=True, precision=precision_of(gradient),
            itemsize=size, read=unique_bytes(sums) + unique_bytes(offsets),
            written=segments * width * size, adds=True, name="embedding_backward_sum",
        ),
    ]  # fmt: skip


def _positions(
    source: Tensor, indices: tuple[Tensor, ...], moved: int
) -> tuple[list[Kernel], tuple[Tensor, ...]]:
    """Indices as integers, and the kernels that turn boolean masks among them into those.

    A mask that covers some dimensions of `source` selects as many rows of the others as make up
    the `moved` elements.
    """
    kernels: list[Kernel] = []
    places: list[Tensor] = []
    for tensor in indices:
        if tensor.dtype not in ("bool", "uint8"):
            places.append(tensor)
            continue
        rows = max(1, moved * tensor.elements // max(1, source.elements))
        rank = max(1, len(tensor.shape))
        kernels += nonzero_kernels(tensor, Tensor((rows, rank), "int64"))
        places += [Tensor((rows,), "int64")] * rank
    return kernels, tuple(places)


def _width(moved: int, places: tuple[Tensor, ...]) -> int:
    named = max((tensor.elements for tensor in places), default=1)
    return max(1, moved // max(1, named))


@rule("index", "_unsafe_index", "take", "index_select", "gather", "take_along_dim")
def gather(call: Call) -> list[Kernel]:
    """One gather; boolean masks are turned into positions first."""
    source, *rest = call.inputs
    out = call.outputs[0]
    moved = out.elements
    masks, places = _positions(source, tuple(rest), moved)
    size = itemsize(out.dtype)
    read = min(moved, source.elements) * size + sum(map(unique_bytes, places))
    return [
        *masks,
        index.kernel(
            moved, _width(moved, places), precision=precision_of(out), itemsize=size, read=read,
            written=unique_bytes(out), name=call.name,
        ),
    ]  # fmt: skip


def _scatter(
    call: Call, target: Tensor, places: tuple[Tensor, ...], source: Tensor | None, moved: int,
    adds: bool,
) -> Kernel:  # fmt: skip
    size = itemsize(target.dtype)
    read = sum(map(unique_bytes, places)) + (unique_bytes(source) if source is not None else 0.0)
    written = min(moved, target.elements) * size
    return index.kernel(
        moved, _width(moved, places), scatter=True, precision=precision_of(target),
        itemsize=size, read=read + (written if adds else 0.0), written=written, adds=adds,
        name=call.name.strip("_"),
    )  # fmt: skip


def _into_copy(call: Call) -> list[Kernel]:
    """A functional scatter first copies its input."""
    return [] if call.name.endswith("_") else [move(call.inputs[0], call.outputs[0])]


@rule("scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_",
      "put_", "put")  # fmt: skip
def scatter(call: Call) -> list[Kernel]:
    """One scatter by an index of the shape of what is written."""
    target, places, *values = call.inputs
    adds = "add" in call.name or "reduce" in call.name
    source = Tensor(places.shape, target.dtype) if values and values[0].elements > 1 else None
    return [
        *_into_copy(call),
        _scatter(call, target, (places,), source, places.elements, adds),
    ]


@rule("index_add", "index_add_", "index_copy", "index_copy_", "index_reduce_", "index_fill_",
      "index_fill")  # fmt: skip
def index_add(call: Call) -> list[Kernel]:
    """One scatter of whole slices along a dimension."""
    target, places, *values = call.inputs
    source = values[0] if values and values[0].shape else None
    dim = int(call.attr("dim", 0)) % max(1, len(target.shape))
    length = target.shape[dim] if target.shape else 1
    moved = target.elements // max(1, length) * places.elements
    adds = "add" in call.name or "reduce" in call.name
    return [*_into_copy(call), _scatter(call, target, (places,), source, moved, adds)]


@rule("index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put")
def index_put(call: Call) -> list[Kernel]:
    """One scatter, or when it accumulates: linear places, a sort of them, and sums by place."""
    target, *rest = call.inputs
    indices, values = tuple(rest[:-1]), rest[-1]
    if values.elements > 1:
        moved = values.elements
    else:
        moved = max((t.elements for t in indices), default=1)
    masks, places = _positions(target, indices, moved)
    kernels = [*_into_copy(call), *masks]
    if not call.attr("accumulate", False):
        return [*kernels, _scatter(call, target, places, values, moved, False)]
    count = max((t.elements for t in places), default=1)
    linear = Tensor((count,), "int64")
    size = itemsize(linear.dtype)
    return [
        *kernels,
        *[pointwise("linear_index", (linear,), (linear,), 2.0)] * max(1, len(places)),
        fill(linear, "arange"),
        *radix_sort(count, STORAGE_BITS[linear.dtype], size, size),
        _scatter(call, target, (linear, linear), values, moved, True),
    ]


@rule("masked_scatter", "masked_scatter_")
def masked_scatter(call: Call) -> list[Kernel]:
    """Positions of the mask by a scan, then a scatter."""
    target, mask, source = call.inputs[:3]
    scan = reduction.kernel(
        1, mask.elements, "cumsum", itemsize=itemsize("int64"), read=unique_bytes(mask),
        written=mask.elements * itemsize("int64"), name="cumsum",
    )  # fmt: skip
    places = Tensor((mask.elements,), "int64")
    return [
        *_into_copy(call),
        scan,
        _scatter(call, target, (places,), source, mask.elements, False),
    ]
