"""Scenarios of public bug reports at the machine: queues, timeouts, bounds, cancels, isolation (scenarios.md)."""

from __future__ import annotations

import pytest
from harness_core.descriptor import LaneKey
from harness_core.outcome import BatchReason, Outcome
from harness_core.pod.settings import PodLimits, PolicyName, TimeoutAction

from tests.core.builders import MS, Pod, make_limits


def test_b006_what_callers_gave_up_is_never_launched():
    """B006: ten requests with 200 ms limits behind a run of a second end before their limits, and only the first ran."""
    pod = Pod(make_limits(max_batch_rows=1))
    pod.arrive(0, within_ms=5000)
    pod.decide(0)
    waiting = [pod.arrive(10, within_ms=200) for _ in range(10)]
    pod.decide(10)
    while pod.wake_ms is not None and pod.wake_ms < 1000:
        pod.decide(pod.wake_ms)
    assert [pod.outcome(request) for request in waiting] == [Outcome.EXPIRED] * 10
    assert all(pod.ended_ms[request] <= 210 for request in waiting)
    pod.done(1000)
    assert len(pod.launched) == 1
    assert pod.wake_ns is None


def test_b006_cancelled_requests_leave_at_once():
    """B006: a cancel takes a waiting request out of queue, sums and future batches, and a running one ends at once."""
    pod = Pod(make_limits(max_batch_rows=1))
    first, second, third = pod.arrive(0), pod.arrive(0), pod.arrive(0)
    pod.decide(0)
    pod.machine.on_cancel(1 * MS, second)
    pod.machine.on_cancel(1 * MS, first)
    pod.decide(1)
    assert pod.outcome(second) is pod.outcome(first) is Outcome.CANCELLED
    assert pod.machine.snapshot(MS).queue_requests == 1
    pod.done(6)
    assert pod.members == [(first,), (third,)]
    pod.machine.on_cancel(7 * MS, first)
    pod.done(12)
    assert pod.outcome(third) is Outcome.COMPLETED


@pytest.mark.parametrize("staging", [False, True])
def test_b007_a_queue_timeout_is_exact(staging: bool):
    """B007 (a): A runs 9 s, B arrives at 0.1 s with a queue timeout of 1 s and is refused at 1.1 s."""
    pod = Pod(make_limits(max_batch_rows=1, queue_timeout_ns=1000 * MS), PodLimits(staging=staging))
    pod.arrive(0, within_ms=60_000)
    pod.decide(0)
    waiting = pod.arrive(100, within_ms=60_000)
    pod.decide(100)
    assert pod.wake_ms == 1100
    pod.decide(1099.999999)
    assert pod.outcome(waiting) is None
    pod.decide(1100)
    assert pod.outcome(waiting) is Outcome.EXPIRED
    assert pod.endings[waiting].reason == "queue_timeout"
    pod.done(9000)
    assert len(pod.launched) == 1


def test_b007_queue_timeout_holds_for_a_staged_request():
    """B007 (a): handed over behind a run that outlasts its profile, a request still ends by its timeout; its result is ignored."""
    pod = Pod(make_limits(max_batch_rows=1, queue_timeout_ns=1000 * MS), PodLimits(staging=True))
    pod.arrive(0, within_ms=60_000)
    pod.decide(0)
    staged = pod.arrive(1, within_ms=60_000)
    pod.decide(1)
    pod.decide(pod.wake_ms)
    assert len(pod.launched) == 2
    pod.decide(pod.wake_ms)
    assert pod.ended_ms[staged] == 1001
    assert pod.machine.snapshot(2000 * MS).queue_requests == 0


def test_b007_timeout_action_delay_puts_behind_all_others():
    """With action Delay the request stays, and runs after everything that came later."""
    limits = make_limits(max_batch_rows=1, queue_timeout_ns=10 * MS, timeout_action=TimeoutAction.DELAY)
    pod = Pod(limits)
    pod.arrive(0)
    pod.decide(0)
    delayed = pod.arrive(1)
    pod.decide(1)
    pod.decide(11)
    later = [pod.arrive(12 + index) for index in range(2)]
    pod.decide(13)
    for at in (14, 20, 26):
        pod.done(at)
    assert pod.members[1:] == [(later[0],), (later[1],), (delayed,)]


