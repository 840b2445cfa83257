"""Where each member's rows lie in a merged batch (protocol.md §4). Index arithmetic only; tensors stay with the drivers."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def row_offsets(rows: Sequence[int]) -> list[int]:
    """First row of each member, and the batch's rows as the last element: [2, 1, 3] → [0, 2, 3, 6].

    Raises:
        ValueError: a member without rows, which could not be told from its neighbour.
    """
    for index, count in enumerate(rows):
        if count < 1:
            raise ValueError(f"member {index} has {count} rows, at least 1 is needed")
    return [0, *accumulate(rows)]


def row_slices(rows: Sequence[int]) -> list[slice]:
    """The slice of each member along axis 0, in the order of ``rows``; together they cover every row once."""
    offsets = row_offsets(rows)
    return [slice(start, end) for start, end in pairwise(offsets)]
