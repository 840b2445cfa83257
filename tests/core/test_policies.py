"""Policies as narrative tables, and what the machine promises under each: when batches leave, what is refused, dropped or late."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from harness_core.descriptor import LaneKey
from harness_core.outcome import BatchReason, Outcome
from harness_core.pod.settings import PodLimits, PolicyName
from harness_core.profile import LatencyProfile

from tests.core.builders import MS, Pod, make_limits


@dataclass(frozen=True)
class LoneCase:
    """One request at 0 on an idle accelerator: when its batch leaves, and why."""

    name: str
    policy: PolicyName
    within_ms: float
    want_at_ms: float
    want_reason: BatchReason


LONE = [
    LoneCase("Deadline starts an idle accelerator at once", PolicyName.DEADLINE, 100, 0, BatchReason.IDLE),
    LoneCase("Immediate starts at once", PolicyName.IMMEDIATE, 100, 0, BatchReason.IDLE),
    LoneCase("MaxDelay waits for company until its window ends", PolicyName.MAX_DELAY, 100, 20, BatchReason.WINDOW),
    LoneCase("MaxDelay leaves early rather than break a limit", PolicyName.MAX_DELAY, 25, 12.4, BatchReason.WINDOW),
    LoneCase("Static waits until the limit presses", PolicyName.STATIC, 100, 87.4, BatchReason.DEADLINE),
]


@pytest.mark.parametrize("case", LONE, ids=lambda case: case.name)
def test_a_lone_request(case: LoneCase):
    """Leaves exactly at the time that its policy promises, by the machine's own timer, and is on time."""
    pod = Pod(make_limits(policy=case.policy, max_queue_delay_ns=20 * MS))
    request = pod.arrive(0, within_ms=case.within_ms)
    pod.decide(0)
    if case.want_at_ms:
        assert pod.launched == []
        assert pod.wake_ms == pytest.approx(case.want_at_ms, abs=0.001)
        pod.decide(pod.wake_ms)
    [plan] = pod.launched
    assert plan.reason is case.want_reason
    assert plan.members == (request,)
    pod.done((pod.wake_ms or 0) if case.want_at_ms == 0 else case.want_at_ms + 6)
    assert pod.outcome(request) is Outcome.COMPLETED
    assert pod.wake_ns is None


@pytest.mark.parametrize("policy", list(PolicyName))
def test_a_full_batch_leaves_at_once(policy: PolicyName):
    """No policy waits for a request that could not join."""
    pod = Pod(make_limits(policy=policy, max_queue_delay_ns=50 * MS))
    for _ in range(8):
        pod.arrive(0)
    pod.decide(0)
    assert [(plan.rows, plan.reason) for plan in pod.launched] == [(8, BatchReason.FULL)]


@pytest.mark.parametrize("policy", [PolicyName.MAX_DELAY, PolicyName.STATIC])
def test_drain_waits_for_nobody(policy: PolicyName):
    """A draining pod runs what is queued at once, with that reason, and refuses arrivals."""
    pod = Pod(make_limits(policy=policy, max_queue_delay_ns=50 * MS))
    request = pod.arrive(0)
    pod.decide(0)
    pod.machine.on_drain(1 * MS)
    late = pod.arrive(1)
    pod.decide(1)
    assert [plan.reason for plan in pod.launched] == [BatchReason.DRAIN]
    assert (pod.outcome(late), pod.endings[late].reason) == (Outcome.UNAVAILABLE, "draining")
    pod.done(7)
    assert pod.outcome(request) is Outcome.COMPLETED


def test_max_delay_counts_from_the_oldest():
    """A later arrival does not extend the window."""
    pod = Pod(make_limits(policy=PolicyName.MAX_DELAY, max_queue_delay_ns=20 * MS))
    pod.arrive(0)
    pod.decide(0)
    pod.arrive(15)
    pod.decide(15)
    assert pod.wake_ms == 20
    pod.decide(20)
    assert pod.rows == [2]


def test_deadline_orders_by_priority_then_target():
    """Strict levels first, then the earlier target, then arrival."""
    pod = Pod(make_limits(max_batch_rows=1))
    blocker = pod.arrive(0)
    pod.decide(0)
    late, soon, urgent = (
        pod.arrive(1, within_ms=900),
        pod.arrive(1, within_ms=800),
        pod.arrive(1, priority=1, within_ms=990),
    )
    for at in (6, 12, 18):
        pod.done(at)
    assert pod.members == [(blocker,), (urgent,), (soon,), (late,)]


