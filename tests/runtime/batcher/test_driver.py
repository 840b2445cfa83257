"""The batcher's driver in virtual time: what it merges, when, and that everything ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from harness_core.outcome import Outcome
from harness_core.pod.settings import PolicyName
from harness_core.profile import LatencyProfile
from harness_runtime.errors import RequestEnded

from tests.runtime.batcher.bench import Bench, linear, now_ns, outcome_of, virtually
from tests.runtime.batcher.sim_executor import MS, SimExecutor


def flat(milliseconds: int) -> LatencyProfile:
    return LatencyProfile.linear(milliseconds * MS, 0, 8)


def test_requests_that_come_together_run_together_and_get_their_own_rows():
    """One turn of the loop decides over all arrivals of that turn; each caller gets exactly its rows."""

    async def scenario():
        async with Bench() as bench:
            tasks = [bench.send(value, rows) for value, rows in ((1, 2), (10, 1), (100, 3))]
            results = await asyncio.gather(*tasks)
            for result, value, rows in zip(results, (1, 10, 100), (2, 1, 3), strict=True):
                [output] = result.outputs
                assert np.array_equal(output.array, np.full((rows, 4), 2 * value, np.float32))
            assert [job.rows for job in bench.executor.jobs] == [6]
            assert now_ns() == 11 * MS

    virtually(scenario)


def test_answers_are_copies():
    """The executor's slot is used again while callers still read their answers."""

    async def scenario():
        async with Bench() as bench:
            slot = np.zeros((8, 4), np.float32)

            def outputs(job):
                from harness_runtime.ports import JobOutput

                slot[:] = job.inputs[0].parts[0][0, 0]
                return [JobOutput("Y", job.inputs[0].datatype, slot[: job.rows])]

            bench.executor.outputs = outputs
            first = await bench.send(1)
            second = await bench.send(2)
            assert first.outputs[0].array[0, 0] == 1
            assert second.outputs[0].array[0, 0] == 2

    virtually(scenario)


def test_rows_never_exceed_the_model_and_slots_never_the_executor():
    """B009 at the driver: 50 requests at once go in batches of at most 8 rows, with at most two batches handed over."""

    async def scenario():
        async with Bench() as bench:
            results = await asyncio.gather(*(bench.send(value) for value in range(50)))
            assert [result.outputs[0].array[0, 0] for result in results] == [2 * value for value in range(50)]
            assert max(job.rows for job in bench.executor.jobs) == 8
            assert bench.executor.held_max <= 2
            assert bench.executor.held == 0

    virtually(scenario)


def test_cancelled_request_never_runs():
    """B006: a request whose caller is gone before its batch starts is not computed, and leaves the queue at once."""

    async def scenario():
        async with Bench(max_batch_rows=1) as bench:
            first = bench.send(1)
            await asyncio.sleep(0.001)
            waiting = [bench.send(2) for _ in range(10)]
            await asyncio.sleep(0.001)
            for task in waiting:
                task.cancel()
            await asyncio.sleep(0.001)
            assert bench.batcher.snapshot().queue_requests <= 1  # one may be staged
            assert await outcome_of(first) is Outcome.COMPLETED
            await asyncio.sleep(0.1)
            assert bench.seen.outcomes.count(Outcome.CANCELLED) == 10
            assert len(bench.executor.jobs) <= 2

    virtually(scenario)


def test_request_expires_by_timer_while_another_runs():
    """B007 (a): a limit bites when it passes, not when the accelerator is free again."""

    async def scenario():
        executor = SimExecutor(lambda _job: 9000 * MS)
        async with Bench(max_batch_rows=1, executor=executor, limits={"queue_timeout_ns": 1000 * MS}) as bench:
            running = bench.send(1, within_ms=60_000)
            await asyncio.sleep(0.1)
            begun = now_ns()
            with pytest.raises(RequestEnded) as ended:
                await bench.send(2, within_ms=60_000)
            assert ended.value.outcome in {Outcome.EXPIRED, Outcome.REJECTED_CAPACITY}
            assert now_ns() - begun == 1000 * MS
            assert await outcome_of(running) is Outcome.COMPLETED

    virtually(scenario)


@pytest.mark.parametrize("pause_s", [0.0, 0.05])
def test_queue_limit_is_exact(pause_s):
    """B007 (b): with room for four, exactly four of ten wait and six are refused at once, with a retry hint or not at all late."""

    async def scenario():
        executor = SimExecutor(lambda _job: 9000 * MS)
        limits = {"max_queue_requests": 4}
        async with Bench(max_batch_rows=1, executor=executor, limits=limits) as bench:
            bench.send(1, within_ms=600_000)
            await asyncio.sleep(0.001)
            tasks = []
            for _ in range(10):
                tasks.append(bench.send(2, within_ms=600_000))
                await asyncio.sleep(pause_s)
            await asyncio.sleep(0.001)
            refused = [task for task in tasks if task.done()]
            assert len(refused) == 6
            assert bench.batcher.snapshot().queue_requests == 4
            for task in refused:
                assert await outcome_of(task) is Outcome.REJECTED_CAPACITY

    virtually(scenario)


