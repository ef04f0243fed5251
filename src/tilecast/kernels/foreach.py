"""Multi-tensor kernels: how many launches a `_foreach_*` or fused optimizer step takes.

PyTorch cuts every tensor of a list into chunks, gives each chunk to a thread block, and passes
addresses and the block's chunk as kernel arguments, which hold so many tensors and blocks. A
launch goes out when either limit is reached (`ATen/native/cuda/MultiTensorApply.cuh`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: Elements of a tensor that one thread block works on.
CHUNK: Final = 65536


@dataclass(frozen=True, slots=True)
class Limits:
    """What the arguments of one launch hold.

    Attributes:
        tensors: tensors of each list, by the number of lists (1 to 5).
        blocks: thread blocks.
    """

    tensors: tuple[int, int, int, int, int]
    blocks: int


#: Kernel arguments of 4 KB: PyTorch built with CUDA before 13, and ROCm.
SMALL_ARGUMENTS: Final = Limits((110, 64, 48, 36, 30), 320)
#: Kernel arguments of 32 KB: PyTorch built with CUDA 13 or later.
LARGE_ARGUMENTS: Final = Limits((770, 448, 336, 252, 210), 2240)


def launches(sizes: Sequence[int], lists: int, limits: Limits = SMALL_ARGUMENTS) -> list[int]:
    """Elements that each launch works on.

    Args:
        sizes: elements of each tensor of a list.
        lists: tensor lists that the kernel takes (1 to 5; results of its own count).
        limits: of one launch.

    Returns:
        One entry a launch; their sum is that of `sizes`.
    """
    most_tensors, most_blocks = limits.tensors[lists - 1], limits.blocks
    found: list[int] = []
    tensors = blocks = elements = 0
    for size in sizes:
        if not size:
            continue
        tensors += 1
        chunks = -(-size // CHUNK)
        left = size
        while chunks:
            taken = min(chunks, most_blocks - blocks)
            part = min(left, taken * CHUNK)
            chunks -= taken
            blocks += taken
            elements += part
            left -= part
            if blocks == most_blocks or (tensors == most_tensors and not chunks):
                found.append(elements)
                blocks = elements = 0
                tensors = 1 if chunks else 0  # a tensor that is cut goes on in the next launch
    if blocks:
        found.append(elements)
    return found