def test_lower_levels_fill_the_room_but_make_nobody_late():
    """The first level's head bounds the batch; lower levels join in what it leaves."""
    pod = Pod(make_limits(max_batch_rows=32))
    pod.arrive(0)
    pod.decide(0)
    first = pod.arrive(1, priority=1, within_ms=17)
    lower = [pod.arrive(1, within_ms=500) for _ in range(10)]
    pod.done(6)
    # 12 ms are left from 6 to 18: f·(5 + b) <= 12 at f = 1.1 gives b = 5.
    assert pod.members[1] == (first, *lower[:4])
    assert pod.launched[1].reason is BatchReason.DEADLINE


def test_infeasible_is_refused_on_arrival_with_the_numbers():
    """Now + wait for the accelerator + f·l(1) > limit: refused before it is queued."""
    pod = Pod()
    pod.arrive(0)
    pod.decide(0)
    request = pod.arrive(1, within_ms=11)
    pod.decide(1)
    ending = pod.endings[request]
    assert ending.outcome is Outcome.REJECTED_INFEASIBLE
    # 5 ms until the batch ends, 6.6 ms for l(1) = 6 ms at f = 1.1.
    assert ending.needed_ns == pytest.approx(11.6 * MS, rel=1e-6)
    assert ending.had_ns == 11 * MS


def test_the_dispatch_delay_counts():
    """What hand-over and answer take is part of what a request needs."""
    pod = Pod(limits=PodLimits(staging=False, dispatch_delay_ns=2 * MS))
    refused = pod.arrive(0, within_ms=8.5)
    pod.machine.set_dispatch_delay(0, 1 * MS)
    taken = pod.arrive(0, within_ms=8.5)
    pod.decide(0)
    assert pod.outcome(refused) is Outcome.REJECTED_INFEASIBLE
    assert pod.launched[0].members == (taken,)


def test_a_missed_target_with_a_later_limit_runs_on_spare_capacity():
    """Past its target but not its limit: after everything that can still be on time, and ends as late."""
    pod = Pod(make_limits(max_batch_rows=1))
    pod.arrive(0)
    pod.decide(0)
    hopeless = pod.arrive(1, within_ms=8, limit_ms=1000)
    timely = [pod.arrive(2, within_ms=400) for _ in range(2)]
    for at in (6, 12, 18, 24):
        pod.done(at)
    assert pod.members[1:] == [(timely[0],), (timely[1],), (hopeless,)]
    assert pod.outcome(hopeless) is Outcome.LATE


def test_spare_work_leaves_room_for_the_next_planned_batch():
    """A batch of late work is small enough that a request arriving at its start still makes its target."""
    pod = Pod(make_limits(max_batch_rows=32))
    for _ in range(32):
        pod.arrive(0, within_ms=50, limit_ms=5000)
    pod.decide(0)
    for _ in range(32):
        pod.arrive(1, within_ms=50, limit_ms=5000)
    pod.decide(1)
    pod.done(60)
    assert 8 <= pod.rows[1] < 32
    fresh = pod.arrive(60.001, within_ms=50)
    at = 60 + 5 + pod.rows[1]
    pod.done(at)
    assert pod.launched[2].members[0] == fresh
    pod.done(at + 5 + pod.rows[2])
    assert pod.outcome(fresh) is Outcome.COMPLETED


def test_padding_rows_are_given_to_spare_work():
    """Rows between the batch and its execution size cost nothing, so late work takes them."""
    pod = Pod(make_limits(execution_sizes=(1, 4, 8)))
    pod.arrive(0)
    pod.decide(0)
    hopeless = pod.arrive(1, within_ms=8, limit_ms=1000)
    timely = [pod.arrive(1, within_ms=400) for _ in range(3)]
    pod.done(6)
    assert pod.members[1] == (*timely, hopeless)
    assert pod.launched[1].execution_size == 4


def test_execution_sizes_bound_what_a_deadline_allows():
    """A batch runs at the next size up, so its latency is that size's."""
    pod = Pod(make_limits(execution_sizes=(1, 4, 8)))
    pod.arrive(0)
    pod.decide(0)
    for _ in range(6):
        pod.arrive(1, within_ms=18)
    pod.done(6)
    # 13 ms are left; size 8 needs 14.3 ms, size 4 needs 9.9 ms.
    assert (pod.launched[1].rows, pod.launched[1].execution_size) == (4, 4)
    assert pod.launched[1].predicted_ns == pytest.approx(9 * MS, rel=1e-3)


