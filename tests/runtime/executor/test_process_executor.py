"""The executor with real child processes and emulated models: hand-over, slots, ends, leaks. No torch."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from harness_runtime.executor.layout import pad_element
from harness_runtime.executor.process import ExecutorLostError, ProcessExecutor
from harness_runtime.executor.settings import SECOND_NS, ExecutorSettings
from harness_runtime.model import Emulation
from harness_runtime.ports import JobInput, LoadError
from harness_runtime.tensors import Datatype, numpy_dtype

from tests.runtime.executor.helpers import Recorder, make_job, make_spec, python_model, running

pytestmark = pytest.mark.process

FIXED = [each for each in Datatype if each is not Datatype.BYTES]


def values(datatype: Datatype, rows: int, columns: int = 4) -> np.ndarray:
    """Arbitrary valid elements that differ by row."""
    counted = np.arange(1, rows * columns + 1).reshape(rows, columns)
    if datatype is Datatype.BYTES:
        result = np.empty(counted.shape, dtype=object)
        for index, number in np.ndenumerate(counted):
            result[index] = b"\x00" * int(number % 3) + str(number).encode()
        return result
    return (counted % 2 if datatype is Datatype.BOOL else counted).astype(numpy_dtype(datatype))


async def test_every_datatype_comes_back_bit_for_bit():
    """What a client sends reaches the model and comes back unchanged, also where numpy has no such type (BF16, BYTES)."""
    specs = {datatype: make_spec(f"echo-{datatype}", datatype=datatype) for datatype in Datatype}
    async with running(*specs.values()) as rig:
        for datatype, spec in specs.items():
            first, second = values(datatype, 2), values(datatype, 1)
            result, outputs = await rig.ask(make_job(spec, first, second, size=4))
            assert result.error is None
            assert outputs["y"].dtype == numpy_dtype(datatype)
            assert outputs["y"].tolist() == [*first.tolist(), *second.tolist()], datatype


@pytest.mark.parametrize(
    ("out_datatype", "out_shape", "want"),
    [
        (Datatype.UINT8, (4,), [[1, 0, 0, 0], [3, 0, 0, 0]]),
        (Datatype.INT32, (4,), [[1, 2, 1, 2], [3, 4, 3, 4]]),
        (Datatype.INT32, (-1, 1), [[[1], [2]], [[3], [4]]]),
        (Datatype.BOOL, (1,), [[True], [True]]),
        (Datatype.BYTES, (1,), [[b""], [b""]]),
        (Datatype.FP32, (0,), [[], []]),
    ],
)
async def test_an_emulated_answer_depends_on_its_own_row_only(out_datatype, out_shape, want):
    """The first input's bytes in the first output's shape, cut or repeated row by row, so that splitting can be checked."""
    spec = make_spec(datatype=Datatype.INT32, shape=(-1,), out_datatype=out_datatype, out_shape=out_shape)
    async with running(spec) as rig:
        result, outputs = await rig.ask(make_job(spec, np.array([[1, 2], [3, 4]], dtype="<i4"), size=4))
        assert result.error is None
        assert outputs["y"].tolist() == want


async def test_strings_may_become_numbers_in_an_emulated_answer():
    """BYTES inputs are taken as they lie in the slot: each element behind its length."""
    spec = make_spec(datatype=Datatype.BYTES, shape=(1,), out_datatype=Datatype.UINT8, out_shape=(5,))
    async with running(spec) as rig:
        _, outputs = await rig.ask(make_job(spec, np.array([[b"a"], [b"b"]], dtype=object)))
        assert outputs["y"].tolist() == [[1, 0, 0, 0, 97], [1, 0, 0, 0, 98]]


async def test_padding_surrounds_the_members_and_is_cut_off():
    """Members lie in row order in the low corner of their rows, the rest is the pad value; rows of padding are not returned."""
    spec = make_spec(shape=(-1,), datatype=Datatype.INT32)
    async with running(spec) as rig:
        short, long = np.array([[1, 2]], dtype="<i4"), np.array([[3, 4, 5], [6, 7, 8]], dtype="<i4")
        job = make_job(spec, short, long, size=8)
        job.inputs = [JobInput("x", Datatype.INT32, (8, 4), [short, long], pad_value=-9)]
        _, outputs = await rig.ask(job)
        assert outputs["y"].tolist() == [[1, 2, -9, -9], [3, 4, 5, -9], [6, 7, 8, -9]]


async def test_an_unbatched_model_keeps_its_shape():
    """Without a batch dimension axis 0 is the tensor's own and is not cut."""
    spec = make_spec(max_batch_size=0, shape=(3, 2))
    async with running(spec) as rig:
        x = np.arange(6, dtype="<f4").reshape(3, 2)
        _, outputs = await rig.ask(make_job(spec, x))
        assert outputs["y"].tolist() == x.tolist()


