"""What a batch will take: a profile read at execution sizes, times the live correction."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from harness_core.correction import Correction

if TYPE_CHECKING:
    from harness_core.profile import LatencyProfile


class Timing:
    """Corrected latencies of one (model, bucket); rows up to ``max_rows``.

    ``raw_ns[b]`` is l(next execution size >= b), with ``raw_ns[0] = 0``: a table, since every decision reads it many times.
    """

    __slots__ = ("correction", "max_rows", "profile", "raw_ns", "sizes")

    def __init__(self, profile: LatencyProfile, max_rows: int, sizes: tuple[int, ...]) -> None:
        self.profile = profile
        self.max_rows = max_rows
        self.sizes = sizes
        self.correction = Correction()
        self.raw_ns = [0] + [profile.latency_ns(self.execution_size(rows)) for rows in range(1, max_rows + 1)]

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
