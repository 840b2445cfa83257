"""The pod's machine under arbitrary models, policies and events (hypothesis, stateful).

Checked all along: exactly one outcome per request, never a batch over its limits or of mixed lanes, at most two batches handed over, queues
bounded and sums exact, decisions idempotent, no wake-up in the past, and at the end a replay of the journal that
decides the same.
"""

from __future__ import annotations

import json
from collections import Counter

from harness_core.decision import BatchResult, Decision
from harness_core.descriptor import LaneKey, RequestDescriptor
from harness_core.journal import Journal, replay
from harness_core.outcome import BatchReason, Outcome
from harness_core.pod.machine import PodMachine
from harness_core.pod.settings import ModelLimits, PodLimits, PolicyName, TimeoutAction
from harness_core.profile import LatencyProfile, ProfilePoint
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

MS = 1_000_000
MODELS = ("a", "b")
BUCKETS = ("", "x", "y")

profiles = st.one_of(
    st.builds(LatencyProfile.linear, st.integers(0, 20 * MS), st.integers(1, 3 * MS), st.just(16)),
    st.lists(
        st.builds(ProfilePoint, st.integers(1, 16), st.integers(1, 50 * MS)),
        min_size=1,
        max_size=4,
        unique_by=lambda p: p.size,
    ).map(LatencyProfile.from_points),
)


@st.composite
def model_limits(draw, name: str) -> ModelLimits:
    """Any model: small bounds, so that they are met; or one that plans large batches (see ``burst``)."""
    if draw(st.booleans()):
        linear = LatencyProfile.linear(5 * MS, MS, 32)
        return ModelLimits(model=name, default_profile=linear, max_batch_rows=32, objective_ns=100 * MS)
    most = draw(st.integers(1, 8))
    sizes = draw(st.sets(st.integers(1, most), max_size=3))
    return ModelLimits(
        model=name,
        default_profile=draw(profiles),
        profiles={"x": draw(profiles)} if draw(st.booleans()) else {},
        policy=draw(st.sampled_from(PolicyName)),
        max_batch_rows=most,
        max_batch_bytes=draw(st.sampled_from([30, 1000])),
        execution_sizes=tuple(sorted(sizes | {most})) if sizes else (),
        objective_ns=100 * MS,
        max_queue_requests=draw(st.sampled_from([3, 20])),
        max_queue_bytes=draw(st.sampled_from([60, 10_000])),
        max_queue_delay_ns=draw(st.sampled_from([0, 5 * MS, 50 * MS])),
        queue_timeout_ns=draw(st.sampled_from([0, 0, 20 * MS])),
        timeout_action=draw(st.sampled_from(TimeoutAction)),
    )