async def test_two_slots_run_in_order_and_a_third_batch_is_refused():
    """One runs, one is staged; the staged one waits until the emulated accelerator is free, and both are answered in order."""
    spec = make_spec(emulation=Emulation(setup_us=100_000))
    async with running(spec) as rig:
        x = np.ones((1, 4), dtype="<f4")
        began = time.monotonic()
        jobs = [make_job(spec, x) for _ in range(2)]
        for job in jobs:
            rig.executor.submit(job)
        with pytest.raises(RuntimeError, match="all 2 slots"):
            rig.executor.submit(make_job(spec, x))
        await rig.answer(jobs[1])
        assert time.monotonic() - began >= 0.199
        first, second = (job.batch_id for job in jobs)
        assert rig.listener.events == [
            ("started", first), ("result", first), ("started", second), ("result", second)
        ]  # fmt: skip


async def test_a_staged_batch_can_be_taken_back_and_a_running_one_cannot():
    """What has not started never runs (B006), its slot is free again, and what runs is answered."""
    spec = make_spec(emulation=Emulation(setup_us=1_000_000))
    async with running(spec) as rig:
        x = np.ones((1, 4), dtype="<f4")
        first, second = (make_job(spec, x) for _ in range(2))
        rig.executor.submit(first)
        rig.executor.submit(second)
        rig.executor.withdraw(second.batch_id)
        result, _ = await rig.answer(second)
        assert result.withdrawn
        assert ("started", second.batch_id) not in rig.listener.events
        rig.executor.withdraw(first.batch_id)  # it ended: no effect
        third, _ = await rig.ask(make_job(spec, x))
        assert not third.withdrawn
        assert third.error is None


async def test_a_slot_is_taken_until_its_answer_is_released():
    """An unread answer is never overwritten, and releasing twice gives the slot back once."""
    spec = make_spec()
    async with running(spec) as rig:
        rig.listener.release = False
        ones, twos = np.ones((1, 4), dtype="<f4"), np.full((1, 4), 2, dtype="<f4")
        first, _ = await rig.ask(make_job(spec, ones))
        second, _ = await rig.ask(make_job(spec, twos))
        with pytest.raises(RuntimeError, match="all 2 slots"):
            rig.executor.submit(make_job(spec, ones))
        assert first.outputs[0].array.tolist() == ones.tolist()
        first.outputs.clear()
        first.release()
        first.release()
        third, _ = await rig.ask(make_job(spec, ones))
        assert second.outputs[0].array.tolist() == twos.tolist()
        with pytest.raises(RuntimeError, match="all 2 slots"):
            rig.executor.submit(make_job(spec, ones))
        second.outputs.clear()
        third.outputs.clear()


