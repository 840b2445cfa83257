"""The pod's state machine: several models, many lanes, one accelerator (N = 1 of scheduling.md §2).

A driver feeds events, each with the time, and then calls :meth:`PodMachine.decide`, which says what to launch, whom to end and when to ask
again. Single-threaded and pure: no clock, no I/O. Who does what:

- ``admission``: refusals on arrival · ``ledger``: open requests and endings · ``lane``: models, queues, rates, timings
- ``policies``: the batch a lane would run · ``choice``: which lane is next · ``isolation``: halves of failed batches
- ``flight``: what the executor holds · this module: events, time, and the order of things in a decision
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_core import reasons
from harness_core.decision import BatchPlan, Decision, Ending
from harness_core.invariants import check
from harness_core.outcome import Outcome
from harness_core.pod import isolation
from harness_core.pod.admission import refuse_capacity, refuse_infeasible, refuse_size
from harness_core.pod.choice import Chooser
from harness_core.pod.flight import Flight, Flights
from harness_core.pod.lane import Lane, Model
from harness_core.pod.ledger import Ledger
from harness_core.pod.policies.base import Moment
from harness_core.pod.settings import TimeoutAction
from harness_core.pod.snapshot import ModelSnapshot, PodSnapshot
from harness_core.queue import Entry, Place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness_core.decision import BatchResult
    from harness_core.descriptor import RequestDescriptor
    from harness_core.journal import Journal
    from harness_core.pod.policies.base import Candidate
    from harness_core.pod.settings import ModelLimits, PodLimits

__all__ = ["ModelSnapshot", "PodMachine", "PodSnapshot"]

BEHIND_ALL = 1 << 20
"""Rank of a request that its queue timeout has put behind all others (timeout action Delay)."""


class PodMachine:
    """Decides for one pod. Begins without an executor: the driver calls :meth:`on_executor_up` when batches may start.

    Raises (all methods):
        ValueError: time went back, an unknown or known model, or a request id that is still open.
        AssertionError: a property of the machine is broken; nothing it says can be trusted any more.
    """

    def __init__(self, limits: PodLimits, journal: Journal | None = None) -> None:
        self._limits = limits
        self._delay_ns = limits.dispatch_delay_ns
        self._journal = journal
        self._models: dict[str, Model] = {}
        self._ledger = Ledger()
        self._flights = Flights()
        self._chooser = Chooser()
        self._now = 0
        self._sequence = 0
        self._batches = 0
        self._up = False
        self._draining = False
        self._retry_ns: int | None = None
        if journal is not None:
            journal.event("limits", 0, limits)

    # -- models ---------------------------------------------------------------------------------------------------------

    def add_model(self, now: int, limits: ModelLimits) -> None:
        """Take requests for a model from now on."""
        self._advance("add_model", now, limits)
        if limits.model in self._models:
            raise ValueError(f"model {limits.model!r} is known already")
        self._models[limits.model] = Model(limits)

    def update_model(self, now: int, limits: ModelLimits) -> None:
        """New limits or profiles. What waits and has become too large for a batch ends as ``invalid``."""
        self._advance("update_model", now, limits)
        model = self._model(limits.model)
        model.set_limits(limits)
        for entry in list(model.waiting.values()):
            if entry.place is Place.STAGED:
                continue
            if entry.rows > limits.max_batch_rows or entry.bytes > limits.max_batch_bytes:
                reason = reasons.ROWS_OVER_MAX if entry.rows > limits.max_batch_rows else reasons.BYTES_OVER_MAX
                self._end_waiting(entry, Outcome.INVALID, reason)

    def remove_model(self, now: int, digest: str) -> None:
        """Forget a model: what has not been handed over ends as ``unavailable``, what has been finishes."""
        self._advance("remove_model", now, digest)
        model = self._model(digest)
        for entry in list(model.waiting.values()):
            if entry.place is not Place.STAGED:
                self._end_waiting(entry, Outcome.UNAVAILABLE, reasons.MODEL_REMOVED)
        del self._models[digest]

    def set_dispatch_delay(self, now: int, delay_ns: int) -> None:
        """What a batch takes beyond its run, as the driver measures it (``PodLimits.dispatch_delay_ns`` to begin with)."""
        self._advance("set_dispatch_delay", now, delay_ns)
        self._delay_ns = delay_ns

    # -- requests ---------------------------------------------------------------------------------------------------------

    def on_arrival(self, now: int, request: RequestDescriptor) -> None:
        """A request came. It is queued, or refused with the next decision."""
        self._advance("on_arrival", now, request)
        if request.id in self._ledger:
            raise ValueError(f"request {request.id} is open already")
        refusal = self._refusal(now, request)
        if refusal is not None:
            self._ledger.refuse(refusal)
            return
        model = self._models[request.lane.model]
        lane = model.lane(request.lane)
        lane.rate.observe(now, request.rows, request.target_ns - request.arrival_ns)
        self._sequence += 1
        entry = Entry(request, self._sequence)
        entry.key = model.policy.key(entry)
        lane.queue.push(entry)
        model.add(entry)
        self._ledger.open(entry)
        lane.limits.push(request.limit_ns - lane.timing.raw_ns[request.rows], entry, lane.queue.requests)
        if model.limits.queue_timeout_ns:
            model.timeouts.push(request.arrival_ns + model.limits.queue_timeout_ns, entry, len(model.waiting))

    def on_cancel(self, now: int, request_id: int) -> None:
        """The caller withdrew. Ends at once; a batch that holds it already runs on without it. Unknown ids have ended."""
        self._advance("on_cancel", now, request_id)
        entry = self._ledger.find(request_id)
        if entry is not None:
            self._end_anywhere(entry, Outcome.CANCELLED, reasons.CANCELLED)

    # -- executor -----------------------------------------------------------------------------------------------------------

    def on_started(self, now: int, batch_id: int) -> None:
        """The run of a batch began. Optional: without it the launch, or the end of the batch before, counts as the beginning."""
        self._advance("on_started", now, batch_id)
        flight = self._flights.find(batch_id)
        if flight is not None:
            self._begin(now, flight)

    def on_done(self, now: int, batch_id: int, result: BatchResult) -> None:
        """A batch ended. Results of batches that the machine has given up (executor lost) are ignored."""
        self._advance("on_done", now, [batch_id, result])
        flight = self._flights.find(batch_id)
        if flight is None:
            return
        self._begin(now, flight)
        self._flights.remove(flight)
        if self._flights.all:
            self._begin(now, self._flights.all[0])
        if result.failure is not None:
            self._failed(flight, result)
        else:
            self._succeeded(now, flight, result)

    def on_executor_up(self, now: int) -> None:
        """Batches may start."""
        self._advance("on_executor_up", now)
        self._up = True

    def on_executor_lost(self, now: int, retry_after_ns: int | None) -> None:
        """The executor is gone, and all models with it: everything ends, and arrivals until it is back, as ``unavailable``."""
        self._advance("on_executor_lost", now, retry_after_ns)
        self._up = False
        self._retry_ns = retry_after_ns
        lost = [entry for flight in self._flights.all for entry in flight.members]
        waiting = [entry for model in self._models.values() for entry in model.waiting.values()]
        for entry in lost + [entry for entry in waiting if entry.place is not Place.STAGED]:
            self._end_anywhere(entry, Outcome.UNAVAILABLE, reasons.EXECUTOR_LOST, retry_after_ns=retry_after_ns)
        self._flights.clear()

    def on_drain(self, now: int) -> None:
        """Shut down: nothing new is taken, what waits runs without waiting for company."""
        self._advance("on_drain", now)
        self._draining = True

    # -- the decision -------------------------------------------------------------------------------------------------------

    def decide(self, now: int) -> Decision:
        """All that follows from the events so far. A second call at the same time, without events between, decides nothing."""
        self._advance(None, now)
        self._expire(now)
        launches: list[BatchPlan] = []
        while (begin_ns := self._slot(now)) is not None:
            plan = self._launch(now, begin_ns)
            if plan is None:
                break
            launches.append(plan)
            # The accelerator is now taken for longer, which some of what waits cannot survive.
            self._expire(now)
        decision = Decision(tuple(launches), self._ledger.take_endings(), self._wake_at(now))
        if self._journal is not None:
            self._journal.decision(now, decision)
        return decision

    def snapshot(self, now: int) -> PodSnapshot:  # noqa: ARG002 - the agreed interface
        """What is where, for metrics. O(models + lanes)."""
        models = {digest: self._model_snapshot(digest, model) for digest, model in self._models.items()}
        oldest = [model.oldest_arrival_ns for model in models.values() if model.oldest_arrival_ns is not None]
        return PodSnapshot(
            queue_requests=sum(model.queue_requests for model in models.values()),
            queue_rows=sum(model.queue_rows for model in models.values()),
            queue_bytes=sum(model.queue_bytes for model in models.values()),
            oldest_arrival_ns=min(oldest, default=None),
            inflight_batches=min(1, len(self._flights)),
            staged_batches=max(0, len(self._flights) - 1),
            pending_requests=len(self._ledger),
            pending_rows=self._ledger.rows,
            pending_bytes=self._ledger.bytes,
            executor_up=self._up,
            draining=self._draining,
            models=models,
        )

    # -- inside: arrival ----------------------------------------------------------------------------------------------------

    def _refusal(self, now: int, request: RequestDescriptor) -> Ending | None:
        """The first objection to an arrival: state of the pod, size, capacity, feasibility."""
        if self._draining:
            return Ending(request.id, Outcome.UNAVAILABLE, reasons.DRAINING)
        model = self._models.get(request.lane.model)
        if model is None:
            return Ending(request.id, Outcome.UNAVAILABLE, reasons.MODEL_UNKNOWN)
        if not self._up:
            return Ending(request.id, Outcome.UNAVAILABLE, reasons.EXECUTOR_DOWN, retry_after_ns=self._retry_ns)
        refusal = refuse_size(request, model)
        if refusal is not None:
            return refusal
        needed_ns = self._answer_base(now) - now + model.timing(request.lane.bucket).need_ns(request.rows)
        return refuse_capacity(request, model, self._ledger, self._limits, needed_ns) or refuse_infeasible(
            request, now, needed_ns
        )

    def _answer_base(self, now: int) -> int:
        """A batch launched next, running for x, is answered at this plus x."""
        return self._flights.free_ns(now) + self._delay_ns

    # -- inside: launching --------------------------------------------------------------------------------------------------

    def _slot(self, now: int) -> int | None:
        """When a batch launched now would begin; None while none may be launched."""
        if not self._up:
            return None
        if not len(self._flights):
            return now
        if not self._limits.staging:
            return None
        staging_ns = self._flights.staging_ns(self._limits.staging_lead_ns)
        if staging_ns is None or now < staging_ns or self._flights.overran(now, self._limits.staging_lead_ns):
            return None
        return self._flights.free_ns(now)

    def _launch(self, now: int, begin_ns: int) -> BatchPlan | None:
        moment = Moment(now, begin_ns, self._delay_ns, draining=self._draining)
        choice = self._chooser.next(self._lanes(), moment)
        if choice is None:
            return None
        lane, candidate = choice
        timing = lane.timing
        limits = lane.model.limits
        check(1 <= candidate.rows <= limits.max_batch_rows, f"a batch of {candidate.rows} rows")
        check(all(entry.lane == lane.key for entry in candidate.members), "a batch of mixed lanes")
        check(sum(entry.bytes for entry in candidate.members) <= limits.max_batch_bytes, "a batch over its bytes")
        self._batches += 1
        plan = BatchPlan(
            batch_id=self._batches,
            lane=lane.key,
            members=tuple(entry.id for entry in candidate.members),
            rows=candidate.rows,
            execution_size=timing.execution_size(candidate.rows),
            reason=candidate.reason,
            predicted_ns=timing.expected_ns(candidate.rows),
            latest_start_ns=candidate.latest_start_ns,
        )
        self._hand_over(Flight(plan, lane, candidate.members, begin_ns), candidate)
        self._give_up(now, lane, candidate)
        lane.model.settle(lane)
        return plan

    def _hand_over(self, flight: Flight, candidate: Candidate) -> None:
        lane = flight.lane
        for entry in candidate.members:
            if entry.place is Place.QUEUED:
                lane.queue.remove(entry)
        if candidate.isolated:
            lane.isolating.popleft()
        self._flights.add(flight)
        for entry in candidate.members:
            if entry.place is Place.RUNNING:
                lane.model.drop(entry)

    def _give_up(self, now: int, lane: Lane, candidate: Candidate) -> None:
        """End the heads that a window drop passed over, where the batch that they gave way to costs them their limit."""
        base_ns = self._answer_base(now)
        for entry in candidate.skipped:
            needed_ns = base_ns + lane.timing.need_ns(entry.rows)
            if needed_ns > entry.limit:
                lane.queue.remove(entry)
                lane.model.drop(entry)
                self._ledger.end(
                    entry,
                    Outcome.SHED,
                    reasons.WINDOW_DROP,
                    needed_ns=needed_ns - now,
                    had_ns=max(0, entry.limit - now),
                    retry_after_ns=base_ns - now,
                )

    def _begin(self, now: int, flight: Flight) -> None:
        """The run of a flight begins, or began, now: its members wait no more."""
        begun = not flight.members or flight.members[0].place is Place.RUNNING
        if not begun or flight.begin_ns > now:
            flight.begin_ns = now
        for entry in flight.members:
            if entry.place is Place.STAGED:
                entry.place = Place.RUNNING
                flight.lane.model.drop(entry)

    # -- inside: results ----------------------------------------------------------------------------------------------------

    def _succeeded(self, now: int, flight: Flight, result: BatchResult) -> None:
        timing, rows = flight.lane.timing, flight.plan.rows
        if result.execution_ns > 0 and rows <= timing.max_rows:
            timing.correction.observe(result.execution_ns, timing.raw_ns[rows])
        for entry in flight.members:
            message = result.member_failures.get(entry.id)
            if message is not None:
                self._ledger.end(entry, Outcome.FAILED, reasons.MEMBER_FAILED, message=message)
            elif now <= entry.target:
                self._ledger.end(entry, Outcome.COMPLETED, reasons.ON_TIME)
            elif now <= entry.limit:
                self._ledger.end(entry, Outcome.LATE, reasons.TARGET_PASSED)
            else:
                self._ledger.end(entry, Outcome.EXPIRED, reasons.LIMIT_PASSED)

    def _failed(self, flight: Flight, result: BatchResult) -> None:
        """A whole batch failed while the executor survived: its members run again in halves, a single one is the culprit (B003)."""
        lane = flight.lane
        known = self._models.get(lane.key.model) is lane.model
        single = len(flight.plan.members) == 1
        if single or not known:
            for entry in flight.members:
                if single:
                    reason = reasons.OUT_OF_MEMORY if result.out_of_memory else reasons.MODEL_FAILED
                    self._ledger.end(entry, Outcome.FAILED, reason, message=result.failure or "")
                else:
                    self._ledger.end(entry, Outcome.UNAVAILABLE, reasons.MODEL_REMOVED)
            return
        if not flight.members:
            return
        lane = lane.model.lane(lane.key)
        isolation.split(lane, flight.members)
        for entry in flight.members:
            lane.model.add(entry)

    # -- inside: leaving early ----------------------------------------------------------------------------------------------

    def _expire(self, now: int) -> None:
        """End all that can no longer be answered before its limit, and carry out queue timeouts."""
        base_ns = self._answer_base(now)
        for flight in self._flights.all:
            self._expire_flight(now, flight)
        for model in self._models.values():
            self._expire_timeouts(now, model)
            for lane in list(model.lanes.values()):
                while (entry := lane.limits.pop_due(self._limit_threshold(lane, base_ns))) is not None:
                    self._expire_waiting(now, entry, base_ns + lane.timing.need_ns(entry.rows))
                for entry in isolation.lost(lane, base_ns):
                    self._expire_waiting(now, entry, base_ns + lane.timing.need_ns(entry.rows))

    def _expire_flight(self, now: int, flight: Flight) -> None:
        limit_ns = flight.next_limit_ns()
        if limit_ns is None or limit_ns > now:
            return
        for entry in [entry for entry in flight.members if entry.limit <= now]:
            self._end_anywhere(entry, Outcome.EXPIRED, reasons.LIMIT_PASSED)

    def _expire_waiting(self, now: int, entry: Entry, answered_ns: int) -> None:
        self._end_waiting(
            entry,
            Outcome.EXPIRED,
            reasons.LIMIT_UNREACHABLE,
            needed_ns=answered_ns - now,
            had_ns=max(0, entry.limit - now),
        )

    def _expire_timeouts(self, now: int, model: Model) -> None:
        while (entry := model.timeouts.pop_due(now + 1)) is not None:
            if model.limits.timeout_action is TimeoutAction.REJECT:
                self._end_anywhere(entry, Outcome.EXPIRED, reasons.QUEUE_TIMEOUT, had_ns=model.limits.queue_timeout_ns)
            elif entry.place is Place.QUEUED:
                model.lanes[entry.lane].queue.demote(entry, BEHIND_ALL)

    @staticmethod
    def _limit_threshold(lane: Lane, base_ns: int) -> int:
        """Requests with ``limit - l(rows)`` below this are lost: f·l(rows) >= l(rows) + (f·l(1) - l(1))."""
        return base_ns + lane.timing.need_ns(1) - lane.timing.raw_ns[1]

    # -- inside: endings ----------------------------------------------------------------------------------------------------

    def _end_anywhere(
        self,
        entry: Entry,
        outcome: Outcome,
        reason: str,
        *,
        had_ns: int | None = None,
        retry_after_ns: int | None = None,
    ) -> None:
        if entry.place in (Place.QUEUED, Place.ISOLATED):
            self._end_waiting(entry, outcome, reason, had_ns=had_ns, retry_after_ns=retry_after_ns)
            return
        flight = next(flight for flight in self._flights.all if entry in flight.members)
        flight.members.remove(entry)
        if entry.place is Place.STAGED:
            flight.lane.model.drop(entry)
        self._ledger.end(entry, outcome, reason, had_ns=had_ns, retry_after_ns=retry_after_ns)

    def _end_waiting(
        self,
        entry: Entry,
        outcome: Outcome,
        reason: str,
        *,
        needed_ns: int | None = None,
        had_ns: int | None = None,
        retry_after_ns: int | None = None,
    ) -> None:
        model = self._models[entry.lane.model]
        lane = model.lanes[entry.lane]
        if entry.place is Place.QUEUED:
            lane.queue.remove(entry)
        else:
            isolation.remove(lane, entry)
        model.drop(entry)
        self._ledger.end(entry, outcome, reason, needed_ns=needed_ns, had_ns=had_ns, retry_after_ns=retry_after_ns)
        model.settle(lane)

    # -- inside: time -------------------------------------------------------------------------------------------------------

    def _advance(self, kind: str | None, now: int, payload: object = None) -> None:
        if now < self._now:
            raise ValueError(f"time went back from {self._now} to {now}")
        self._now = now
        if kind is not None and self._journal is not None:
            self._journal.event(kind, now, payload)

    def _wake_at(self, now: int) -> int | None:
        """When something will happen without an event: an expiry, the end of a window, the time to stage. None: never."""
        times = [limit for flight in self._flights.all if (limit := flight.next_limit_ns()) is not None]
        free_ns = self._flights.free_ns(now)
        for model in self._models.values():
            timeout_ns = model.timeouts.next_ns()
            if timeout_ns is not None:
                times.append(timeout_ns)
            for lane in model.lanes.values():
                lost_ns = lane.limits.next_ns()
                if lost_ns is not None:
                    times.append(lost_ns - self._limit_threshold(lane, self._delay_ns) + 1)
                lost_ns = isolation.next_lost_ns(lane, self._delay_ns)
                if lost_ns is not None:
                    times.append(lost_ns)
        work_ns = self._work_at(now, free_ns)
        if work_ns is not None:
            times.append(work_ns)
        wake_ns = min(times, default=None)
        check(wake_ns is None or wake_ns > now, f"wake at {wake_ns}, it is {now}")
        return wake_ns

    def _work_at(self, now: int, free_ns: int) -> int | None:
        """When a batch could next be launched without an event."""
        if not self._up:
            return None
        staging_ns: int | None = now
        if len(self._flights):
            staging_ns = self._flights.staging_ns(self._limits.staging_lead_ns) if self._limits.staging else None
            if staging_ns is None or self._flights.overran(now, self._limits.staging_lead_ns):
                return None
        moment = Moment(now, free_ns, self._delay_ns, draining=self._draining)
        ready_ns = self._chooser.ready_ns(self._lanes(), moment)
        if ready_ns is None:
            return None
        at_ns = max(ready_ns, staging_ns if staging_ns is not None else now)
        return at_ns if at_ns > now else None

    # -- inside: views ------------------------------------------------------------------------------------------------------

    def _model(self, digest: str) -> Model:
        model = self._models.get(digest)
        if model is None:
            raise ValueError(f"model {digest!r} is not known")
        return model

    def _lanes(self) -> Iterable[Lane]:
        return (lane for model in self._models.values() for lane in model.lanes.values())

    def _model_snapshot(self, digest: str, model: Model) -> ModelSnapshot:
        ours = [flight.plan.lane.model == digest for flight in self._flights.all]
        return ModelSnapshot(
            queue_requests=len(model.waiting),
            queue_rows=model.rows,
            queue_bytes=model.bytes,
            oldest_arrival_ns=min((entry.arrival for entry in model.waiting.values()), default=None),
            inflight_batches=sum(ours[:1]),
            staged_batches=sum(ours[1:]),
            lanes=len(model.lanes),
            profile_error_ratio={bucket: correction.ratio for bucket, correction in model.corrections.items()},
            safety_factor={bucket: correction.factor for bucket, correction in model.corrections.items()},
        )
