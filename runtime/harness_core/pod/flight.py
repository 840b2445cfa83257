"""Batches handed over: at most one running and one staged (design.md §2.5), and when the accelerator is expected to be free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_core.invariants import check
from harness_core.queue import Place

if TYPE_CHECKING:
    from harness_core.decision import BatchPlan
    from harness_core.pod.lane import Lane
    from harness_core.queue import Entry

OVERRUN_SHARE = 0.25
"""A running batch that has outlived its expected run by this share says nothing about when it will end: nothing is staged behind it,
so that what waits can still be cancelled, grow or expire without being run for nobody (B006)."""


class Flight:
    """One batch. ``members`` are those not ended; ``next_limit_ns`` is when the first of them is given up."""

    __slots__ = ("begin_ns", "expected_ns", "lane", "members", "plan")

    def __init__(self, plan: BatchPlan, lane: Lane, members: list[Entry], begin_ns: int) -> None:
        self.plan = plan
        self.lane = lane
        self.members = members
        self.begin_ns = begin_ns
        self.expected_ns = plan.predicted_ns

    @property
    def end_ns(self) -> int:
        """Expected end of its run."""
        return self.begin_ns + self.expected_ns

    def next_limit_ns(self) -> int | None:
        """When the first of the members is given up, None when none is left."""
        return min((entry.until for entry in self.members), default=None)


class Flights:
    """The running batch, then the staged one."""

    __slots__ = ("_batches",)

    def __init__(self) -> None:
        self._batches: list[Flight] = []

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def all(self) -> list[Flight]:
        """Running first."""
        return self._batches

    def add(self, flight: Flight) -> None:
        """Take a batch that is handed over now."""
        check(len(self._batches) < 2, "a third batch was handed over")
        place = Place.STAGED if self._batches else Place.RUNNING
        for entry in flight.members:
            entry.place = place
        self._batches.append(flight)

    def find(self, batch_id: int) -> Flight | None:
        """The batch of this id, None when it is no longer with the executor."""
        return next((flight for flight in self._batches if flight.plan.batch_id == batch_id), None)

    def remove(self, flight: Flight) -> None:
        """Forget a batch that ended."""
        self._batches.remove(flight)

    def clear(self) -> list[Flight]:
        """Forget all, and return them."""
        lost, self._batches = self._batches, []
        return lost

    def free_ns(self, now: int) -> int:
        """When the accelerator is expected to have done all that was handed over; ``now`` when it is idle or overdue."""
        free = now
        for index, flight in enumerate(self._batches):
            free = max(free, flight.end_ns) if index == 0 else free + flight.expected_ns
        return free

    def overdue_from_ns(self) -> int | None:
        """From when the running batch is overdue, None when none runs."""
        return self._batches[0].end_ns + 1 if self._batches else None

    @property
    def staged_ns(self) -> int:
        """Expected run of what is staged."""
        return sum(flight.expected_ns for flight in self._batches[1:])

    def staging_ns(self, lead_ns: int) -> int | None:
        """From when a batch may be staged behind the one that runs; None when there is none or one is staged already."""
        if len(self._batches) != 1:
            return None
        return self._batches[0].end_ns - lead_ns

    def overran(self, now: int, lead_ns: int) -> bool:
        """Whether the running batch's end can no longer be foretold."""
        running = self._batches[0]
        return now > running.end_ns + max(lead_ns, int(running.expected_ns * OVERRUN_SHARE))