async def test_what_does_not_fit_is_refused_and_takes_no_slot():
    """The driver learns at once, with tensor, need and limit; later batches are not disturbed."""
    spec = make_spec(shape=(-1,), max_batch_size=4)
    async with running(spec, slot_bytes_max=4096) as rig:
        for _ in range(3):
            with pytest.raises(ValueError, match=r"'x'.*need 8192 bytes, the limit is 4096"):
                rig.executor.submit(make_job(spec, np.zeros((1, 2048), dtype="<f4")))
        with pytest.raises(ValueError, match="dtype"):
            rig.executor.submit(make_job(spec, np.zeros((1, 4), dtype="<f8")))
        with pytest.raises(ValueError, match="no model"):
            rig.executor.submit(make_job(make_spec("other"), np.zeros((1, 4), dtype="<f4")))
        result, _ = await rig.ask(make_job(spec, np.zeros((1, 4), dtype="<f4")))
        assert result.error is None


async def test_a_model_whose_full_batch_cannot_fit_is_refused_at_load():
    """Better at load than at the first full batch under load."""
    async with running(slot_bytes_max=4096) as rig:
        with pytest.raises(LoadError, match=r"inputs of a full batch \(8 rows\) take 32000 bytes"):
            await rig.executor.load(make_spec("big", shape=(1000,)))


async def test_a_failing_load_leaves_others_alone(tmp_path):
    """Reasons in a user's words; the process and the other models live on."""
    good = make_spec()
    crash = python_model(tmp_path, "return {}", name="crash")
    crash.path.write_text("raise ValueError('weights are missing')\n")
    nothing = python_model(tmp_path, "return {}", name="nothing")
    nothing.path.write_text("x = 1\n")
    gone = python_model(tmp_path, "return {}", name="gone")
    gone.path.unlink()
    async with running(good) as rig:
        pid = rig.executor.pid
        for spec, reason in [(crash, "weights are missing"), (nothing, "no class Model"), (gone, "there is no file")]:
            with pytest.raises(LoadError, match=reason):
                await rig.executor.load(spec)
        result, _ = await rig.ask(make_job(good, np.ones((1, 4), dtype="<f4")))
        assert result.error is None
        assert rig.executor.pid == pid


async def test_a_load_that_hangs_is_given_up(tmp_path):
    """The load's own limit; the process is restarted for the others."""
    good = make_spec()
    slow = python_model(tmp_path, "return {}", name="slow")
    slow.path.write_text("import time\ntime.sleep(600)\n")
    async with running(good, load_timeout_ns=2 * SECOND_NS) as rig:
        with pytest.raises(LoadError, match=r"loading model 'slow' version 1 took longer than 2 s"):
            await rig.executor.load(slow)
        await rig.listener.until(lambda: rig.listener.count("restored") == 1, "restart")
        result, _ = await rig.ask(make_job(good, np.ones((1, 4), dtype="<f4")))
        assert result.error is None


async def test_a_child_that_cannot_be_watched_is_ended(monkeypatch):
    """Without a process descriptor nobody would notice its end, nor end it."""

    def refuse(_pid):
        raise OSError("too many open files")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    executor = ProcessExecutor(ExecutorSettings(slot_bytes_max=4096))
    with pytest.raises(OSError, match="too many open files"):
        await executor.start(Recorder())
    await executor.stop()
    assert psutil.Process().children(recursive=True) == []


