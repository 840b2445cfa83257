"""Live correction of a latency profile (scheduling.md §2, step 8).

r = EWMA(0.3) of the median of the last three measured / profile, each ratio clipped at 2. The reference has EWMA(0.05) of each ratio:
where a busy host makes batches slow for half a second, that learns it when it is over, and counts the swing as noise for long after.
The median keeps a lone straggler out of r. The planner multiplies the profile by a safety factor f over r. The
reference offers f = r·1.10 or an online q98; here f = r + 2.5·d, d = EWMA(0.05) of the absolute deviation from r: with the
usual noise (cv 0.05, d about 0.04) that is the same 1.10 r, with more noise it grows as the quantile does, and on an
accelerator without noise it does not give ten percent of its capacity away. f never falls below 1.01 r.
"""

from __future__ import annotations

GAIN = 0.3
DEVIATION_GAIN = 0.05
RATIO_MAX = 2.0
"""One straggler must not talk the planner into refusing everything."""
DEVIATIONS = 2.5
DEVIATION_INITIAL = 0.04
"""Before the first batches: f = 1.10."""
MARGIN_MIN = 0.01


class Correction:
    """Ratio of what batches take to what their profile says. ``ratio`` for expectations, ``factor`` for promises."""

    __slots__ = ("_deviation", "_last", "factor", "ratio", "samples")

    def __init__(self) -> None:
        self.samples = 0
        self.ratio = 1.0
        self._deviation = DEVIATION_INITIAL
        self._last = (1.0, 1.0)
        self.factor = self._safe()

    def observe(self, measured_ns: int, profile_ns: int) -> None:
        """Take a batch's own run time and the uncorrected latency of its execution size."""
        ratio = min(measured_ns / profile_ns, RATIO_MAX)
        self._deviation += DEVIATION_GAIN * (abs(ratio - self.ratio) - self._deviation)
        before, last = self._last
        self._last = (last, ratio)
        self.ratio += GAIN * (sorted((before, last, ratio))[1] - self.ratio)
        self.samples += 1
        self.factor = self._safe()

    def _safe(self) -> float:
        return self.ratio + max(DEVIATIONS * self._deviation, MARGIN_MIN * self.ratio)