class Machine(RuleBasedStateMachine):
    """The machine with a driver that may do all that a driver may do."""

    @initialize(data=st.data(), staging=st.booleans(), delay=st.integers(0, 2 * MS))
    def begin(self, data, staging: bool, delay: int) -> None:
        pod = PodLimits(
            max_pending_requests=30,
            max_pending_rows=200,
            max_pending_bytes=2000,
            dispatch_delay_ns=delay,
            staging=staging,
        )
        self.journal = Journal()
        self.machine = PodMachine(pod, self.journal)
        self.pod = pod
        self.now = 0
        self.limits: dict[str, ModelLimits] = {}
        for name in MODELS:
            self.limits[name] = data.draw(model_limits(name))
            self.machine.add_model(0, self.limits[name])
        self.machine.on_executor_up(0)
        self.up, self.draining = True, False
        self.open: dict[int, RequestDescriptor] = {}
        self.ended: dict[int, Outcome] = {}
        self.flying: list = []
        self.alone: Counter[int] = Counter()
        self.wake: int | None = None
        self.decided: list[Decision] = []
        self.next_id = 1

    def decide(self) -> None:
        decision = self.machine.decide(self.now)
        assert self.machine.decide(self.now) == Decision((), (), decision.wake_at_ns)
        self.decided.append(decision)
        self.wake = decision.wake_at_ns
        assert self.wake is None or self.wake > self.now
        for plan in decision.launches:
            self.launched(plan)
        for ending in decision.endings:
            request = self.open.pop(ending.request_id)
            assert request.id not in self.ended
            self.ended[request.id] = ending.outcome
            if ending.outcome is Outcome.COMPLETED:
                assert self.now <= request.target_ns
            if ending.outcome is Outcome.LATE:
                assert request.target_ns < self.now <= request.limit_ns
        assert all(plan.members for plan in self.flying)

    def launched(self, plan) -> None:
        assert self.up
        members = [self.open[member] for member in plan.members]
        assert len({member.id for member in members}) == len(members) > 0
        assert {member.lane for member in members} == {plan.lane}
        limits = self.limits[plan.lane.model]
        assert sum(member.rows for member in members) == plan.rows <= limits.max_batch_rows
        assert sum(member.bytes for member in members) <= limits.max_batch_bytes
        assert plan.rows <= plan.execution_size
        assert not limits.execution_sizes or plan.execution_size in limits.execution_sizes
        if plan.reason is BatchReason.ISOLATE and len(members) == 1:
            self.alone[members[0].id] += 1
            assert self.alone[members[0].id] == 1
        for other in self.flying:
            assert not set(other.members) & set(plan.members)
        self.flying.append(plan)
        assert len(self.flying) <= (2 if self.pod.staging else 1)

    @rule(
        model=st.sampled_from(MODELS),
        bucket=st.sampled_from(BUCKETS),
        rows=st.integers(1, 9),
        size=st.sampled_from([1, 10, 31]),
        within=st.integers(0, 150),
        more=st.sampled_from([0, 0, 30, 1000]),
        priority=st.sampled_from([1, 9]),
        weight=st.sampled_from([1.0, 10.0]),
        count=st.integers(1, 4),
        decide=st.booleans(),
    )
    def arrive(self, model, bucket, rows, size, within, more, priority, weight, count, decide) -> None:
        for _ in range(count):
            target = self.now + within * MS
            request = RequestDescriptor(
                self.next_id, LaneKey(model, bucket), rows, size, self.now, target, target + more * MS, weight, priority
            )
            self.next_id += 1
            self.open[request.id] = request
            self.machine.on_arrival(self.now, request)
        if decide:
            self.decide()

    @rule(
        model=st.sampled_from(MODELS),
        requests=st.lists(
            st.tuples(
                st.sampled_from([1, 2, 8, 16]),
                st.one_of(st.integers(6, 20), st.integers(40, 90)),
                st.sampled_from([1.0, 10.0]),
            ),
            min_size=4,
            max_size=16,
        ),
        more=st.sampled_from([0, 1000]),
        flood=st.sampled_from([0, 10]),
    )
    def crowd(self, model, requests, more, flood) -> None:
        """Behind a running batch a crowd comes: large batches are planned while heads of any weight and rows allow only small ones."""
        free = self.now + (self.flying[0].predicted_ns if self.flying else 0)
        crowd = [(16, 90, 1.0)] * flood + requests
        for index, (rows, within, weight) in enumerate(crowd):
            target = free + within * MS
            request = RequestDescriptor(
                self.next_id, LaneKey(model), rows, 1, self.now, target, target + more * MS, weight
            )
            self.next_id += 1
            self.open[request.id] = request
            self.machine.on_arrival(self.now, request)
            if index < flood:
                self.machine.on_cancel(self.now, request.id)
        self.decide()
        if self.flying:
            plan = self.flying.pop(0)
            self.now = max(self.now, free)
            self.machine.on_done(self.now, plan.batch_id, BatchResult(plan.predicted_ns))
            self.decide()

    @rule(step=st.integers(0, 40 * MS))
    def wait(self, step: int) -> None:
        """Time passes; every wake-up on the way is answered."""
        end = self.now + step
        while self.wake is not None and self.wake <= end:
            self.now = self.wake
            self.decide()
        self.now = end
        self.decide()

    @precondition(lambda self: self.open)
    @rule(data=st.data(), decide=st.booleans())
    def cancel(self, data, decide: bool) -> None:
        self.machine.on_cancel(self.now, data.draw(st.sampled_from(sorted(self.open))))
        if decide:
            self.decide()

    @precondition(lambda self: self.flying)
    @rule(
        data=st.data(),
        fate=st.sampled_from(["ok", "ok", "ok", "fail", "oom", "member"]),
        ratio=st.sampled_from([0.5, 1, 3]),
    )
    def done(self, data, fate: str, ratio: float) -> None:
        plan = self.flying.pop(0)
        took = round(plan.predicted_ns * ratio)
        failures = {data.draw(st.sampled_from(plan.members)): "bad part"} if fate == "member" else {}
        failure = "boom" if fate in {"fail", "oom"} else None
        if data.draw(st.booleans()):
            self.machine.on_started(self.now, plan.batch_id)
        self.now += data.draw(st.sampled_from([0, took]))
        self.machine.on_done(
            self.now, plan.batch_id, BatchResult(took, failure, out_of_memory=fate == "oom", member_failures=failures)
        )
        self.decide()

    @rule()
    def stranger_events(self) -> None:
        """Results and cancels of what has long ended change nothing."""
        self.machine.on_done(self.now, 10**6, BatchResult(1))
        self.machine.on_started(self.now, 10**6)
        self.machine.on_cancel(self.now, 10**6)

    @rule(data=st.data(), model=st.sampled_from(MODELS))
    def update(self, data, model: str) -> None:
        self.limits[model] = data.draw(model_limits(model))
        self.machine.update_model(self.now, self.limits[model])
        self.decide()

    @rule(data=st.data(), model=st.sampled_from(MODELS))
    def replace(self, data, model: str) -> None:
        self.machine.remove_model(self.now, model)
        self.decide()
        self.limits[model] = data.draw(model_limits(model))
        self.machine.add_model(self.now, self.limits[model])

    @rule(delay=st.integers(0, 5 * MS))
    def delay(self, delay: int) -> None:
        self.machine.set_dispatch_delay(self.now, delay)

    @precondition(lambda self: self.up)
    @rule()
    def lose(self) -> None:
        self.machine.on_executor_lost(self.now, 5 * MS)
        self.up = False
        self.flying.clear()
        self.decide()
        assert not self.open
        assert self.wake is None

    @precondition(lambda self: not self.up)
    @rule()
    def restore(self) -> None:
        self.machine.on_executor_up(self.now)
        self.up = True

    @precondition(lambda self: not self.draining and self.next_id > 60)
    @rule()
    def drain(self) -> None:
        self.machine.on_drain(self.now)
        self.draining = True
        self.decide()

    @invariant()
    def sums_are_exact_and_bounded(self) -> None:
        if not hasattr(self, "machine"):
            return
        view = self.machine.snapshot(self.now)
        assert view.pending_requests <= len(self.open)
        assert view.pending_requests <= self.pod.max_pending_requests
        assert view.pending_rows <= self.pod.max_pending_rows
        assert view.pending_bytes <= self.pod.max_pending_bytes
        state = self.machine._state
        for name, model in state.models.items():
            queued = [entry for lane in model.lanes.values() for entry in lane.queue.in_order()]
            isolated = [entry for lane in model.lanes.values() for group in lane.isolating for entry in group]
            waiting = {entry.id for entry in (*queued, *isolated)}
            assert waiting <= set(model.waiting)
            assert view.models[name].queue_rows == sum(entry.rows for entry in model.waiting.values())
            assert view.models[name].queue_bytes == sum(entry.bytes for entry in model.waiting.values())
            assert all(lane.waits for lane in model.lanes.values())
            assert all(group for lane in model.lanes.values() for group in lane.isolating)
            assert len(model.lanes) <= max(1, len(model.waiting))

    def teardown(self) -> None:
        if not hasattr(self, "machine"):
            return
        self.decide()
        while self.open:
            if self.flying:
                plan = self.flying.pop(0)
                self.now += plan.predicted_ns
                self.machine.on_done(self.now, plan.batch_id, BatchResult(plan.predicted_ns))
            else:
                assert self.wake is not None, f"{len(self.open)} requests wait for nothing"
                self.now = self.wake
            self.decide()
        assert len(self.ended) == self.next_id - 1
        assert self.machine.snapshot(self.now).pending_requests == 0
        written = json.loads(json.dumps(self.journal.entries))
        assert replay(written, PodMachine) == []


Machine.TestCase.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestMachine = Machine.TestCase
