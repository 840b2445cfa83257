"""States of the machine that once broke it: mixed rows and weights, a fast accelerator, failed hand-overs."""

from __future__ import annotations

import random

import pytest
from harness_core.decision import BatchResult
from harness_core.descriptor import LaneKey, RequestDescriptor
from harness_core.outcome import Outcome
from harness_core.pod.settings import PodLimits, PolicyName
from harness_core.profile import LatencyProfile

from tests.core.builders import MS, Pod, make_limits


def overload(seed: int, weights: list[float], rows: list[int], rate: float, requests: int) -> dict[int, Outcome]:
    """Outcomes by id of a random overload of one lane, l = 5 + b ms, batches up to 32, budgets of 10-80 ms, noise of 3 %."""
    rng = random.Random(seed)
    pod = Pod(make_limits(max_batch_rows=32), PodLimits())
    flying: list[tuple[int, int, int]] = []
    now = arrival = count = 0
    while count < requests or len(pod.endings) < count:
        times = [arrival] if count < requests else []
        times += [flying[0][1]] if flying else []
        now = min([*times, pod.wake_ns] if pod.wake_ns is not None else times)
        if count < requests and now == arrival:
            count += 1
            arrival = now + int(rng.expovariate(rate) * 1e9) + 1
            target = now + int(rng.uniform(10, 80) * MS)
            limit = target + rng.choice([0, 1000 * MS])
            lane, weight = LaneKey("m"), rng.choice(weights)
            pod.machine.on_arrival(now, RequestDescriptor(count, lane, rng.choice(rows), 1, now, target, limit, weight))
        elif flying and now == flying[0][1]:
            batch, _, took = flying.pop(0)
            pod.machine.on_done(now, batch, BatchResult(took))
            flying = [(batch, now + took, took) for batch, _, took in flying]
        for plan in pod.decide(now / MS).launches:
            took = int((5 + plan.rows) * MS * rng.gauss(1, 0.03))
            flying.append((plan.batch_id, (flying[-1][1] if flying else now) + took, took))
    return {request: ending.outcome for request, ending in pod.endings.items()}


@pytest.mark.parametrize("seed", [5, 6, 7])
@pytest.mark.parametrize("weights", [[1.0], [1.0, 10.0]])
def test_overload_of_mixed_rows_and_weights(weights: list[float], seed: int):
    """Requests of 1, 2, 8 and 16 rows, some worth ten: every one ends, and the accelerator is not wasted on the way."""
    outcomes = overload(seed, weights, [1, 2, 8, 16], 150, 1500)
    assert len(outcomes) == 1500
    assert sum(outcome is Outcome.COMPLETED for outcome in outcomes.values()) > 600


def flood(pod: Pod, requests: int) -> list[int]:
    """Requests that come at 1 ms and leave at once, so that the lane's rate plans large batches."""
    ids = [pod.arrive(1, rows=32, within_ms=100) for _ in range(requests)]
    for request in ids:
        pod.machine.on_cancel(1 * MS, request)
    return ids


def test_a_heavy_head_that_is_lost_begins_no_batch():
    """Eight rows worth five each have three rows' time left when the accelerator is free: whatever starts then, it has members."""
    pod = Pod(make_limits(max_batch_rows=32))
    pod.arrive(0, rows=32, within_ms=100)
    pod.decide(0)
    flood(pod, 10)
    pod.arrive(3, within_ms=41, limit_ms=9000)
    pod.arrive(3, rows=8, within_ms=42, limit_ms=9000, weight=5.0)
    roomy = pod.arrive(3, rows=8, within_ms=93, limit_ms=9000)
    pod.decide(3)
    pod.done(36, execution_ns=37 * MS)
    assert pod.launched[-1].members
    for at in (50, 70):
        pod.done(at)
    assert pod.outcome(roomy) is Outcome.COMPLETED


def test_crowds_behind_a_long_batch():
    """Any mix of rows, weights and budgets that waits for a long batch to end comes to an end itself."""
    for seed in range(200):
        rng, pod = random.Random(seed), Pod(make_limits(max_batch_rows=32))
        ids = [pod.arrive(0, rows=32, within_ms=100)]
        pod.decide(0)
        ids += flood(pod, rng.choice([0, 10]))
        for _ in range(rng.randint(4, 20)):
            within, rows = rng.choice([rng.uniform(43, 50), rng.uniform(60, 120)]), rng.choice([1, 2, 8, 16])
            weight, limit = rng.choice([1.0, 10.0]), rng.choice([None, 9000])
            ids.append(pod.arrive(1, rows=rows, within_ms=within, limit_ms=limit, weight=weight))
        pod.decide(1)
        at = 36.0
        while len(pod.endings) < len(ids):
            pod.done(at)
            at += 5 + pod.rows[-1]


def test_a_budget_that_is_exactly_the_need_is_enough():
    """need_ns and fit agree at their border, where rounding once made a batch of nobody."""
    pod = Pod()
    need_ns = pod.machine._state.models["m"].timing("").need_ns(1)
    request = pod.arrive(0, within_ms=need_ns / MS)
    pod.decide(0)
    assert pod.members == [(request,)]


def fast_pod(rows: int) -> tuple[Pod, float]:
    """A pod whose accelerator has long taken half of its profile's time, and the time; batches of ``rows``."""
    pod, at = Pod(make_limits(max_batch_rows=32)), 0.0
    for _ in range(200):
        pod.arrive(at, rows=rows)
        pod.decide(at)
        at += (5 + rows) / 2
        pod.done(at, execution_ns=round((5 + rows) / 2 * MS))
    return pod, at