def window_drop_pod(**heads) -> tuple[Pod, list[int], list[int]]:
    """Two heads with little time before twenty requests with plenty, at a high rate, when the accelerator becomes free."""
    pod = Pod(make_limits(max_batch_rows=32))
    pod.arrive(0, within_ms=60)
    pod.decide(0)
    tight = [pod.arrive(0.1, within_ms=15, **heads) for _ in range(2)]
    young = [pod.arrive(0.2 + index / 10, within_ms=60) for index in range(20)]
    pod.done(6)
    return pod, tight, young


def test_window_drop_gives_up_the_heads_that_hold_the_batch_small():
    """Two heads that allow a batch of three, before twenty younger requests: they are shed and the batch is of twenty."""
    pod, tight, young = window_drop_pod()
    assert pod.members[1] == tuple(young)
    assert [pod.outcome(request) for request in tight] == [Outcome.SHED] * 2
    assert pod.endings[tight[0]].retry_after_ns > 0


def test_skipped_heads_with_a_later_limit_stay_and_end_late():
    """Window drop takes their chance to be on time, not their answer."""
    pod, tight, young = window_drop_pod(limit_ms=500)
    assert pod.members[1] == tuple(young)
    assert pod.outcome(tight[0]) is None
    pod.done(31)
    pod.done(38)
    assert [pod.outcome(request) for request in tight] == [Outcome.LATE] * 2


def test_heads_of_high_weight_are_not_given_up():
    """Two heads worth ten each are served first although the batch is small."""
    pod, tight, _young = window_drop_pod(weight=10.0)
    assert set(tight) <= set(pod.members[1])
    assert not any(pod.outcome(request) is Outcome.SHED for request in tight)


def test_the_lane_with_the_earliest_latest_start_is_next():
    """Two models wait: the one whose batch must start first goes first, whatever arrived first."""
    pod = Pod()
    pod.machine.add_model(0, make_limits(model="slow", default_profile=LatencyProfile.linear(50 * MS, MS, 8)))
    pod.arrive(0)
    pod.decide(0)
    quick = pod.arrive(1, within_ms=90)
    slow = pod.arrive(2, within_ms=110, lane=LaneKey("slow"))
    pod.done(6)
    pod.done(57)
    assert pod.members[1:] == [(slow,), (quick,)]


def test_staging_is_late_so_that_the_batch_can_grow():
    """Behind a run that ends at 13 ms the next batch is handed over at 12 ms, with all that came until then."""
    pod = Pod(limits=PodLimits(staging=True, staging_lead_ns=1 * MS))
    for _ in range(8):
        pod.arrive(0)
    pod.decide(0)
    early = pod.arrive(1)
    pod.decide(1)
    assert len(pod.launched) == 1
    assert pod.wake_ms == pytest.approx(12, abs=0.001)
    late = pod.arrive(11)
    pod.decide(11)
    pod.decide(pod.wake_ms)
    assert pod.members[1] == (early, late)
    assert pod.machine.snapshot(0).staged_batches == 1
    third = pod.arrive(12.5)
    pod.decide(12.5)
    assert len(pod.launched) == 2
    pod.done(13, batch=0)
    pod.done(20, batch=1)
    assert pod.members[2] == (third,)


def test_executor_loss_ends_everything_and_its_return_resumes():
    """Running, staged and queued requests end unavailable with the hint; arrivals too, until the executor is back."""
    pod = Pod(make_limits(max_batch_rows=1), PodLimits(staging=True))
    ids = [pod.arrive(0) for _ in range(3)]
    pod.decide(0)
    pod.decide(pod.wake_ms)
    assert len(pod.launched) == 2
    pod.machine.on_executor_lost(7 * MS, 800 * MS)
    ids.append(pod.arrive(8))
    pod.decide(8)
    assert [pod.outcome(request) for request in ids] == [Outcome.UNAVAILABLE] * 4
    assert {pod.endings[request].retry_after_ns for request in ids} == {800 * MS}
    assert pod.wake_ns is None
    pod.machine.on_executor_up(900 * MS)
    back = pod.arrive(900)
    pod.decide(900)
    pod.done(901, batch=0)
    pod.done(906, batch=2)
    assert pod.outcome(back) is Outcome.COMPLETED


