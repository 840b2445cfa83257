"""Figures over the last seconds, kept without timers."""

from __future__ import annotations

from collections import deque

BIN_NS = 1_000_000_000
BINS = 10


class Window:
    """Sums of a quantity that is spread over time, in bins of a second, over the last ten seconds."""

    def __init__(self) -> None:
        self._bins: deque[tuple[int, float]] = deque(maxlen=BINS + 1)

    def add(self, begin_ns: int, end_ns: int, value: float) -> None:
        """``value`` accrued evenly from ``begin_ns`` to ``end_ns``; calls come in the order of their ends."""
        if end_ns <= begin_ns:
            return
        first = max(begin_ns // BIN_NS, (end_ns - 1) // BIN_NS - BINS)
        for index in range(first, (end_ns - 1) // BIN_NS + 1):
            part = min(end_ns, (index + 1) * BIN_NS) - max(begin_ns, index * BIN_NS)
            self._into(index, value * part / (end_ns - begin_ns))

    def total(self, now_ns: int) -> float:
        """Sum over the last ten seconds, to the accuracy of a bin."""
        oldest = now_ns // BIN_NS - BINS
        return sum(value for index, value in self._bins if index >= oldest)

    def _into(self, index: int, value: float) -> None:
        if self._bins and self._bins[-1][0] >= index:
            # Late parts of an earlier second are few and go into the newest bin that is there.
            last, held = self._bins.pop()
            self._bins.append((last, held + value))
        else:
            self._bins.append((index, value))


class BusyWindow:
    """Share of the last ten seconds in which the accelerator ran, and how well it was filled meanwhile."""

    def __init__(self, now_ns: int) -> None:
        self._since_ns = now_ns
        self._busy = Window()
        self._useful = Window()
        self._running_ns: int | None = None

    def started(self, now_ns: int) -> None:
        """A batch began to run; batches run one after the other."""
        self._running_ns = now_ns

    def ended(self, now_ns: int, utilisation: float) -> None:
        """The batch ended; it ran at ``utilisation``, U(n) in [0, 1]."""
        if self._running_ns is not None:
            self._busy.add(self._running_ns, now_ns, now_ns - self._running_ns)
            self._useful.add(self._running_ns, now_ns, utilisation * (now_ns - self._running_ns))
        self._running_ns = None

    def busy(self, now_ns: int) -> float:
        """Share of time in [0, 1]; a batch that still runs counts."""
        spent = self._busy.total(now_ns)
        window_ns = now_ns % BIN_NS + BINS * BIN_NS
        if self._running_ns is not None:
            spent += min(now_ns - self._running_ns, window_ns)
        return min(1.0, spent / max(1, min(window_ns, now_ns - self._since_ns)))

    def utilisation(self, now_ns: int) -> float:
        """Mean of U(n) over the time that finished batches ran; 0 when none did."""
        spent = self._busy.total(now_ns)
        return self._useful.total(now_ns) / spent if spent else 0.0