def test_a_factor_below_one_refuses_nobody_who_can_be_served():
    """At f = 0.5 32 rows need 18.7 ms where the profile says 37. With 30 ms they are run; behind others each leaves when it must."""
    pod, at = fast_pod(32)
    assert pod.machine.snapshot(0).models["m"].safety_factor[""] == pytest.approx(0.505, abs=0.001)
    served = pod.arrive(at, rows=32, within_ms=30)
    pod.decide(at)
    assert pod.launched[-1].members == (served,)
    waiting = [pod.arrive(at, rows=32, within_ms=within) for within in (45, 42, 39)]
    pod.decide(at)
    need_ms = pod.machine._state.models["m"].timing("").need_ns(32) / MS
    # The first batch takes longer than expected, so that time alone decides.
    while not set(waiting) <= set(pod.ended_ms):
        pod.decide(pod.wake_ms)
    for request, within in zip(waiting, (45, 42, 39), strict=True):
        assert pod.ended_ms[request] == pytest.approx(at + within - need_ms, abs=0.001)


def test_a_staged_batch_that_cannot_be_handed_over_says_nothing_of_the_running_one():
    """The running batch's expected end stays where it was, and with it what the next ones are promised."""
    pod = Pod(make_limits(max_batch_rows=4), PodLimits())
    for _ in range(2):
        pod.arrive(0, rows=4)
    pod.decide(0)
    pod.decide(8.5)
    [running, staged] = pod.launched
    pod.done(8.6, failure="no slot")
    flight = pod.machine._state.flights.find(running.batch_id)
    assert pod.machine._state.flights.find(staged.batch_id) is None
    assert (flight.begin_ns, flight.end_ns) == (0, running.predicted_ns)


@pytest.mark.parametrize("late_ms", [0, 0.4, 0.999])
@pytest.mark.parametrize("early_ms", [0, 1.3])
@pytest.mark.parametrize("policy", [PolicyName.STATIC, PolicyName.MAX_DELAY])
def test_a_late_timer_costs_a_lone_request_of_a_fast_model_nothing(policy: PolicyName, early_ms: float, late_ms: float):
    """A run of 0.2 ms, timers of one millisecond: the limit's pressure is felt a grain early. One that fires early is asked again."""
    fast = LatencyProfile.linear(MS // 5, MS // 100, 8)
    limits = make_limits(policy=policy, default_profile=fast, max_queue_delay_ns=500 * MS)
    pod = Pod(limits, PodLimits(timer_grain_ns=MS))
    request = pod.arrive(0, within_ms=100)
    pod.decide(0)
    asked = pod.wake_ms
    pod.decide(asked - early_ms - 0.001)
    assert (pod.launched, pod.wake_ms) == ([], asked)
    pod.decide(asked + late_ms)
    pod.done(asked + late_ms + 0.3)
    assert pod.outcome(request) is Outcome.COMPLETED


def test_a_late_timer_still_refuses_before_the_deadline():
    """Behind a fast model's batch that does not end, what waits is refused in time by timers that fire a millisecond late."""
    fast = LatencyProfile.linear(MS // 5, MS // 100, 8)
    pod = Pod(make_limits(default_profile=fast, max_batch_rows=1), PodLimits(timer_grain_ns=MS))
    pod.arrive(0)
    pod.decide(0)
    budgets = {pod.arrive(0.1, within_ms=within): within for within in (3, 3.5, 8, 20)}
    pod.decide(0.1)
    while not set(budgets) <= set(pod.endings):
        pod.decide(pod.wake_ms + 0.999)
    staged = pod.members[1][0]
    for request, within in budgets.items():
        assert request == staged or pod.ended_ms[request] <= 0.1 + within


def test_what_waits_behind_an_overdue_and_a_staged_batch_counts_both():
    """The staged run is part of what a waiting request needs, also once the running one is overdue."""
    pod = Pod(make_limits(max_batch_rows=1), PodLimits())
    for _ in range(2):
        pod.arrive(0)
    pod.decide(0)
    pod.decide(5.5)
    assert len(pod.launched) == 2
    waiting = pod.arrive(5.6, within_ms=25)
    pod.decide(5.6)
    while waiting not in pod.endings:
        pod.decide(pod.wake_ms)
    # 6 ms of the staged run and 6.6 ms of its own, before 30.6 ms.
    assert pod.ended_ms[waiting] == pytest.approx(18, abs=0.001)


def test_an_update_computes_anew_when_requests_must_leave():
    """A profile fifty times faster, and another queue timeout: what waits leaves by the new ones."""
    slow = LatencyProfile.linear(50 * MS, 1, 4)
    pod = Pod(make_limits(default_profile=slow, max_batch_rows=4))
    pod.arrive(0, rows=4)
    pod.decide(0)
    hurried, patient = pod.arrive(0, rows=4, within_ms=130), pod.arrive(0, rows=4)
    pod.decide(0)
    quick = LatencyProfile.linear(MS, 1, 4)
    pod.machine.update_model(1 * MS, make_limits(default_profile=quick, max_batch_rows=4, queue_timeout_ns=400 * MS))
    pod.decide(1)
    while patient not in pod.endings:
        pod.decide(pod.wake_ms)
    assert pod.ended_ms[hurried] == pytest.approx(130 - 1.1, abs=0.001)
    assert (pod.ended_ms[patient], pod.endings[patient].reason) == (400, "queue_timeout")
