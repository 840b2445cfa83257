"""Launching batches: when one may be handed over, which, and what it costs those it passed over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_core import reasons
from harness_core.decision import BatchPlan
from harness_core.invariants import check
from harness_core.outcome import Outcome
from harness_core.pod import leaving
from harness_core.pod.flight import Flight
from harness_core.pod.policies.base import Moment
from harness_core.queue import Place

if TYPE_CHECKING:
    from harness_core.pod.lane import Lane
    from harness_core.pod.policies.base import Candidate
    from harness_core.pod.state import PodState


def launch(state: PodState, now: int) -> BatchPlan | None:
    """Hand over one batch if one may be and something is ready, and end what it costs its chance."""
    begin_ns = _slot(state, now)
    if begin_ns is None:
        return None
    choice = state.chooser.next(state.lanes(), _moment(state, now, begin_ns))
    if choice is None:
        return None
    lane, candidate = choice
    plan = _plan(state, lane, candidate)
    _take_members(lane, candidate)
    state.flights.add(Flight(plan, lane, candidate.members, begin_ns))
    for entry in candidate.members:
        if entry.place is Place.RUNNING:
            lane.model.drop(entry)
    _give_up_skipped(state, now, lane, candidate)
    lane.model.settle(lane)
    return plan


def next_launch_ns(state: PodState, now: int) -> int | None:
    """When :func:`launch` will next have something to do, without another event; None: never."""
    if not state.up:
        return None
    possible_ns = now
    if len(state.flights):
        lead_ns = state.limits.staging_lead_ns
        staging_ns = state.flights.staging_ns(lead_ns) if state.limits.staging else None
        if staging_ns is None or state.flights.overran(now, lead_ns):
            return None
        possible_ns = staging_ns
    ready_ns = state.chooser.ready_ns(state.lanes(), _moment(state, now, state.flights.free_ns(now)))
    if ready_ns is None:
        return None
    at_ns = max(ready_ns, possible_ns)
    # What is ready now and was not launched waits for an event: no time alone will change it.
    return at_ns if at_ns > now else None


def _slot(state: PodState, now: int) -> int | None:
    """When a batch handed over now would begin; None while none may be."""
    if not state.up:
        return None
    flights = state.flights
    if not len(flights):
        return now
    if not state.limits.staging:
        return None
    # As late as possible, so that the batch can still grow (late binding).
    lead_ns = state.limits.staging_lead_ns
    staging_ns = flights.staging_ns(lead_ns)
    if staging_ns is None or now < staging_ns or flights.overran(now, lead_ns):
        return None
    return flights.free_ns(now)


def _moment(state: PodState, now: int, begin_ns: int) -> Moment:
    return Moment(now, begin_ns, state.delay_ns, draining=state.draining, grain_ns=state.limits.timer_grain_ns)


def _plan(state: PodState, lane: Lane, candidate: Candidate) -> BatchPlan:
    limits, rows = lane.model.limits, candidate.rows
    check(1 <= rows <= limits.max_batch_rows, f"a batch of {rows} rows")
    check(rows == sum(entry.rows for entry in candidate.members), "a batch whose rows are not its members'")
    check(sum(entry.bytes for entry in candidate.members) <= limits.max_batch_bytes, "a batch over its bytes")
    check(all(entry.lane == lane.key for entry in candidate.members), "a batch of mixed lanes")
    state.batches += 1
    return BatchPlan(
        batch_id=state.batches,
        lane=lane.key,
        members=tuple(entry.id for entry in candidate.members),
        rows=rows,
        execution_size=lane.timing.execution_size(rows),
        reason=candidate.reason,
        predicted_ns=lane.timing.expected_ns(rows),
        latest_start_ns=candidate.latest_start_ns,
    )


def _take_members(lane: Lane, candidate: Candidate) -> None:
    if candidate.isolated:
        lane.isolating.popleft()
        return
    for entry in candidate.members:
        lane.queue.remove(entry)


def _give_up_skipped(state: PodState, now: int, lane: Lane, candidate: Candidate) -> None:
    """End the heads that a window drop passed over, where the batch that they gave way to costs them their limit."""
    if not candidate.skipped:
        return
    base_ns = state.answer_base_ns(now)
    for entry in candidate.skipped:
        answered_ns = base_ns + lane.timing.need_ns(entry.rows)
        if answered_ns > entry.limit:
            leaving.end(
                state,
                entry,
                Outcome.SHED,
                reasons.WINDOW_DROP,
                needed_ns=answered_ns - now,
                had_ns=max(0, entry.limit - now),
                retry_after_ns=base_ns - now,
            )
