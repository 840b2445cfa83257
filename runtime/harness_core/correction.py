"""Live correction of a latency profile (scheduling.md §2, step 8).

r = EWMA(0.05) of measured / profile, each ratio clipped at 2. The planner multiplies the profile by a safety factor f over r. The
reference offers f = r·1.10 or an online q98; here f = r + 2.5·d, d = EWMA(0.05) of the absolute deviation from r: with the
usual noise (cv 0.05, d about 0.04) that is the same 1.10 r, with more noise it grows as the quantile does, and on an
accelerator without noise it does not give ten percent of its capacity away. f never falls below 1.01 r.
"""

from __future__ import annotations

GAIN = 0.05
RATIO_MAX = 2.0
"""One straggler must not talk the planner into refusing everything."""
DEVIATIONS = 2.5
DEVIATION_INITIAL = 0.04
"""Before the first batches: f = 1.10."""
MARGIN_MIN = 0.01


class Correction:
    """Ratio of what batches take to what their profile says. ``ratio`` for expectations, ``factor`` for promises."""

    __slots__ = ("_deviation", "factor", "ratio", "samples")

    def __init__(self) -> None:
        self.samples = 0
        self.ratio = 1.0
        self._deviation = DEVIATION_INITIAL
        self.factor = self._safe()

    def observe(self, measured_ns: int, profile_ns: int) -> None:
        """Take a batch's own run time and the uncorrected latency of its execution size."""
        ratio = min(measured_ns / profile_ns, RATIO_MAX)
        self._deviation += GAIN * (abs(ratio - self.ratio) - self._deviation)
        self.ratio += GAIN * (ratio - self.ratio)
        self.samples += 1
        self.factor = self._safe()

    def _safe(self) -> float:
        return self.ratio + max(DEVIATIONS * self._deviation, MARGIN_MIN * self.ratio)
