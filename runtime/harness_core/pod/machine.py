"""The pod's state machine: several models, many lanes, one accelerator (N = 1 of scheduling.md §2).

A driver feeds events, each with the time, and then calls :meth:`PodMachine.decide`, which says what to launch, whom to end and when to ask
again. Single-threaded and pure: no clock, no I/O. This module holds the events and the order of things; the parts are

- ``admission``: refusals on arrival · ``leaving``: expiry, timeouts, every other end without an answer · ``results``: ends with one
- ``launching``: when a batch may be handed over · ``choice``: of which lane · ``policies``: what it holds · ``isolation``: failed batches
- ``lane``: models, queues, rates · ``timing``: corrected latencies · ``flight``: what the executor holds · ``ledger``: open requests
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness_core import reasons
from harness_core.decision import BatchPlan, Decision, Ending
from harness_core.invariants import check
from harness_core.outcome import Outcome
from harness_core.pod import admission, launching, leaving, results, snapshot
from harness_core.pod.lane import Model
from harness_core.pod.snapshot import ModelSnapshot, PodSnapshot
from harness_core.pod.state import PodState
from harness_core.queue import Entry, Place

if TYPE_CHECKING:
    from harness_core.decision import BatchResult
    from harness_core.descriptor import RequestDescriptor
    from harness_core.journal import Journal
    from harness_core.pod.settings import ModelLimits, PodLimits

__all__ = ["ModelSnapshot", "PodMachine", "PodSnapshot"]


class PodMachine:
    """Decides for one pod. Begins without an executor: the driver calls :meth:`on_executor_up` when batches may start.

    Raises (all methods):
        ValueError: time went back, a model that is not known (or known already), or a request id that is still open.
        AssertionError: a property of the machine is broken; nothing it says can be trusted any more.
    """

    def __init__(self, limits: PodLimits, journal: Journal | None = None) -> None:
        self._state = PodState(limits, limits.dispatch_delay_ns)
        self._journal = journal
        self._now = 0
        if journal is not None:
            journal.event("limits", 0, limits)

    # -- models ---------------------------------------------------------------------------------------------------------

    def add_model(self, now: int, limits: ModelLimits) -> None:
        """Take requests for a model from now on."""
        self._event("add_model", now, limits)
        if limits.model in self._state.models:
            raise ValueError(f"model {limits.model!r} is known already")
        self._state.models[limits.model] = Model(limits)

    def update_model(self, now: int, limits: ModelLimits) -> None:
        """New limits or profiles. What waits and has become too large for any batch ends as ``invalid``."""
        self._event("update_model", now, limits)
        model = self._model(limits.model)
        model.set_limits(limits)
        for entry in list(model.waiting.values()):
            objection = admission.oversize(entry.rows, entry.bytes, limits)
            if objection is not None and entry.place is not Place.STAGED:
                reason, message = objection
                leaving.end(self._state, entry, Outcome.INVALID, reason, message=message)
        model.reschedule()

    def remove_model(self, now: int, digest: str) -> None:
        """Forget a model: what has not been handed over ends as ``unavailable``, what has been finishes."""
        self._event("remove_model", now, digest)
        for entry in list(self._model(digest).waiting.values()):
            if entry.place is not Place.STAGED:
                leaving.end(self._state, entry, Outcome.UNAVAILABLE, reasons.MODEL_REMOVED)
        del self._state.models[digest]

    def set_dispatch_delay(self, now: int, delay_ns: int) -> None:
        """What a batch takes beyond its run, as the driver measures it (``PodLimits.dispatch_delay_ns`` to begin with)."""
        self._event("set_dispatch_delay", now, delay_ns)
        self._state.delay_ns = delay_ns

    # -- requests ---------------------------------------------------------------------------------------------------------

    def on_arrival(self, now: int, request: RequestDescriptor) -> None:
        """A request came. It is queued, or refused with the next decision."""
        self._event("on_arrival", now, request)
        state = self._state
        if request.id in state.ledger:
            raise ValueError(f"request {request.id} is open already")
        refusal = self._refusal(now, request)
        if refusal is not None:
            state.ledger.refuse(refusal)
            return
        model = state.models[request.lane.model]
        state.sequence += 1
        entry = Entry(request, state.sequence)
        entry.key = model.policy.key(entry)
        state.ledger.open(entry)
        model.enqueue(entry, now)

    def on_cancel(self, now: int, request_id: int) -> None:
        """The caller withdrew. Ends at once; a batch that holds it already runs on without it. Unknown ids have ended."""
        self._event("on_cancel", now, request_id)
        entry = self._state.ledger.find(request_id)
        if entry is not None:
            leaving.end(self._state, entry, Outcome.CANCELLED, reasons.CANCELLED)

    # -- executor -----------------------------------------------------------------------------------------------------------

    def on_started(self, now: int, batch_id: int) -> None:
        """The run of a batch began. Optional: without it the launch, or the end of the batch before, counts as the beginning."""
        self._event("on_started", now, batch_id)
        flight = self._state.flights.find(batch_id)
        if flight is not None:
            results.begin(flight, now)

    def on_done(self, now: int, batch_id: int, result: BatchResult) -> None:
        """A batch ended. Results of batches that the machine has given up (executor lost) are ignored."""
        self._event("on_done", now, [batch_id, result])
        flight = self._state.flights.find(batch_id)
        if flight is not None:
            results.finish(self._state, flight, now, result)

    def on_executor_up(self, now: int) -> None:
        """Batches may start."""
        self._event("on_executor_up", now)
        self._state.up = True

    def on_executor_lost(self, now: int, retry_after_ns: int | None) -> None:
        """The executor is gone, and all models with it: everything ends, and arrivals until it is back, as ``unavailable``."""
        self._event("on_executor_lost", now, retry_after_ns)
        state = self._state
        state.up = False
        state.retry_after_ns = retry_after_ns
        for entry in state.ledger.all():
            leaving.end(state, entry, Outcome.UNAVAILABLE, reasons.EXECUTOR_LOST, retry_after_ns=retry_after_ns)
        state.flights.clear()

    def on_drain(self, now: int) -> None:
        """Shut down: nothing new is taken, what waits runs without waiting for company."""
        self._event("on_drain", now)
        self._state.draining = True

    # -- the decision -------------------------------------------------------------------------------------------------------

    def decide(self, now: int) -> Decision:
        """All that follows from the events so far. A second call at the same time, without events between, decides nothing."""
        self._advance(now)
        state = self._state
        leaving.expire(state, now)
        launches: list[BatchPlan] = []
        while (plan := launching.launch(state, now)) is not None:
            launches.append(plan)
            # The accelerator is now taken for longer, which some of what waits cannot survive.
            leaving.expire(state, now)
        decision = Decision(tuple(launches), state.ledger.take_endings(), self._wake_ns(now))
        if self._journal is not None:
            self._journal.decision(now, decision)
        return decision

    def snapshot(self, now: int) -> PodSnapshot:  # noqa: ARG002 - the agreed interface; ages are the reader's to compute
        """What is where, for metrics."""
        return snapshot.take(self._state)

    # -- inside -------------------------------------------------------------------------------------------------------------

    def _refusal(self, now: int, request: RequestDescriptor) -> Ending | None:
        """The first objection to an arrival: state of the pod, size, capacity, feasibility."""
        state = self._state
        model = state.models.get(request.lane.model)
        if model is None or state.draining or not state.up:
            return admission.refuse_unavailable(request, state, known=model is not None)
        needed_ns = state.answer_base_ns(now) - now
        needed_ns += model.timing(request.lane.bucket).need_ns(min(request.rows, model.limits.max_batch_rows))
        return (
            admission.refuse_size(request, model)
            or admission.refuse_capacity(request, model, state, needed_ns)
            or admission.refuse_infeasible(request, now, needed_ns)
        )

    def _wake_ns(self, now: int) -> int | None:
        """When something will happen without an event; None: never (an idle machine needs no timer)."""
        times = (leaving.next_loss_ns(self._state), launching.next_launch_ns(self._state, now))
        wake_ns = min((time for time in times if time is not None), default=None)
        check(wake_ns is None or wake_ns > now, f"wake at {wake_ns}, it is {now}")
        return wake_ns

    def _model(self, digest: str) -> Model:
        model = self._state.models.get(digest)
        if model is None:
            raise ValueError(f"model {digest!r} is not known")
        return model

    def _event(self, kind: str, now: int, payload: Any = None) -> None:
        self._advance(now)
        if self._journal is not None:
            self._journal.event(kind, now, payload)

    def _advance(self, now: int) -> None:
        if now < self._now:
            raise ValueError(f"time went back from {self._now} to {now}")
        self._now = now
