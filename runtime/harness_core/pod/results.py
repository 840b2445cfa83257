"""What becomes of the members of a batch when it begins and when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_core import reasons
from harness_core.outcome import Outcome
from harness_core.pod import admission, isolation
from harness_core.queue import Place

if TYPE_CHECKING:
    from harness_core.decision import BatchResult
    from harness_core.pod.flight import Flight
    from harness_core.pod.state import PodState


def begin(flight: Flight, now: int) -> None:
    """The run begins now: the members wait no more."""
    flight.begin_ns = now
    for entry in flight.members:
        if entry.place is Place.STAGED:
            entry.place = Place.RUNNING
            flight.lane.model.drop(entry)


def finish(state: PodState, flight: Flight, now: int, result: BatchResult) -> None:
    """The batch ended. The one staged behind it begins; one that runs before it is not touched."""
    ran = flight is state.flights.all[0]
    begin(flight, now)
    state.flights.remove(flight)
    if ran:
        for staged in state.flights.all:
            begin(staged, now)
    if result.failure is None:
        _succeed(state, flight, now, result)
    elif len(flight.plan.members) == 1:
        reason = reasons.OUT_OF_MEMORY if result.out_of_memory else reasons.MODEL_FAILED
        for entry in flight.members:
            state.ledger.end(entry, Outcome.FAILED, reason, message=result.failure)
    else:
        _isolate(state, flight)


def _succeed(state: PodState, flight: Flight, now: int, result: BatchResult) -> None:
    timing, rows = flight.lane.timing, flight.plan.rows
    # A profile that was replaced meanwhile may be too short for this batch, which then teaches it nothing.
    if result.execution_ns > 0 and rows <= timing.max_rows:
        timing.correction.observe(result.execution_ns, timing.raw_ns[rows])
    for entry in flight.members:
        message = result.member_failures.get(entry.id)
        if message is not None:
            state.ledger.end(entry, Outcome.FAILED, reasons.MEMBER_FAILED, message=message)
        elif now <= entry.due:
            state.ledger.end(entry, Outcome.COMPLETED, reasons.ON_TIME)
        elif now <= entry.until:
            state.ledger.end(entry, Outcome.LATE, reasons.TARGET_PASSED)
        else:
            state.ledger.end(entry, Outcome.EXPIRED, reasons.LIMIT_PASSED)


def _isolate(state: PodState, flight: Flight) -> None:
    """The batch failed as a whole while the executor survived: run its halves apart (B003)."""
    model = flight.lane.model
    if state.models.get(flight.plan.lane.model) is not model:
        for entry in flight.members:
            state.ledger.end(entry, Outcome.UNAVAILABLE, reasons.MODEL_REMOVED)
        return
    members = []
    for entry in flight.members:
        # The bounds of a batch may have shrunk since this one was formed.
        objection = admission.oversize(entry.rows, entry.bytes, model.limits)
        if objection is None:
            model.add(entry)
            members.append(entry)
        else:
            reason, message = objection
            state.ledger.end(entry, Outcome.INVALID, reason, message=message)
    if members:
        isolation.split(model.lane(flight.plan.lane), members)
