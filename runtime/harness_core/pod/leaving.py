"""Requests that leave without an answer: limits that can no longer be met, queue timeouts, cancels, losses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_core import reasons
from harness_core.outcome import Outcome
from harness_core.pod import isolation
from harness_core.pod.settings import TimeoutAction
from harness_core.queue import Entry, Place

if TYPE_CHECKING:
    from harness_core.pod.flight import Flight
    from harness_core.pod.lane import Lane, Model
    from harness_core.pod.state import PodState

BEHIND_ALL = 1 << 20
"""Rank of a request that its queue timeout has put behind all others (timeout action Delay)."""


def expire(state: PodState, now: int) -> None:
    """End all that can no longer be answered before its limit, and carry out queue timeouts.

    What waits is lost as soon as a run of it alone, after all that was handed over, would end too late: so the refusal reaches
    the caller before its deadline. What runs is given up when its limit is so near that the refusal just reaches the caller.
    """
    for flight in state.flights.all:
        _expire_flight(state, now, flight)
    overdue_ns = state.flights.overdue_from_ns()
    base_ns = state.answer_base_ns(now)
    if overdue_ns is not None and now >= overdue_ns:
        # No end is in sight: the next chance to refuse may be a timer, which may fire as late as its grain.
        base_ns += state.limits.timer_grain_ns
    for model in state.models.values():
        _expire_timeouts(state, now, model)
        for lane in list(model.lanes.values()):
            while (entry := lane.limits.pop_due(_lost_below(lane, base_ns))) is not None:
                need_ns = lane.timing.need_ns(entry.rows)
                if base_ns + need_ns > entry.limit:
                    _end_lost(state, entry, lane, now, base_ns)
                else:
                    lane.limits.push(entry.limit - need_ns + _shift_ns(lane), entry, lane.queue.requests)
            for entry in isolation.lost(lane, base_ns):
                _end_lost(state, entry, lane, now, base_ns)


def next_loss_ns(state: PodState) -> int | None:
    """When :func:`expire` will next have something to do, without another event; None: never."""
    times = [limit_ns for flight in state.flights.all if (limit_ns := flight.next_limit_ns()) is not None]
    # While a batch runs as expected what waits is not lost by time alone; after that each moment counts.
    overdue_ns = state.flights.overdue_from_ns()
    lead_ns = state.delay_ns
    if overdue_ns is not None:
        lead_ns += state.flights.staged_ns + state.limits.timer_grain_ns
    for model in state.models.values():
        timeout_ns = model.timeouts.next_ns()
        if timeout_ns is not None:
            times.append(timeout_ns)
        for lane in model.lanes.values():
            limit_ns = lane.limits.next_ns()
            if limit_ns is not None:
                times.append(max(limit_ns - _lost_below(lane, lead_ns) + 1, overdue_ns or 0))
            limit_ns = isolation.next_lost_ns(lane, lead_ns)
            if limit_ns is not None:
                times.append(max(limit_ns, overdue_ns or 0))
    return min(times, default=None)


def end(
    state: PodState,
    entry: Entry,
    outcome: Outcome,
    reason: str,
    *,
    needed_ns: int | None = None,
    had_ns: int | None = None,
    retry_after_ns: int | None = None,
    message: str = "",
) -> None:
    """End an open request wherever it is. A batch that holds it runs on without it."""
    if entry.place in (Place.QUEUED, Place.ISOLATED):
        model = state.models[entry.lane.model]
        lane = model.lanes[entry.lane]
        if entry.place is Place.QUEUED:
            lane.queue.remove(entry)
        else:
            isolation.remove(lane, entry)
        model.drop(entry)
        model.settle(lane)
    else:
        flight = next(flight for flight in state.flights.all if entry in flight.members)
        flight.members.remove(entry)
        if entry.place is Place.STAGED:
            flight.lane.model.drop(entry)
    state.ledger.end(
        entry, outcome, reason, needed_ns=needed_ns, had_ns=had_ns, retry_after_ns=retry_after_ns, message=message
    )


def _lost_below(lane: Lane, base_ns: int) -> int:
    """Requests with ``limit - l(rows)`` below this may be lost.

    The heap is ordered by the uncorrected latency, so that a new correction does not reorder it; f·l(rows) - l(rows) is taken for one
    row. With more rows and f < 1 that is too early: such a request goes back to its true time. With f > 1 it may stay a little longer
    than it has a use for, but never past its limit.
    """
    return base_ns + _shift_ns(lane)


def _shift_ns(lane: Lane) -> int:
    return lane.timing.need_ns(1) - lane.timing.raw_ns[1]


def _end_lost(state: PodState, entry: Entry, lane: Lane, now: int, base_ns: int) -> None:
    needed_ns = base_ns + lane.timing.need_ns(entry.rows) - now
    had_ns = max(0, entry.limit - now)
    end(state, entry, Outcome.EXPIRED, reasons.LIMIT_UNREACHABLE, needed_ns=needed_ns, had_ns=had_ns)


def _expire_flight(state: PodState, now: int, flight: Flight) -> None:
    limit_ns = flight.next_limit_ns()
    if limit_ns is not None and limit_ns <= now:
        for entry in [entry for entry in flight.members if entry.until <= now]:
            end(state, entry, Outcome.EXPIRED, reasons.LIMIT_PASSED)


def _expire_timeouts(state: PodState, now: int, model: Model) -> None:
    limits = model.limits
    while (entry := model.timeouts.pop_due(now + 1)) is not None:
        if limits.timeout_action is TimeoutAction.REJECT:
            message = f"waited {limits.queue_timeout_ns} ns, the queue timeout"
            end(state, entry, Outcome.EXPIRED, reasons.QUEUE_TIMEOUT, message=message)
        elif entry.place is Place.QUEUED:
            model.lanes[entry.lane].queue.demote(entry, BEHIND_ALL)