@pytest.mark.parametrize("pause_ms", [0, 50])
@pytest.mark.parametrize("staging", [False, True])
def test_b007_the_queue_bound_is_exact(pause_ms: int, staging: bool):
    """B007 (b): with room for 4, of ten calls behind a running one exactly 4 wait and 6 are refused at once."""
    pod = Pod(make_limits(max_batch_rows=1, max_queue_requests=4), PodLimits(staging=staging))
    pod.arrive(0, within_ms=60_000)
    pod.decide(0)
    calls = []
    for index in range(10):
        at = 2 + index * pause_ms
        while pod.wake_ms is not None and pod.wake_ms <= at:
            pod.decide(pod.wake_ms)
        calls.append(pod.arrive(at, within_ms=60_000))
        pod.decide(at)
    assert [pod.outcome(call) for call in calls] == [None] * 4 + [Outcome.REJECTED_CAPACITY] * 6
    assert all(pod.endings[call].retry_after_ns for call in calls[4:])
    assert pod.machine.snapshot(10**12).queue_requests == 4


def test_b007_bounds_on_bytes_and_on_the_pod():
    """Each bound refuses on arrival and names itself."""
    pod = Pod(make_limits(max_queue_bytes=100), PodLimits(staging=False, max_pending_requests=5, max_pending_rows=9))
    pod.arrive(0, rows=4)
    pod.decide(0)
    small, big, many = pod.arrive(1), pod.arrive(1, bytes=91), pod.arrive(1, rows=5)
    pod.decide(1)
    assert pod.outcome(small) is None
    assert "100" in pod.endings[big].message
    assert "9" in pod.endings[many].message
    assert {pod.outcome(big), pod.outcome(many)} == {Outcome.REJECTED_CAPACITY}


@pytest.mark.parametrize("policy", list(PolicyName))
def test_b009_rows_count_and_no_request_is_cut(policy: PolicyName):
    """B009: max 8 rows; six calls of 3 rows run as 6+6+6, nine calls of 1 row as 8+1."""
    for rows, count, want in ((3, 6, [6, 6, 6]), (1, 9, [8, 1])):
        pod = Pod(make_limits(policy=policy, max_queue_delay_ns=50 * MS))
        for _ in range(count):
            pod.arrive(0, rows=rows, within_ms=500)
        pod.decide(0)
        at = 0.0
        while pod.machine.snapshot(0).pending_requests:
            running = pod.machine.snapshot(0).inflight_batches
            at = at + 5 + pod.rows[-1] if running else pod.wake_ms
            (pod.done if running else pod.decide)(at)
        assert pod.rows == want
        assert set(map(pod.outcome, pod.endings)) == {Outcome.COMPLETED}


def test_b009_more_rows_than_a_batch_holds_is_invalid():
    """A request that no batch could hold is refused with the limit named."""
    pod = Pod()
    request = pod.arrive(0, rows=9)
    pod.decide(0)
    assert pod.outcome(request) is Outcome.INVALID
    assert "8" in pod.endings[request].message


def test_b012_only_equal_lanes_merge():
    """B012: lengths 7, 12, 7, 7 (two rows): four rows of 7 together, 12 alone."""
    pod = Pod()
    lanes = {length: LaneKey("m", f"IDS={length}") for length in (7, 12)}
    ids = [pod.arrive(0, rows=rows, lane=lanes[length]) for length, rows in ((7, 1), (12, 1), (7, 1), (7, 2))]
    pod.decide(0)
    pod.done(10)
    pod.done(20)
    assert sorted(pod.members) == sorted([(ids[0], ids[2], ids[3]), (ids[1],)])
    assert sorted(pod.rows) == [1, 4]


def test_lanes_are_made_on_arrival_and_stay_bounded():
    """A thousand shapes, one after the other, leave no thousand lanes behind."""
    pod = Pod()
    for index in range(1000):
        at = index * 10
        pod.arrive(at, lane=LaneKey("m", f"IDS={index}"))
        pod.decide(at)
        pod.done(at + 6)
    model = pod.machine._state.models["m"]
    assert not model.lanes
    assert len(model.idle_lanes) <= 64
    assert len(model.waiting) == len(model.timeouts) == 0


def poison_result(pod: Pod, poison: set[int]) -> dict:
    """What an executor says of the last batch when it fails with any of ``poison`` inside."""
    return {"failure": "boom"} if poison & set(pod.launched[-1].members) else {}


@pytest.mark.parametrize("poison_at", [{3}, {0, 7}, set(range(8))])
def test_b003_the_poison_alone_fails(poison_at: set[int]):
    """B003: a failed batch runs again in halves; innocents are answered, the poison fails with its message, each alone at most once."""
    pod = Pod()
    ids = [pod.arrive(0) for _ in range(8)]
    poison = {ids[index] for index in poison_at}
    pod.decide(0)
    at = 0
    while pod.machine.snapshot(0).inflight_batches:
        at += 10
        pod.done(at, **poison_result(pod, poison))
    assert {request for request in ids if pod.outcome(request) is Outcome.FAILED} == poison
    assert {request for request in ids if pod.outcome(request) is Outcome.COMPLETED} == set(ids) - poison
    assert all(pod.endings[request].message == "boom" for request in poison)
    alone = [members for members in pod.members if len(members) == 1]
    assert len(alone) == len(set(alone))
    assert all(plan.reason is BatchReason.ISOLATE for plan in pod.launched[1:])


