"""How long a batch takes beyond its run: from the decision to the start, and from the end to the answer.

The machine subtracts it from every deadline (``PodLimits.dispatch_delay_ns``). Mean and deviation are smoothed as TCP
smooths its round trips (RFC 6298, gains 1/8 and 1/4), and the estimate is mean + 2 deviations: an answer that is a little early
costs nothing, one that is a little late is worth nothing.
"""

from __future__ import annotations

MEAN_GAIN = 1 / 8
DEVIATION_GAIN = 1 / 4
DEVIATIONS = 2
CEILING_NS = 20_000_000
"""A stalled loop must not talk the machine into refusing everything for long."""
STEP = 0.25
"""Smallest relative change that is worth telling the machine."""
FLOOR_NS = 50_000
"""Absolute changes below this are never worth telling."""


class _Smoothed:
    """Mean and mean deviation of a stream of durations."""

    __slots__ = ("deviation", "mean")

    def __init__(self) -> None:
        self.mean: float | None = None
        self.deviation = 0.0

    def add(self, value: float) -> None:
        if self.mean is None:
            self.mean, self.deviation = value, value / 2
            return
        self.deviation += DEVIATION_GAIN * (abs(value - self.mean) - self.deviation)
        self.mean += MEAN_GAIN * (value - self.mean)

    @property
    def high(self) -> float:
        return 0.0 if self.mean is None else self.mean + DEVIATIONS * self.deviation


class DispatchDelay:
    """Measured hand-over times, in nanoseconds. ``told_ns`` is what the machine was last told."""

    def __init__(self, told_ns: int = 0) -> None:
        self.told_ns = told_ns
        self._to_start = _Smoothed()
        self._to_answer = _Smoothed()

    def started(self, delay_ns: int) -> None:
        """A batch that had no other before it began this long after the decision."""
        self._to_start.add(max(0, delay_ns))

    def answered(self, delay_ns: int) -> None:
        """An answer was handed over this long after its batch ended."""
        self._to_answer.add(max(0, delay_ns))

    @property
    def estimate_ns(self) -> int:
        """Both ways together, bounded by ``CEILING_NS``."""
        return min(CEILING_NS, round(self._to_start.high + self._to_answer.high))

    def news(self) -> int | None:
        """The estimate when it has moved enough to be told; counts as told."""
        estimate = self.estimate_ns
        if abs(estimate - self.told_ns) <= max(FLOOR_NS, STEP * self.told_ns):
            return None
        self.told_ns = estimate
        return estimate
