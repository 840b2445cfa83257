"""How long a batch takes beyond its run: from the decision to the start, and from the end to the answers.

The machine subtracts it from every deadline (``PodLimits.dispatch_delay_ns``). Each way is estimated by the 0.8 quantile of its last
samples, one per batch. Not by mean and deviation: a single stall of the process would inflate those for long, the machine would then
start smaller batches and refuse more, and the load would stay where the stall put it.
"""

from __future__ import annotations

from collections import deque

SAMPLES = 64
QUANTILE = 0.8
FIRST = 8
"""Samples before anything is said."""
EVERY = 8
"""Samples between two looks at the estimate."""
CEILING_NS = 5_000_000
"""More is not hand-over but overload, of which refusing more requests would be no cure."""
STEP = 0.25
"""Smallest relative change that is worth telling the machine …"""
FLOOR_NS = 50_000
"""… and the smallest absolute one."""


class DispatchDelay:
    """Measured hand-over times, in nanoseconds. ``told_ns`` is what the machine was last told."""

    def __init__(self) -> None:
        self.told_ns = 0
        self._to_start: deque[int] = deque(maxlen=SAMPLES)
        self._to_answer: deque[int] = deque(maxlen=SAMPLES)
        self._fresh = 0

    def started(self, delay_ns: int) -> None:
        """A batch that had no other before it began this long after the decision."""
        self._to_start.append(max(0, delay_ns))
        self._fresh += 1

    def answered(self, delay_ns: int) -> None:
        """A batch's first answer was handed over this long after its end."""
        self._to_answer.append(max(0, delay_ns))
        self._fresh += 1

    @property
    def estimate_ns(self) -> int:
        """Both ways together, bounded by ``CEILING_NS``."""
        return min(CEILING_NS, _high(self._to_start) + _high(self._to_answer))

    def news(self) -> int | None:
        """The estimate when it has moved enough to be told; counts as told."""
        if self._fresh < EVERY:
            return None
        self._fresh = 0
        estimate = self.estimate_ns
        if abs(estimate - self.told_ns) <= max(FLOOR_NS, STEP * self.told_ns):
            return None
        self.told_ns = estimate
        return estimate


def _high(samples: deque[int]) -> int:
    if len(samples) < FIRST:
        return 0
    return sorted(samples)[int(QUANTILE * len(samples))]