def test_b003_isolation_does_not_starve_other_lanes():
    """While a batch of eight is taken apart, another lane's requests run in turn with its parts; its own lane waits."""
    pod = Pod()
    pod.machine.add_model(0, make_limits(model="other", max_batch_rows=1))
    ids = [pod.arrive(0) for _ in range(8)]
    pod.decide(0)
    others = [pod.arrive(1, lane=LaneKey("other")) for _ in range(4)]
    same = pod.arrive(1)
    at = 0
    while pod.machine.snapshot(0).inflight_batches:
        at += 10
        pod.done(at, **poison_result(pod, {ids[0]}))
    kinds = ["other" if plan.lane.model == "other" else plan.reason.value for plan in pod.launched[1:]]
    assert kinds == ["isolate", "other"] * 4 + ["isolate"] * 2 + ["idle"]
    assert all(pod.outcome(request) is Outcome.COMPLETED for request in [*others, same])


def test_b003_isolated_members_respect_cancel_limit_and_loss():
    """Waiting to be run apart is waiting: cancels, limits and the loss of the executor end it."""
    pod = Pod(make_limits(policy=PolicyName.IMMEDIATE))
    ids = [pod.arrive(0, within_ms=40 if index == 7 else 500) for index in range(8)]
    pod.decide(0)
    pod.done(10, failure="boom")
    pod.machine.on_cancel(11 * MS, ids[6])
    pod.decide(11)
    while pod.wake_ms is not None and pod.wake_ms < 40:
        pod.decide(pod.wake_ms)
    assert pod.outcome(ids[6]) is Outcome.CANCELLED
    assert pod.endings[ids[7]].reason == "limit_unreachable"
    pod.machine.on_executor_lost(50 * MS, 7)
    pod.decide(50)
    assert [pod.outcome(request) for request in ids[:6]] == [Outcome.UNAVAILABLE] * 6
    assert pod.machine.snapshot(0).pending_requests == 0


def test_isolated_members_that_no_longer_fit_are_invalid():
    """The bounds of a batch shrank while it ran and failed: what fits runs apart, the rest ends with the limit named."""
    pod = Pod()
    small, big = pod.arrive(0, rows=2), pod.arrive(0, rows=3)
    pod.decide(0)
    pod.machine.update_model(1 * MS, make_limits(max_batch_rows=2))
    pod.done(10, failure="boom")
    pod.done(17)
    assert pod.outcome(small) is Outcome.COMPLETED
    assert pod.endings[big].reason == "rows_over_max"


def test_out_of_memory_is_taken_apart_and_named():
    """A single request that does not fit the device fails with the reason out_of_memory; smaller batches succeed."""
    pod = Pod()
    pair = [pod.arrive(0), pod.arrive(0)]
    pod.decide(0)
    pod.done(10, failure="CUDA out of memory", out_of_memory=True)
    pod.done(20, failure="CUDA out of memory", out_of_memory=True)
    pod.done(30)
    assert [pod.endings[request].reason for request in pair] == ["out_of_memory", "on_time"]


def test_member_failures_hurt_only_their_members():
    """The batch succeeded, one member's part could not be read."""
    pod = Pod()
    good, bad = pod.arrive(0), pod.arrive(0)
    pod.decide(0)
    pod.done(7, member_failures={bad: "no rows"})
    assert pod.outcome(good) is Outcome.COMPLETED
    assert (pod.outcome(bad), pod.endings[bad].message) == (Outcome.FAILED, "no rows")


def test_b048_the_queue_is_seen_while_nothing_completes():
    """B048: 50 calls at a slow model: one runs, 49 wait, the oldest's age can be read; all 0 after the cancel."""
    pod = Pod(make_limits(max_batch_rows=1))
    ids = [pod.arrive(index, within_ms=200_000) for index in range(50)]
    pod.decide(50)
    view = pod.machine.snapshot(10_000 * MS)
    assert (view.inflight_batches, view.queue_requests, view.oldest_arrival_ns) == (1, 49, 1 * MS)
    assert view.models["m"].queue_requests == 49
    for request in ids:
        pod.machine.on_cancel(10_001 * MS, request)
    pod.decide(10_001)
    view = pod.machine.snapshot(10_001 * MS)
    assert (view.queue_requests, view.queue_rows, view.queue_bytes, view.oldest_arrival_ns) == (0, 0, 0, None)
    assert view.pending_requests == 0