def test_removed_and_unknown_models_are_unavailable():
    """What has not been handed over ends; the running batch is answered."""
    pod = Pod(make_limits(max_batch_rows=1))
    running, queued = pod.arrive(0), pod.arrive(0)
    pod.decide(0)
    pod.machine.remove_model(1 * MS, "m")
    unknown = pod.arrive(2)
    pod.decide(2)
    pod.done(6)
    assert pod.outcome(running) is Outcome.COMPLETED
    assert pod.endings[queued].reason == "model_removed"
    assert pod.endings[unknown].reason == "model_unknown"


def test_an_update_refuses_what_no_longer_fits_and_keeps_the_rest():
    """Smaller batches: a queued request of five rows ends invalid, others go on in batches of the new size."""
    pod = Pod()
    pod.arrive(0)
    pod.decide(0)
    five, two, three = pod.arrive(1, rows=5), pod.arrive(1, rows=2), pod.arrive(1, rows=3)
    pod.machine.update_model(2 * MS, make_limits(max_batch_rows=4, policy=PolicyName.IMMEDIATE))
    pod.decide(2)
    pod.done(6)
    assert pod.outcome(five) is Outcome.INVALID
    assert pod.members[1] == (two,)
    pod.done(13)
    assert pod.members[2] == (three,)


def test_a_slower_accelerator_is_learnt():
    """Batches that take 1.5 times their profile: the ratio is exported and plans follow it."""
    pod = Pod()
    at = 0.0
    for _ in range(120):
        pod.arrive(at)
        pod.decide(at)
        at += 9
        pod.done(at, execution_ns=9 * MS)
    view = pod.machine.snapshot(round(at * MS)).models["m"]
    assert view.profile_error_ratio[""] == pytest.approx(1.5, rel=0.01)
    assert view.safety_factor[""] == pytest.approx(1.5, rel=0.05)
    assert pod.launched[-1].predicted_ns == pytest.approx(9 * MS, rel=0.01)
    request = pod.arrive(at, within_ms=8.9)
    pod.decide(at)
    assert pod.outcome(request) is Outcome.REJECTED_INFEASIBLE


def test_time_never_goes_back():
    """An event before the last one is a driver's fault and is refused."""
    pod = Pod()
    pod.decide(5)
    with pytest.raises(ValueError, match="time went back"):
        pod.arrive(4)


@pytest.mark.parametrize(
    ("sizes", "waiting", "want"),
    [
        (
            (1, 2, 4, 8, 16),
            9,
            [8, 1],
        ),  # nine would run as sixteen: l(16) = 21 ms for 9, or 13 ms for 8 and then 6 for 1
        ((1, 2, 4, 8, 16), 14, [14]),  # fourteen of sixteen rows are worth it
        ((), 9, [9]),  # every size is run as it is
    ],
)
def test_no_batch_is_larger_than_its_throughput_justifies(sizes, waiting, want):
    """Rows that would mostly pay for padding go with the next batch (``Timing.thrifty``)."""
    pod = Pod(
        make_limits(max_batch_rows=16, execution_sizes=sizes, default_profile=LatencyProfile.linear(5 * MS, MS, 16))
    )
    for _ in range(waiting):
        pod.arrive(0)
    pod.decide(0)
    for _ in want[1:]:
        pod.done(21)
    assert [plan.rows for plan in pod.launched] == want


def test_the_way_of_the_answer_is_left_free():
    """With 4 ms for the answer's way, plans end 4 ms earlier, and what overruns is refused 2 ms before the caller gives up."""
    pod = Pod(make_limits())
    refused = pod.arrive(0, within_ms=9.9, reply_ns=4 * MS)  # l(1) = 6 ms and its factor of 1.1 do not fit into 5.9 ms
    request = pod.arrive(0, within_ms=20, reply_ns=4 * MS)
    pod.decide(0)
    assert pod.outcome(refused) is Outcome.REJECTED_INFEASIBLE
    assert [plan.members for plan in pod.launched] == [(request,)]
    assert pod.wake_ms == 18
    pod.decide(18)
    assert pod.outcome(request) is Outcome.EXPIRED


def test_a_run_that_ends_inside_the_allowance_is_still_answered():
    """Planned to end at 16 ms, ended at 17 ms, on time at 20 ms."""
    pod = Pod(make_limits())
    request = pod.arrive(0, within_ms=20, reply_ns=4 * MS)
    pod.decide(0)
    pod.done(17)
    assert pod.outcome(request) is Outcome.COMPLETED
