"""What a batch will take: a profile read at execution sizes, times the live correction."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from harness_core.correction import Correction

if TYPE_CHECKING:
    from harness_core.profile import LatencyProfile


THRIFT = 0.9
"""Measured points scatter, and every batch costs a hand-over that no profile shows: less than a tenth is no reason for a smaller one."""


class Timing:
    """Corrected latencies of one (model, bucket); rows up to ``max_rows``.

    ``raw_ns[b]`` is l(next execution size >= b), with ``raw_ns[0] = 0``: a table, since every decision reads it many times.
    ``thrifty[b]`` is the most rows up to b with the best throughput r/l(r) of them all, give or take a tenth: b itself where
    l(b)/b falls, fewer where a batch of 9 would run as 16, or where l(b)/b rises again (a CPU whose cache is full).
    """

    __slots__ = ("correction", "max_rows", "profile", "raw_ns", "sizes", "thrifty")

    def __init__(self, profile: LatencyProfile, max_rows: int, sizes: tuple[int, ...]) -> None:
        self.profile = profile
        self.max_rows = max_rows
        self.sizes = sizes
        self.correction = Correction()
        self.raw_ns = [0] + [profile.latency_ns(self.execution_size(rows)) for rows in range(1, max_rows + 1)]
        self.thrifty = _thrifty(self.raw_ns)

    def execution_size(self, rows: int) -> int:
        """The size the model runs at for a batch of ``rows``; rows above every declared size run as they are."""
        index = bisect_left(self.sizes, rows)
        return self.sizes[index] if index < len(self.sizes) else rows

    def need_ns(self, rows: int) -> int:
        """f·l(rows): what is promised."""
        return int(self.raw_ns[rows] * self.correction.factor) + 1

    def expected_ns(self, rows: int) -> int:
        """r·l(rows): what is expected."""
        return int(self.raw_ns[rows] * self.correction.ratio) + 1

    def fit(self, budget_ns: int) -> int:
        """Most rows r with ``need_ns(r) <= budget_ns``; 0: not even one. O(log max_rows)."""
        if budget_ns <= 0:
            return 0
        raw_ns = self.raw_ns
        # One division finds the place, give or take a rounding; need_ns, which alone defines what fits, corrects it.
        rows = bisect_right(raw_ns, budget_ns / self.correction.factor + 1) - 1
        while rows and self.need_ns(rows) > budget_ns:
            rows = bisect_left(raw_ns, raw_ns[rows]) - 1
        return rows


def _thrifty(raw_ns: list[int]) -> list[int]:
    best = [0]
    highest = 0.0
    for rows in range(1, len(raw_ns)):
        throughput = rows / raw_ns[rows]
        highest = max(highest, throughput)
        best.append(rows if throughput >= THRIFT * highest else best[-1])
    return best
