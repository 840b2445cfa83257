"""When requests arrive: seeded arrival processes under a rate that may change over time.

Every process is made the same way: gaps of mean 1 in *operational time*, whose cumulative sum is mapped to real time by
the inverse of the cumulative rate. So steps and ramps apply alike to constant, Poisson and gamma arrivals and to
replayed traces, and the shape of a process (its burstiness) survives a change of rate.

Pure: no clock, no file, randomness handed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

NS_PER_S = 1_000_000_000
REQUESTS_MAX = 50_000_000
"""Most arrivals of one workload: beyond it a typing error is likelier than a wish, and memory would not hold it."""


class Arrivals(StrEnum):
    """Arrival processes."""

    CONSTANT = "constant"
    """Evenly spaced, the first at time 0."""
    POISSON = "poisson"
    """Independent exponential gaps: squared coefficient of variation 1."""
    GAMMA = "gamma"
    """Independent gamma gaps of shape k: squared coefficient of variation 1/k, so k < 1 is bursty."""
    TRACE = "trace"
    """Recorded gaps, repeated from the start when the trace is shorter than the schedule."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of ``duration_s`` seconds in which the rate goes in a straight line from ``rate`` to ``end_rate``.

    Rates are requests per second. Raises ValueError for a negative rate or a duration that is not positive.
    """

    rate: float
    duration_s: float
    end_rate: float

    def __post_init__(self) -> None:
        if not (0 <= self.rate < np.inf and 0 <= self.end_rate < np.inf):
            raise ValueError(f"a rate must be a number of at least 0, got {self.rate:g} and {self.end_rate:g}")
        if not 0 < self.duration_s < np.inf:
            raise ValueError(f"a duration must be a positive number of seconds, got {self.duration_s:g}")

    @property
    def requests(self) -> float:
        """Expected number of arrivals."""
        return (self.rate + self.end_rate) / 2 * self.duration_s

    def elapsed_s(self, requests: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Seconds into the segment at which the expected number of arrivals reaches ``requests``.

        Solves a·t + s·t²/2 = q with a the first rate and s the slope; the form 2q / (a + sqrt(a² + 2sq)) does not cancel when
        the slope is small and also covers slope 0.
        """
        slope = (self.end_rate - self.rate) / self.duration_s
        root = np.sqrt(np.maximum(self.rate**2 + 2 * slope * requests, 0.0))
        below = self.rate + root
        seconds = np.divide(2 * requests, below, out=np.zeros_like(requests), where=below > 0)
        return np.minimum(seconds, self.duration_s)


@dataclass(frozen=True, slots=True)
class RateSchedule:
    """Rates over time, segment after segment."""

    segments: tuple[Segment, ...]

    @classmethod
    def constant(cls, rate: float, duration_s: float) -> RateSchedule:
        """One rate for the whole time."""
        return cls((Segment(rate, duration_s, rate),))

    @classmethod
    def parse(cls, text: str) -> RateSchedule:
        """Read ``RATE:SECONDS,RATE:SECONDS,…``; ``FROM-TO:SECONDS`` is a ramp. Raises ValueError naming the part at fault."""
        segments = []
        for part in text.split(","):
            rates, colon, duration = part.strip().partition(":")
            first, dash, last = rates.partition("-")
            try:
                if not colon:
                    raise ValueError("the colon is missing")
                segments.append(Segment(float(first), float(duration), float(last if dash else first)))
            except ValueError as error:
                raise ValueError(f"{part.strip()!r} is not RATE:SECONDS or FROM-TO:SECONDS ({error})") from None
        return cls(tuple(segments))

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return sum(segment.duration_s for segment in self.segments)

    @property
    def requests(self) -> float:
        """Expected number of arrivals."""
        return sum(segment.requests for segment in self.segments)

    @property
    def mean_rate(self) -> float:
        """Expected requests per second over the whole time."""
        return self.requests / self.duration_s

    def times_ns(self, operational: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Real times, int ns, of ascending operational times (expected arrivals so far); those past the end are left out."""
        pieces = []
        done, start_s = 0.0, 0.0
        for segment in self.segments:
            first, last = np.searchsorted(operational, (done, done + segment.requests))
            seconds = start_s + segment.elapsed_s(operational[first:last] - done)
            pieces.append(np.rint(seconds * NS_PER_S).astype(np.int64))
            done += segment.requests
            start_s += segment.duration_s
        return np.concatenate(pieces) if pieces else np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Workload:
    """An arrival process: ``shape`` for gamma; ``trace_ns`` (ascending arrival times, ns) for trace.

    Raises ValueError for a shape that is not positive, or a trace with fewer than two different times.
    """

    arrivals: Arrivals = Arrivals.POISSON
    shape: float = 1.0
    trace_ns: npt.NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if not 0 < self.shape < np.inf:
            raise ValueError(f"a gamma shape must be positive, got {self.shape:g}")
        if self.arrivals is Arrivals.TRACE:
            if self.trace_ns is None or len(self.trace_ns) < 2 or self.trace_ns[-1] <= self.trace_ns[0]:
                raise ValueError("a trace needs arrivals at two different times at least")
            if np.any(np.diff(self.trace_ns) < 0):
                raise ValueError("the times of a trace must ascend")

    def times_ns(self, schedule: RateSchedule, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """Arrival times in ns from the start of ``schedule``, ascending. Raises ValueError above REQUESTS_MAX arrivals."""
        if schedule.requests > REQUESTS_MAX:
            raise ValueError(f"{schedule.requests:.0f} requests asked for, at most {REQUESTS_MAX} are made")
        return schedule.times_ns(self._operational(schedule.requests, rng))

    def _operational(self, until: float, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        """Cumulative gaps of mean 1 that reach ``until``."""
        if self.arrivals is Arrivals.CONSTANT:
            return np.arange(np.ceil(until), dtype=np.float64)
        if self.trace_ns is not None and self.arrivals is Arrivals.TRACE:
            return self._repeated(self.trace_ns, until)
        shape = self.shape if self.arrivals is Arrivals.GAMMA else 1.0
        # Enough for six standard deviations at once; more in the rare case that it was not.
        chunk = int(until + 6 * np.sqrt(until / shape) + 16)
        times = np.cumsum(rng.gamma(shape, 1 / shape, chunk))
        while times[-1] < until:
            times = np.concatenate((times, times[-1] + np.cumsum(rng.gamma(shape, 1 / shape, chunk))))
        return times

    @staticmethod
    def _repeated(trace_ns: npt.NDArray[np.int64], until: float) -> npt.NDArray[np.float64]:
        """The trace scaled to mean gap 1; a repetition starts one mean gap after the last arrival of the one before."""
        gaps = np.diff(trace_ns).astype(np.float64)
        gaps *= len(gaps) / gaps.sum()
        cycle = np.concatenate((gaps, [1.0]))
        ends = np.cumsum(np.tile(cycle, int(np.ceil(until / len(cycle))) + 1))
        return np.concatenate(([0.0], ends))


def trace_rate(trace_ns: npt.NDArray[np.int64]) -> float:
    """Mean requests per second of a recorded trace."""
    return (len(trace_ns) - 1) * NS_PER_S / float(trace_ns[-1] - trace_ns[0])


def choose(shares: dict[float, float], count: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """``count`` independent draws of the keys of ``shares``, each with its share (normalised) as probability."""
    values = np.array(list(shares), np.float64)
    weights = np.array(list(shares.values()), np.float64)
    return values[rng.choice(len(values), size=count, p=weights / weights.sum())]
