"""What goes wrong around a batch hurts only whom it concerns (B003, B004), and a broken core is never hidden."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from harness_core.decision import Decision, Ending
from harness_core.outcome import Outcome
from harness_runtime.errors import RequestEnded
from harness_runtime.ports import JobOutput
from harness_runtime.tensors import Buckets, Datatype, TensorSpec

from tests.runtime.batcher.bench import Bench, linear, outcome_of, virtually
from tests.runtime.batcher.sim_executor import MS, SimExecutor, doubled

if TYPE_CHECKING:
    from harness_runtime.model import ModelSpec

OK = Outcome.COMPLETED


def poisoned(job) -> bool:
    """A negative row is in the batch."""
    return any((part < 0).any() for part in job.inputs[0].parts)


async def send_all(bench: Bench, values) -> list[Outcome]:
    return list(await asyncio.gather(*(outcome_of(bench.send(value)) for value in values)))


def test_poison_in_the_model_hurts_only_itself():
    """B003: seven of eight are answered, the poison alone fails; nobody runs alone more than once."""

    async def scenario():
        executor = SimExecutor(linear, error=lambda job: "negative" if poisoned(job) else None)
        async with Bench(executor=executor) as bench:
            outcomes = await send_all(bench, [1, 2, 3, -1, 4, 5, 6, 7])
            assert outcomes == [OK, OK, OK, Outcome.FAILED, OK, OK, OK, OK]
            singles = [float(job.inputs[0].parts[0][0, 0]) for job in executor.jobs if job.rows == 1]
            assert len(singles) == len(set(singles))
            assert (1, True) in bench.seen.ended

    virtually(scenario)


def test_failure_carries_the_models_own_words():
    """The caller of the poison reads what the model said."""

    async def scenario():
        executor = SimExecutor(linear, error=lambda _job: "negative input")
        async with Bench(executor=executor) as bench:
            with pytest.raises(RequestEnded, match="negative input") as ended:
                await bench.send(-1)
            assert ended.value.outcome is Outcome.FAILED

    virtually(scenario)


def test_handing_over_that_raises_hurts_only_the_poison():
    """B004, collation: send ok, poison, then ten ok; the poison fails at once, the others are answered."""

    async def scenario():
        executor = SimExecutor(linear, refuse=lambda job: ValueError("cannot merge") if poisoned(job) else None)
        async with Bench(executor=executor) as bench:
            assert await send_all(bench, [1, -1, *range(10)]) == [OK, Outcome.FAILED, *[OK] * 10]
            assert bench.executor.held == 0
            assert bench.batcher.alive()

    virtually(scenario)


def test_members_that_do_not_fit_together_at_their_execution_size_run_apart():
    """Four rows are run as eight, which the slot does not hold: they are taken apart and all answered, since each fits alone."""

    async def scenario():
        executor = SimExecutor(linear, refuse=lambda job: ValueError("no room") if job.execution_size > 1 else None)
        async with Bench(executor=executor, limits={"execution_sizes": (1, 8)}) as bench:
            assert await send_all(bench, [1, 2, 3, 4]) == [OK] * 4
            assert [job.rows for job in executor.jobs] == [1] * 4

    virtually(scenario)


def test_answer_with_wrong_rows_fails_only_its_batch():
    """B004, output split: an answer of the wrong row count is never split; later batches are answered."""

    async def scenario():
        def outputs(job):
            [output] = doubled(job)
            array = output.array[:-1] if poisoned(job) else output.array
            return [JobOutput("Y", output.datatype, array)]

        async with Bench(executor=SimExecutor(linear, outputs=outputs)) as bench:
            assert await send_all(bench, [1, -1, *range(10)]) == [OK, Outcome.FAILED, *[OK] * 10]
            assert bench.executor.held == 0

    virtually(scenario)


def test_one_members_part_that_cannot_be_read_is_its_own_failure():
    """B004, output split: a member whose rows raise when they are copied does not take the batch along."""

    class Trap(np.ndarray):
        def __getitem__(self, rows):
            part = super().__getitem__(rows)
            if (np.asarray(part) < 0).any():
                raise RuntimeError("trap")
            return part

    async def scenario():
        def outputs(job):
            [output] = doubled(job)
            return [JobOutput("Y", output.datatype, output.array.view(Trap))]

        async with Bench(executor=SimExecutor(linear, outputs=outputs)) as bench:
            assert await send_all(bench, [1, -1, 2, 3]) == [OK, Outcome.FAILED, OK, OK]
            assert len(bench.executor.jobs) == 1

    virtually(scenario)


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (JobOutput("Y", Datatype.FP32, np.zeros(1, np.float32)), r"output 'Y': dimension 1 should be the padded 8"),
        (JobOutput("Z", Datatype.FP32, np.zeros((1, 8), np.float32)), r"output 'Y': the model did not return it"),
    ],
)
def test_an_answer_that_cannot_be_given_is_counted_as_failed(output, said):
    """B004: outputs that lack a name or the padded dimension fail the request in the machine's books too, which must not say completed."""

    async def scenario():
        async with Bench(executor=SimExecutor(linear, outputs=lambda _job: [output])) as bench:
            bench.spec = padded_spec(bench.spec)
            work = replace(bench.work(), padded=[(8,)])
            with pytest.raises(RequestEnded, match=said) as ended:
                await bench.batcher.infer(work)
            assert ended.value.outcome is Outcome.FAILED
            assert bench.seen.outcomes == [Outcome.FAILED]

    virtually(scenario)


def test_padding_of_the_bucket_is_cut_off_before_the_answer():
    """Its own four of eight values; the padded ones are not copied."""

    async def scenario():
        async with Bench() as bench:
            bench.spec = padded_spec(bench.spec)
            result = await bench.batcher.infer(replace(bench.work(3), padded=[(8,)]))
            assert result.outputs[0].array.tolist() == [[6, 6, 6, 6]]
            assert result.outputs[0].array.base is None

    virtually(scenario)