def test_idle_batcher_has_no_timer():
    """No polling: when nothing waits, nothing is scheduled."""

    async def scenario():
        async with Bench(policy=PolicyName.DEADLINE) as bench:
            await bench.send(1)
            await asyncio.sleep(0.01)
            loop = asyncio.get_running_loop()
            assert bench.batcher._timer is None
            assert [handle for handle in loop._scheduled if not handle.cancelled()] == []

    virtually(scenario)


def test_batch_waits_for_company_exactly_as_long_as_it_may():
    """B011: a lone request under MaxDelay starts after the configured delay, by the decision's own timer."""

    async def scenario():
        limits = {"max_queue_delay_ns": 300 * MS}
        async with Bench(policy=PolicyName.MAX_DELAY, limits=limits) as bench:
            await bench.send(1)
            assert bench.executor.started == [(pytest.approx(0.3), 1)]
            assert bench.seen.batches == [("window", 1)]
            assert bench.seen.formation_ns == [300 * MS]

    virtually(scenario)


def test_late_answer_is_told_from_one_in_time():
    """A target that passes while the batch runs makes LATE, not an error; the limit lies further away."""

    async def scenario():
        executor = SimExecutor(lambda _job: 50 * MS)
        async with Bench(executor=executor, max_batch_rows=1) as bench:
            first = bench.send(1, within_ms=55)
            second = bench.send(2, within_ms=60, limit_ms=5000)
            assert await outcome_of(first) is Outcome.COMPLETED
            assert await outcome_of(second) is Outcome.LATE

    virtually(scenario)


def test_next_batch_is_staged_before_the_running_one_ends():
    """One running and one staged, never more, and the accelerator does not stand idle between them (design.md §2.5)."""

    async def scenario():
        async with Bench(max_batch_rows=1) as bench:
            tasks = [bench.send(value) for value in range(5)]
            await asyncio.gather(*tasks)
            begins = [at for at, _ in bench.executor.started]
            assert begins == pytest.approx([0.006 * k for k in range(5)])

    virtually(scenario)


def test_drain_ends_what_is_queued_and_takes_nothing_new():
    """SIGTERM: no request that was accepted is lost, a later one is told that the pod is going."""

    async def scenario():
        async with Bench(policy=PolicyName.MAX_DELAY, limits={"max_queue_delay_ns": 10_000 * MS}) as bench:
            waiting = [bench.send(value, within_ms=60_000) for value in range(3)]
            await asyncio.sleep(0.001)
            bench.batcher.drain()
            late = bench.send(9)
            await bench.batcher.wait_empty()
            assert [await outcome_of(task) for task in waiting] == [Outcome.COMPLETED] * 3
            assert await outcome_of(late) is Outcome.UNAVAILABLE
            assert now_ns() < 100 * MS
            await bench.batcher.wait_empty()

    virtually(scenario)


def test_close_ends_everything():
    """What cannot finish within the drain's grace gets UNAVAILABLE with a retry hint, never silence."""

    async def scenario():
        async with Bench(executor=SimExecutor(lambda _job: None), max_batch_rows=1) as bench:
            tasks = [bench.send(value) for value in range(3)]
            await asyncio.sleep(0.001)
            bench.batcher.close()
            assert [await outcome_of(task) for task in tasks] == [Outcome.UNAVAILABLE] * 3
            with pytest.raises(RequestEnded) as after:
                await bench.send(4)
            assert after.value.retry_after_ms
            assert not bench.batcher.alive()
            assert not bench.broken

    virtually(scenario)


def test_outcomes_are_observed_once_each():
    """The sum over outcomes is the number of requests, whatever happened to them."""

    async def scenario():
        async with Bench(max_batch_rows=2, limits={"max_queue_requests": 4}) as bench:
            tasks = [bench.send(value, within_ms=20) for value in range(12)]
            await asyncio.sleep(0)
            tasks[3].cancel()
            await asyncio.gather(*(outcome_of(task) for task in tasks))
            await asyncio.sleep(0.1)
            assert len(bench.seen.outcomes) == 12
            assert not bench.batcher._waiting

    virtually(scenario)


def test_dispatch_delay_is_measured_and_told():
    """The machine learns how long a batch takes beyond its run, and plans with it."""

    async def scenario():
        executor = SimExecutor(linear)
        begin = executor._begin
        executor._begin = lambda job: asyncio.get_running_loop().call_later(0.002, begin, job)
        async with Bench(executor=executor) as bench:
            for value in range(20):
                await bench.send(value)
            assert 1.9 * MS < bench.batcher.dispatch_delay_ns < 4.5 * MS

    virtually(scenario)


def test_staged_batch_of_a_cancelled_request_is_taken_back():
    """B006: a request that is cancelled after its batch was staged, and before it started, is not computed either."""

    async def scenario():
        async with Bench(max_batch_rows=1, executor=SimExecutor(lambda _job: 10 * MS)) as bench:
            bench.machine.update_model(now_ns(), replace(bench.model_limits(), default_profile=flat(10)))
            first, second, third = (bench.send(value) for value in (1, 2, 3))
            await asyncio.sleep(0.0095)
            assert len(bench.executor.jobs) == 2
            second.cancel()
            assert await outcome_of(first) is Outcome.COMPLETED
            assert await outcome_of(third) is Outcome.COMPLETED
            assert len(bench.executor.withdrawn) == 1
            assert [rows for _, rows in bench.executor.started] == [1, 1]
            assert bench.executor.held == 0
            assert bench.batcher.snapshot().pending_requests == 0

    virtually(scenario)