async def test_the_watchdog_ends_a_run_that_takes_far_too_long(tmp_path):
    """max(factor x expected, floor); then the executor restarts by itself. The staged batch is lost with it."""
    hang = python_model(tmp_path, "if x[0, 0] < 0: time.sleep(600)\nreturn {'y': x}")
    async with running(hang, watchdog_floor_ns=SECOND_NS // 2) as rig:
        x = np.ones((1, 4), dtype="<f4")
        stuck = make_job(hang, -x)
        rig.executor.submit(stuck)
        rig.executor.submit(make_job(hang, x))
        await rig.listener.until(lambda: rig.listener.count("lost") == 1, "watchdog")
        assert ("lost", f"watchdog: batch {stuck.batch_id} ran for more than 0.5 s") in rig.listener.events
        await rig.listener.until(lambda: rig.listener.count("restored") == 1, "restart")
        result, _ = await rig.ask(make_job(hang, x))
        assert result.error is None


async def test_a_stopped_process_is_caught_by_the_watchdog_too():
    """A child that does not even say that a run began (SIGSTOP) is no less late."""
    spec = make_spec()
    async with running(spec, watchdog_floor_ns=SECOND_NS // 2) as rig:
        os.kill(rig.executor.pid, signal.SIGSTOP)
        rig.executor.submit(make_job(spec, np.ones((1, 4), dtype="<f4")))
        await rig.listener.until(lambda: rig.listener.count("restored") == 1, "watchdog and restart")


async def test_a_failing_listener_does_not_end_the_executor():
    """B004: an exception outside the model call neither hangs later batches nor costs a slot."""
    spec = make_spec()
    async with running(spec) as rig:

        class Faulty(Recorder):
            def on_result(self, result):
                raise KeyError("metrics")

        good, rig.executor._listener = rig.executor._listener, Faulty()
        x = np.ones((1, 4), dtype="<f4")
        for _ in range(3):
            rig.executor.submit(make_job(spec, x))
            await asyncio.sleep(0.1)
        rig.executor._listener = good
        result, _ = await rig.ask(make_job(spec, x))
        assert result.error is None


async def test_run_is_beside_the_listener_and_beside_its_slots():
    """Measurements work while both slots are taken, and end with an error when the process is lost."""
    spec = make_spec(emulation=Emulation(setup_us=100_000))
    async with running(spec) as rig:
        x = np.ones((1, 4), dtype="<f4")
        jobs = [make_job(spec, x) for _ in range(2)]
        for job in jobs:
            rig.executor.submit(job)
        result = await rig.executor.run(make_job(spec, x))
        assert result.outputs[0].array.tolist() == x.tolist()
        result.outputs.clear()
        result.release()
        assert rig.listener.count("result") == 2
        task = asyncio.ensure_future(rig.executor.run(make_job(spec, x)))
        await asyncio.sleep(0.02)
        os.kill(rig.executor.pid, signal.SIGKILL)
        with pytest.raises(ExecutorLostError, match="SIGKILL"):
            await task


async def test_unload_forgets_a_model():
    """Its batches are refused, the others' are not."""
    kept, gone = make_spec(), make_spec("gone")
    async with running(kept, gone) as rig:
        await rig.executor.unload(gone.digest)
        x = np.ones((1, 4), dtype="<f4")
        with pytest.raises(ValueError, match="no model"):
            rig.executor.submit(make_job(gone, x))
        result, _ = await rig.ask(make_job(kept, x))
        assert result.error is None


async def test_an_idle_child_uses_no_processor():
    """It blocks in the kernel: no polling."""
    async with running(make_spec()) as rig:
        child = psutil.Process(rig.executor.pid)
        await asyncio.sleep(1)  # threads of the linear algebra library spin for a moment after they are made
        windows = []
        for _ in range(3):  # the quietest counts: a tick of 10 ms may be charged to the wrong process
            before = child.cpu_times()
            await asyncio.sleep(2)
            after = child.cpu_times()
            windows.append(after.user + after.system - before.user - before.system)
        assert min(windows) <= 0.02


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_restarts_leak_neither_files_nor_processes():
    """Twenty losses and restarts end with as many open files as before, and with no child left."""
    spec = make_spec()
    async with running(spec, restart_backoff_ns=1, steady_ns=1) as rig:
        gc.collect()  # views of earlier tests may keep their slots' memory
        before = open_files()
        for loss in range(1, 21):
            os.kill(rig.executor.pid, signal.SIGKILL)
            await rig.listener.until(lambda wanted=loss: rig.listener.count("restored") == wanted, f"restart {loss}")
        assert open_files() == before
        assert len(psutil.Process().children(recursive=True)) == 1
    assert psutil.Process().children(recursive=True) == []


async def test_stop_is_bounded_whatever_runs():
    """A running batch is given up; nobody is told of a loss."""
    gc.collect()
    files = open_files()
    spec = make_spec(emulation=Emulation(setup_us=60_000_000))
    async with running(spec) as rig:
        rig.executor.submit(make_job(spec, np.ones((1, 4), dtype="<f4")))
        await rig.listener.until(lambda: rig.listener.count("started") == 1, "start")
        began = time.monotonic()
        await rig.executor.stop()
        assert time.monotonic() - began < 2
        assert rig.listener.count("lost") == 0
        assert rig.executor.pid is None
    assert open_files() == files


def test_the_child_dies_with_its_parent():
    """Kill -9 of the server leaves no executor behind."""
    program = (
        "import asyncio\n"
        "from tests.runtime.executor.helpers import make_spec, running\n"
        "async def main():\n"
        "    async with running(make_spec()) as rig:\n"
        "        print(rig.executor.pid, flush=True)\n"
        "        await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    root = Path(__file__).parents[3]
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE, text=True)
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.communicate()
    gone, alive = psutil.wait_procs([child], timeout=10)
    assert gone
    assert not alive


async def test_a_child_that_does_not_start_is_an_error(monkeypatch):
    """The reason is told, and nothing is left running."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    executor = ProcessExecutor(ExecutorSettings(slot_bytes_max=4096))
    with pytest.raises(LoadError, match="ended with status 1 while starting"):
        await executor.start(Recorder())
    assert executor.pid is None


async def test_the_emulated_accelerator_keeps_its_time():
    """l(b) of linear and of tabled emulations at the executed size, to a few per cent on a busy machine (the least of five)."""
    linear = make_spec("linear", emulation=Emulation(setup_us=5000, compute_us_per_row=1000))
    tabled = make_spec("tabled", emulation=Emulation(points=((1, 4000), (5, 12000))))
    async with running(linear, tabled) as rig:
        x = np.ones((2, 4), dtype="<f4")
        for spec, want_ms in [(linear, 5 + 3), (tabled, 4 + 2 * 2)]:
            times = [(await rig.ask(make_job(spec, x, size=3)))[0].execution_ns / 1e6 for _ in range(5)]
            print(f"{spec.name}: wanted {want_ms} ms, least {min(times):.3f}, most {max(times):.3f}")
            assert want_ms <= min(times) < want_ms * 1.25


@pytest.mark.parametrize(("value", "bits"), [(1.0, 0x3F80), (-2.0, 0xC000), (1.00390625, 0x3F80), (1.01171875, 0x3F82)])
def test_bfloat16_padding_is_rounded_to_nearest_even(value, bits):
    assert pad_element(Datatype.BF16, value) == bits


@pytest.mark.parametrize(
    "wrong", [{"device": "gpu"}, {"slots": 0}, {"threads": 0}, {"slot_bytes_max": 0}, {"load_timeout_ns": 0}]
)
def test_settings_that_cannot_apply_are_errors(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ExecutorSettings(**wrong)


async def test_hand_over_cost():
    """Printed, not asserted: what the hand-over adds to a run (scheduling.md §7 has measured 0.33 ms at p50)."""
    spec = make_spec(shape=(384,), max_batch_size=16, emulation=Emulation(setup_us=5000))
    async with running(spec) as rig:
        parts = [np.ones((1, 384), dtype="<f4") for _ in range(16)]
        added = []
        for _ in range(50):
            job = make_job(spec, *parts)
            began = time.perf_counter()
            await rig.ask(job)
            added.append((time.perf_counter() - began) * 1e3 - 5)
        print(
            f"hand-over of 16 x 1.5 KB adds {np.percentile(added, 50):.3f} ms at p50, {np.percentile(added, 99):.3f} at p99"
        )
