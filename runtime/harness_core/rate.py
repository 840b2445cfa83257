"""Arrival rate of a lane and the batch that it plans (scheduling.md §1 Symphony, §2 step 1, §3 bound 2)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

BUDGET_GAIN = 0.05


class ArrivalRate:
    """EWMA of rows per nanosecond with tau = 2·SLO, read at any time; no ticks.

    The SLO is what requests really bring (EWMA of target - arrival), since a caller's ``timeout`` may differ from the
    model's objective. Until tau has passed since the first arrival the estimate is divided by the share of the window seen.
    """

    __slots__ = ("_first_ns", "_last_ns", "_value", "budget_ns")

    def __init__(self) -> None:
        self._value = 0.0
        self._first_ns: int | None = None
        self._last_ns = 0
        self.budget_ns = 0.0

    def observe(self, now_ns: int, rows: int, budget_ns: int) -> None:
        """Take an arrival of ``rows`` with ``budget_ns`` from arrival to target."""
        if self._first_ns is None:
            self._first_ns = self._last_ns = now_ns
            self.budget_ns = float(budget_ns)
        self.budget_ns += BUDGET_GAIN * (budget_ns - self.budget_ns)
        tau = self._tau()
        self._value = self._value * math.exp((self._last_ns - now_ns) / tau) + rows / tau
        self._last_ns = now_ns

    def per_ns(self, now_ns: int) -> float:
        """Rows per nanosecond; 0.0 before the first arrival."""
        if self._first_ns is None:
            return 0.0
        tau = self._tau()
        seen = 1.0 - math.exp((self._first_ns - now_ns) / tau - 1e-3)
        return self._value * math.exp((self._last_ns - now_ns) / tau) / seen

    def _tau(self) -> float:
        return max(2.0 * self.budget_ns, 1.0)


def planned_batch(latency_ns: Callable[[int], int], rate: float, budget_ns: float, delay_ns: int, cap: int) -> int:
    """b*: the largest b <= cap with l(b) + b/rate + delay <= D; at least 1.

    ``latency_ns`` is the corrected f·l(b), ``rate`` rows per nanosecond. The batch fills in b/rate and runs in l(b), so its first
    request is answered by D. O(log cap).
    """
    if rate <= 0.0:
        return 1
    low, high = 1, max(1, cap)
    while low < high:
        middle = (low + high + 1) // 2
        if latency_ns(middle) + middle / rate + delay_ns <= budget_ns:
            low = middle
        else:
            high = middle - 1
    return low
