"""Latency profile of a lane: what a batch of b rows takes, l(b) = T_setup + T_compute(b) (design.md §3, Profile).

Sources and formulas: scheduling.md, header (l, S, U, P) and §1 (Clockwork, Nexus: profiles by batch size). Times are integer
nanoseconds, sizes rows.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

FLAT_SHARE = 0.02
"""l(b)/b has stopped falling where it is within this share of its least value (scheduling.md, header)."""


@dataclass(frozen=True, slots=True)
class ProfilePoint:
    """One measured or declared point. ``p99_ns`` None: not known; ``samples`` 0: declared, not measured.

    Raises:
        ValueError: size below 1, a time that is not positive, or a p99 below the p50.
    """

    size: int
    p50_ns: int
    p99_ns: int | None = None
    samples: int = 0

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size must be at least 1, got {self.size}")
        if self.p50_ns < 1:
            raise ValueError(f"p50_ns must be at least 1, got {self.p50_ns}")
        if self.p99_ns is not None and self.p99_ns < self.p50_ns:
            raise ValueError(f"p99_ns {self.p99_ns} is below p50_ns {self.p50_ns}")


@dataclass(frozen=True, slots=True)
class LinearFit:
    """l(b) ≈ beta + alpha·b, fitted on relative error; ``max_rel_err`` is the worst of the points."""

    alpha_ns: float
    beta_ns: float
    max_rel_err: float

    def latency_ns(self, rows: int) -> int:
        """The line's value, at least 1."""
        return max(1, round(self.beta_ns + self.alpha_ns * rows))


class LatencyProfile:
    """l(b) through points: straight lines between them, made non-decreasing, continued by the linear fit."""

    __slots__ = ("_fit", "_p50", "_p99", "_saturation", "_sizes", "points")

    def __init__(self, points: tuple[ProfilePoint, ...]) -> None:
        """Points ascending by size, none twice: use :meth:`from_points`."""
        self.points = points
        self._sizes = [point.size for point in points]
        self._p50 = _running_max([point.p50_ns for point in points])
        self._p99 = _running_max([point.p50_ns if point.p99_ns is None else point.p99_ns for point in points])
        self._fit = _fit(points)
        self._saturation: int | None = None

    @classmethod
    def from_points(cls, points: Iterable[ProfilePoint]) -> LatencyProfile:
        """A profile from points in any order.

        Raises:
            ValueError: no point, or a size twice.
        """
        ordered = tuple(sorted(points, key=lambda point: point.size))
        if not ordered:
            raise ValueError("a latency profile needs at least one point")
        for earlier, later in itertools.pairwise(ordered):
            if earlier.size == later.size:
                raise ValueError(f"size {later.size} appears twice")
        return cls(ordered)

    @classmethod
    def linear(cls, setup_ns: int, per_row_ns: int, max_size: int) -> LatencyProfile:
        """l(b) = setup + per_row·b for b up to ``max_size`` and beyond."""
        sizes = sorted({1, max(1, max_size)})
        return cls.from_points(ProfilePoint(size, max(1, setup_ns + per_row_ns * size)) for size in sizes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LatencyProfile) and self.points == other.points

    def __repr__(self) -> str:
        return f"LatencyProfile({self.points!r})"

    def latency_ns(self, rows: int) -> int:
        """Expected latency of a batch of ``rows`` (p50), non-decreasing in ``rows``."""
        return self._at(rows, self._p50)

    def p99_ns(self, rows: int) -> int:
        """Latency that 99 of 100 batches stay under, where known; else as :meth:`latency_ns`."""
        return max(self._at(rows, self._p99), self.latency_ns(rows))

    def largest_within(self, budget_ns: int, cap: int) -> int:
        """Largest b <= cap with l(b) <= budget; 0 when not even one row fits. O(log cap)."""
        low, high = 0, max(0, cap)
        while low < high:
            middle = (low + high + 1) // 2
            if self.latency_ns(middle) <= budget_ns:
                low = middle
            else:
                high = middle - 1
        return low

    def fit(self) -> LinearFit:
        """The straight line through the points, least squares on relative error (data/profiles/README.md)."""
        return self._fit

    def speedup(self, rows: int) -> float:
        """S(n) = n·l(1)/l(n): requests a second of full batches of n against batches of one."""
        return rows * self.latency_ns(1) / self.latency_ns(rows)

    def utilisation(self, rows: int) -> float:
        """U(n) = T_compute(n)/l(n) · min(n/P, 1): share of a batch's time that is not set-up, in [0, 1]."""
        latency = self.latency_ns(rows)
        setup = min(max(self._fit.beta_ns, 0.0), latency)
        return (latency - setup) / latency * min(rows / self.saturation_size(), 1.0)

    def saturation_size(self) -> int:
        """P: the least size from which l(b)/b is within 2 % of its least value over the profile's sizes."""
        if self._saturation is None:
            # Metrics ask after every batch; the scan is once.
            per_row = [self.latency_ns(size) / size for size in range(1, self._sizes[-1] + 1)]
            bound = min(per_row) * (1 + FLAT_SHARE)
            self._saturation = next(size for size, cost in enumerate(per_row, start=1) if cost <= bound)
        return self._saturation

    def _at(self, rows: int, times: list[int]) -> int:
        index = bisect_left(self._sizes, rows)
        if index < len(self._sizes) and self._sizes[index] == rows:
            return times[index]
        if index == 0:
            # A line that falls (noise, few points) says nothing of smaller batches.
            falls = len(times) == 1 or self._fit.alpha_ns <= 0
            return times[0] if falls else min(times[0], self._fit.latency_ns(rows))
        if index == len(self._sizes):
            slope = max(0.0, self._fit.alpha_ns)
            return times[-1] + round(slope * (rows - self._sizes[-1]))
        left, right = self._sizes[index - 1], self._sizes[index]
        return times[index - 1] + (times[index] - times[index - 1]) * (rows - left) // (right - left)


def _running_max(times: list[int]) -> list[int]:
    highest, result = 0, []
    for time in times:
        highest = max(highest, time)
        result.append(highest)
    return result


def _fit(points: tuple[ProfilePoint, ...]) -> LinearFit:
    """Weighted least squares with weights 1/l², so that relative errors count; one point gives l = alpha·b."""
    if len(points) == 1:
        return LinearFit(points[0].p50_ns / points[0].size, 0.0, 0.0)
    weights = [1 / point.p50_ns**2 for point in points]
    total = sum(weights)
    mean_b = sum(w * point.size for w, point in zip(weights, points, strict=True)) / total
    mean_l = sum(w * point.p50_ns for w, point in zip(weights, points, strict=True)) / total
    spread = sum(w * (point.size - mean_b) ** 2 for w, point in zip(weights, points, strict=True))
    product = sum(w * (p.size - mean_b) * (p.p50_ns - mean_l) for w, p in zip(weights, points, strict=True))
    alpha = product / spread
    beta = mean_l - alpha * mean_b
    error = max(abs(beta + alpha * point.size - point.p50_ns) / point.p50_ns for point in points)
    return LinearFit(alpha, beta, error)
