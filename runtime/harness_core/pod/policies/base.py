"""What a policy is given and what it gives, and the gathering of members that all share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness_core.outcome import BatchReason
    from harness_core.pod.lane import Lane
    from harness_core.queue import Entry

LOOK_AHEAD = 64
"""Requests that do not fit are passed over at most so often in search of smaller ones: bounds the scan."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When a batch formed now would begin, and what its answers need on top of its run.

    ``begin_ns`` is now, or the expected end of the running batch for one that is staged behind it. ``grain_ns``: how much later
    than asked a timer may fire.
    """

    now_ns: int
    begin_ns: int
    delay_ns: int
    draining: bool = False
    grain_ns: int = 0

    @property
    def base_ns(self) -> int:
        """A batch that runs for x is answered at this plus x."""
        return self.begin_ns + self.delay_ns


@dataclass(slots=True)
class Candidate:
    """A batch that a lane would run.

    ``latest_start_ns``: last begin at which every member meets its deadline. ``skipped``: heads passed over that would have kept
    the batch small.
    """

    members: list[Entry]
    rows: int
    latest_start_ns: int
    reason: BatchReason
    skipped: list[Entry]
    isolated: bool = False
    """Part of a failed batch (``harness_core.pod.isolation``); its members are in no queue."""


class Policy(Protocol):
    """One way to form batches of a lane. The lane has work when any of these is called."""

    def key(self, entry: Entry) -> int:
        """Rank inside a priority level, in nanoseconds; least first, ties in order of arrival."""

    def ready_ns(self, lane: Lane, moment: Moment) -> int:
        """From when the lane has a candidate, given that nothing else arrives. O(1)."""

    def urgency(self, lane: Lane, moment: Moment) -> tuple[int, int]:
        """Rank among ready lanes, least first: 0 can be on time or 1 spare work, then about the latest start. O(log n)."""

    def candidate(self, lane: Lane, moment: Moment) -> Candidate | None:
        """The batch of a ready lane at ``moment``; None when none of its requests could be answered in time."""


def gather(entries: Iterable[Entry], rows_max: int, bytes_max: int) -> tuple[list[Entry], int]:
    """Members in order while they fit; one too large is passed over, never cut (B009). Returns members and rows."""
    members: list[Entry] = []
    rows = size = misses = 0
    for entry in entries:
        if rows + entry.rows > rows_max or size + entry.bytes > bytes_max:
            misses += 1
            if misses > LOOK_AHEAD:
                break
            continue
        members.append(entry)
        rows += entry.rows
        size += entry.bytes
        if rows == rows_max:
            break
    return members, rows


def latest_start(members: list[Entry], need_ns: int, moment: Moment) -> int:
    """Last begin at which every member is answered by its target, or, where that is lost already, by its limit."""
    answered = moment.base_ns + need_ns
    due = min(entry.target if answered <= entry.target else entry.limit for entry in members)
    return due - need_ns - moment.delay_ns
