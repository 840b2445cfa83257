"""Slots in shared memory: for each, a region for a batch's inputs and one for its outputs, each with a generation counter.

The memory is a memfd: no name in a file system, so nothing is left behind when processes die, and no dependence on the size
of ``/dev/shm``. It is mapped once at full size; pages exist only once they are written to.

A slot's generation is raised with every batch. The parent writes it before the inputs' descriptor is sent, the child compares
it, writes it behind the outputs, and the parent compares it again: a descriptor that does not belong to what lies in the slot
is an error, never somebody else's numbers. The parent takes a batch back by writing ``WITHDRAWN`` over its generation; the
child looks once, before it starts.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

PAGE = 4096
WITHDRAWN = 0
"""Generation that no batch has: written over a batch's own, it takes the batch back."""
ALIGNMENT = 64
"""Start of every array: the largest vector and cache line in use."""


class Side(IntEnum):
    """The two regions of a slot; the value is its position."""

    INPUTS = 0
    OUTPUTS = 1


class SlotMemory:
    """``slots`` slots of two regions of ``region_bytes`` bytes each, over the memfd ``fd``.

    Layout: one page of generation counters (uint64, two a slot), then the regions, each on a page boundary.
    """

    def __init__(self, fd: int, slots: int, region_bytes: int) -> None:
        self.fd = fd
        self.slots = slots
        self.region_bytes = _round_up(region_bytes, PAGE)
        self._map = mmap.mmap(fd, PAGE + slots * 2 * self.region_bytes)
        self._bytes: npt.NDArray[np.uint8] = np.frombuffer(self._map, dtype=np.uint8)
        self._generations: npt.NDArray[np.uint64] = self._bytes[:PAGE].view(np.uint64)

    @classmethod
    def create(cls, slots: int, region_bytes: int) -> SlotMemory:
        """New memory, nothing in it yet."""
        fd = os.memfd_create("harness-slots", os.MFD_CLOEXEC)
        try:
            os.ftruncate(fd, PAGE + slots * 2 * _round_up(region_bytes, PAGE))
            return cls(fd, slots, region_bytes)
        except BaseException:
            os.close(fd)
            raise

    def region(self, slot: int, side: Side) -> npt.NDArray[np.uint8]:
        """The bytes of one region."""
        start = PAGE + (2 * slot + side) * self.region_bytes
        return self._bytes[start : start + self.region_bytes]

    def generation(self, slot: int, side: Side) -> int:
        """The generation last written to a region."""
        return int(self._generations[2 * slot + side])

    def set_generation(self, slot: int, side: Side, generation: int) -> None:
        """Mark a region as holding the data of ``generation``."""
        self._generations[2 * slot + side] = generation

    def close(self) -> None:
        """Unmap. Views that are still held keep the mapping until they are dropped."""
        del self._bytes, self._generations
        with contextlib.suppress(BufferError):
            self._map.close()
        os.close(self.fd)


def _round_up(size: int, step: int) -> int:
    return -(-size // step) * step


class Cursor:
    """Hands out aligned places in a region, front to back."""

    def __init__(self, region: npt.NDArray[np.uint8], what: str) -> None:
        self._region = region
        self._what = what
        self._end = 0

    def take(self, size: int, name: str) -> tuple[int, npt.NDArray[np.uint8]]:
        """Offset and bytes of a new place.

        Raises:
            ValueError: the region is full; names the tensor, the need and the limit.
        """
        start = _round_up(self._end, ALIGNMENT)
        if size < 0 or start + size > len(self._region):
            raise ValueError(
                f"{self._what} do not fit into the executor's slot: with '{name}' they need {start + size} bytes, the limit is {len(self._region)}"
            )
        self._end = start + size
        return start, self._region[start : start + size]


def view(
    region: npt.NDArray[np.uint8], offset: int, size: int, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    """An array over part of a region, without a copy.

    Raises:
        ValueError: the place lies outside the region, or its size is not that of the shape.
    """
    if offset < 0 or size < 0 or offset + size > len(region):
        raise ValueError(f"bytes {offset} to {offset + size} lie outside a region of {len(region)}")
    return region[offset : offset + size].view(dtype).reshape(shape)