def padded_spec(spec: ModelSpec) -> ModelSpec:
    """With the one bucket 8, and an output of the padded length."""
    return replace(
        spec,
        inputs=(TensorSpec("X", Datatype.FP32, (-1,), Buckets(0, (8,), 0)),),
        outputs=(TensorSpec("Y", Datatype.FP32, (-1,), trim_dims=(0,)),),
    )


def test_fault_of_the_metrics_ends_no_request():
    """B004, metric update: bookkeeping that raises is logged; the requests are answered."""

    async def scenario():
        async with Bench() as bench:
            bench.seen.fault = RuntimeError("metrics")
            assert await send_all(bench, [1, 2]) == [OK, OK]
            assert bench.seen.fault is None
            assert await send_all(bench, range(10)) == [OK] * 10

    virtually(scenario)


@pytest.mark.parametrize("event", ["on_arrival", "decide", "on_done"])
def test_broken_machine_ends_every_request_and_is_not_ready(event):
    """B004: if the core itself fails, all requests end, the sign of life is gone and the process is told to end."""

    async def scenario():
        async with Bench() as bench:
            first = bench.send(1)
            await asyncio.sleep(0.001)

            def fail(*_):
                raise AssertionError("lost track")

            _replace(bench, event, fail)
            tasks = [first, *(bench.send(value) for value in range(3))]
            outcomes = [await outcome_of(task) for task in tasks]
            assert set(outcomes) == {Outcome.UNAVAILABLE}
            assert [str(error) for error in bench.broken] == ["lost track"]
            assert not bench.batcher.alive()
            assert await outcome_of(bench.send(5)) is Outcome.UNAVAILABLE

    virtually(scenario)


def _replace(bench: Bench, event: str, fail) -> None:
    class Failing:
        def __getattr__(self, name):
            return fail if name == event else getattr(bench.machine, name)

    bench.batcher._machine = Failing()


def test_answer_without_outputs_is_a_broken_machine_not_a_hanging_caller():
    """A machine that calls a request answered whose batch never came back has lost track; the caller still gets an end."""

    async def scenario():
        async with Bench(executor=SimExecutor(lambda _job: None)) as bench:
            task = bench.send(1)
            await asyncio.sleep(0.001)
            _replace(bench, "decide", lambda _now: Decision(endings=(Ending(1, Outcome.COMPLETED, "on_time"),)))
            bench.send(2)
            assert await outcome_of(task) is Outcome.UNAVAILABLE
            assert len(bench.broken) == 1

    virtually(scenario)


def test_overdue_decision_is_no_sign_of_life():
    """A driver that no longer turns shows within seconds, though the process still answers."""

    async def scenario():
        async with Bench() as bench:
            bench.batcher._fired = lambda: None
            bench.batcher._turn_if_due = lambda: None
            bench.send(1)
            await asyncio.sleep(1)
            assert bench.batcher.alive()
            await asyncio.sleep(10)
            assert not bench.batcher.alive()

    virtually(scenario)


def test_lost_executor_ends_or_repeats_every_request():
    """Kill -9 of the executor: no request without an outcome; those refused carry a retry hint; afterwards all is well."""

    async def scenario():
        async with Bench(max_batch_rows=2) as bench:
            tasks = [bench.send(value) for value in range(6)]
            await asyncio.sleep(0.002)
            bench.executor.lose("killed by signal 9")
            await asyncio.sleep(0.5)
            bench.executor.restore()
            outcomes = [await outcome_of(task) for task in tasks]
            assert set(outcomes) <= {OK, Outcome.UNAVAILABLE, Outcome.FAILED}
            assert bench.seen.lost == 1
            assert bench.changes == [(False, "killed by signal 9"), (True, "")]
            assert await send_all(bench, range(10)) == [OK] * 10

    virtually(scenario)


def test_request_to_a_lost_executor_is_refused_with_the_reload_time():
    """The retry hint is the measured time of a restart."""

    async def scenario():
        async with Bench() as bench:
            bench.executor.lose()
            with pytest.raises(RequestEnded) as ended:
                await bench.send(1, within_ms=100)
            assert ended.value.outcome in {Outcome.UNAVAILABLE, Outcome.REJECTED_INFEASIBLE}
            if ended.value.outcome is Outcome.UNAVAILABLE:
                assert ended.value.retry_after_ms == 3000
            bench.executor.restore()
            assert await outcome_of(bench.send(2)) is OK

    virtually(scenario)


def test_result_of_a_batch_nobody_knows_gives_its_slot_back():
    """A late message of an executor that was thought lost must not leak a slot."""

    async def scenario():
        from harness_runtime.ports import JobResult

        async with Bench() as bench:
            released = []
            bench.batcher.on_result(JobResult(999, 1, release=lambda: released.append(True)))
            bench.batcher.on_started(999)
            assert released == [True]
            assert await outcome_of(bench.send(1)) is OK

    virtually(scenario)


def test_memory_failure_is_told_apart():
    """Out of device memory has a status of its own (protocol.md §3)."""

    async def scenario():
        executor = SimExecutor(lambda _job: 5 * MS, error=lambda _job: "CUDA out of memory")
        async with Bench(executor=executor) as bench:
            original = bench.batcher.on_result

            def on_result(result):
                result.out_of_memory = result.error is not None
                original(result)

            bench.batcher.on_result = on_result
            with pytest.raises(RequestEnded) as ended:
                await bench.send(1)
            assert ended.value.status.grpc == "RESOURCE_EXHAUSTED"

    virtually(scenario)
