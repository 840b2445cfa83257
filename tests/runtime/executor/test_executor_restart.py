"""Loss and restart of the executor with real child processes: who comes back, who is left out, and that it always goes on. No torch."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import replace

import numpy as np
import psutil
import pytest
from harness_runtime.executor.settings import SECOND_NS
from harness_runtime.model import Emulation
from harness_runtime.ports import LoadError
from harness_runtime.profiler import warm_up

from tests.runtime.executor.helpers import make_job, make_spec, python_model, running

pytestmark = pytest.mark.process


async def test_a_load_that_ends_the_process_is_an_error_and_others_come_back(tmp_path):
    """A native crash during load costs a restart; the model that caused it is not loaded again."""
    good = make_spec()
    bad = python_model(tmp_path, "return {}", name="bad")
    bad.path.write_text("import os\nos._exit(7)\n")
    async with running(good) as rig:
        with pytest.raises(LoadError, match=r"ended with status 7 while loading model 'bad'"):
            await rig.executor.load(bad)
        await rig.listener.until(lambda: rig.listener.count("restored") == 1, "restart")
        result, _ = await rig.ask(make_job(good, np.ones((1, 4), dtype="<f4")))
        assert result.error is None


async def test_kill_of_the_child_is_told_at_once_and_repaired():
    """Kill -9: lost within a second with every batch it had, restored with its models, answers right again."""
    spec = make_spec(emulation=Emulation(setup_us=5_000_000))
    quick = make_spec("quick")
    async with running(spec, quick) as rig:
        x = np.ones((1, 4), dtype="<f4")
        job = make_job(spec, x)
        rig.executor.submit(job)
        await rig.listener.until(lambda: ("started", job.batch_id) in rig.listener.events, "start")
        began = time.monotonic()
        os.kill(rig.executor.pid, signal.SIGKILL)
        await rig.listener.until(lambda: rig.listener.count("lost") == 1, "loss")
        assert time.monotonic() - began < 1
        assert ("lost", "the executor process was killed by SIGKILL") in rig.listener.events
        with pytest.raises(RuntimeError, match="down"):
            rig.executor.submit(make_job(quick, x))
        assert rig.executor.restart_expected_ns() > 0
        await rig.listener.until(lambda: rig.listener.count("restored") == 1, "restart")
        jobs = [make_job(quick, x) for _ in range(2)]
        for each in jobs:
            rig.executor.submit(each)
        await rig.answer(jobs[1])
        assert job.batch_id not in rig.listener.results


async def test_a_model_that_does_not_come_back_leaves_the_others_up(tmp_path):
    """After a restart the model whose artefact is gone is named; its batches fail by themselves; the others answer."""
    good, bad = make_spec(), python_model(tmp_path, "return {'y': x}", name="bad")
    async with running(good, bad) as rig:
        bad.path.unlink()
        os.kill(rig.executor.pid, signal.SIGKILL)
        await rig.listener.until(lambda: rig.listener.count("restored") == 1, "restart")
        assert list(rig.executor.failed_models) == [bad.digest]
        x = np.ones((1, 4), dtype="<f4")
        result, _ = await rig.ask(make_job(bad, x))
        assert "not loaded" in result.error
        result, _ = await rig.ask(make_job(good, x))
        assert result.error is None


async def test_a_model_that_kills_the_process_at_reload_is_left_out(tmp_path):
    """It is tried twice and then left out; the loss is told once."""
    good, bad = make_spec(), python_model(tmp_path, "return {'y': x}", name="bad")
    async with running(bad, good, restart_backoff_ns=SECOND_NS // 100) as rig:
        bad.path.write_text("import os\nos._exit(3)\n")
        os.kill(rig.executor.pid, signal.SIGKILL)
        await rig.listener.until(lambda: rig.listener.count("restored") == 1, "restart")
        assert rig.listener.count("lost") == 1
        assert rig.executor.restarts == 3
        assert "status 3" in rig.executor.failed_models[bad.digest]
        result, _ = await rig.ask(make_job(good, np.ones((1, 4), dtype="<f4")))
        assert result.error is None


async def test_a_model_that_kills_one_reload_and_fails_the_next_is_left_out(tmp_path):
    """The second failure leaves a living process: the restart goes on with it instead of waiting for its end for ever."""
    good, bad = make_spec(), python_model(tmp_path, "return {'y': x}", name="bad")
    async with running(bad, good, restart_backoff_ns=SECOND_NS // 100) as rig:
        bad.path.write_text(
            "import os, pathlib\n"
            f"mark = pathlib.Path({str(tmp_path / 'died')!r})\n"
            "if mark.exists():\n    raise ValueError('not again')\n"
            "mark.touch()\nos._exit(3)\n"
        )
        os.kill(rig.executor.pid, signal.SIGKILL)
        await rig.listener.until(lambda: rig.listener.count("restored") == 1, "restart")
        assert rig.executor.restarts == 2
        assert "not again" in rig.executor.failed_models[bad.digest]
        result, _ = await rig.ask(make_job(good, np.ones((1, 4), dtype="<f4")))
        assert result.error is None


async def test_a_model_that_hangs_at_reload_is_left_out_and_blames_nobody_else(tmp_path):
    """It is killed twice and then left out; the model behind it comes back."""
    bad, good = python_model(tmp_path, "return {'y': x}", name="bad"), make_spec()
    settings = {"load_timeout_ns": 2 * SECOND_NS, "restart_backoff_ns": SECOND_NS // 100}
    async with running(bad, good, **settings) as rig:
        bad.path.write_text("import time\ntime.sleep(600)\n")
        os.kill(rig.executor.pid, signal.SIGKILL)
        await rig.listener.until(lambda: rig.listener.count("restored") == 1, "restart")
        assert rig.executor.restarts == 3
        assert list(rig.executor.failed_models) == [bad.digest]
        assert "took longer than 2 s" in rig.executor.failed_models[bad.digest]
        result, _ = await rig.ask(make_job(good, np.ones((1, 4), dtype="<f4")))
        assert result.error is None


async def test_after_a_load_that_hung_the_next_one_finds_the_executor_down(tmp_path):
    """Who is told of the time-out is not told that the next model is at fault: its load waits for the restart."""
    slow = python_model(tmp_path, "return {}", name="slow")
    slow.path.write_text("import time\ntime.sleep(600)\n")
    async with running(load_timeout_ns=2 * SECOND_NS) as rig:
        with pytest.raises(LoadError, match="took longer than 2 s"):
            await rig.executor.load(slow)
        assert not rig.executor.up
        rig.executor.settings = replace(rig.executor.settings, load_timeout_ns=60 * SECOND_NS)
        await rig.executor.load(make_spec())


async def test_a_fault_of_the_restart_itself_does_not_end_it(monkeypatch):
    """Whatever goes wrong: the child of that try is ended, and there is another try."""
    async with running(make_spec(), restart_backoff_ns=SECOND_NS // 100) as rig:
        load, faults = rig.executor._load_now, [KeyError("a fault")]

        async def faulty(spec):
            if faults:
                raise faults.pop()
            await load(spec)

        monkeypatch.setattr(rig.executor, "_load_now", faulty)
        os.kill(rig.executor.pid, signal.SIGKILL)
        await rig.listener.until(lambda: rig.listener.count("restored") == 1, "restart")
        assert rig.executor.restarts == 2
        assert len(psutil.Process().children(recursive=True)) == 1


async def test_models_are_warm_again_before_the_executor_is_back(tmp_path):
    """One run of the largest size each, outside the listener; a run that fails is no reason to leave the model out."""
    count = f"open({str(tmp_path / 'runs')!r}, 'a').write(f'{{len(x)}}\\n')\n"
    good = python_model(tmp_path, count + "return {'y': x}", name="good")
    picky = python_model(tmp_path, "raise ValueError('not this one')", name="picky")
    async with running(good, picky, warm_up=warm_up) as rig:
        os.kill(rig.executor.pid, signal.SIGKILL)
        await rig.listener.until(lambda: rig.listener.count("restored") == 1, "restart")
        assert (tmp_path / "runs").read_text().split() == ["8"]
        assert rig.executor.failed_models == {}
        assert [kind for kind, _ in rig.listener.events] == ["lost", "restored"]
        result, _ = await rig.ask(make_job(good, np.ones((1, 4), dtype="<f4")))
        assert result.error is None


@pytest.mark.parametrize("fault", ["os._exit(5)", "time.sleep(600)"])
async def test_a_model_that_ends_its_warm_up_after_a_restart_is_left_out(tmp_path, fault):
    """A run that ends or hangs the process counts like such a load: twice, then the others go on without it."""
    bad, good = python_model(tmp_path, fault, name="bad"), make_spec()
    settings = {"restart_backoff_ns": SECOND_NS // 100, "load_timeout_ns": 2 * SECOND_NS, "watchdog_floor_ns": 1}
    async with running(bad, good, warm_up=warm_up, **settings) as rig:
        os.kill(rig.executor.pid, signal.SIGKILL)
        await rig.listener.until(lambda: rig.listener.count("restored") == 1, "restart")
        assert rig.executor.restarts == 3
        assert list(rig.executor.failed_models) == [bad.digest]
        result, _ = await rig.ask(make_job(good, np.ones((1, 4), dtype="<f4")))
        assert result.error is None


async def test_stop_during_a_restart_leaves_nothing():
    """The restart under way is given up."""
    async with running(make_spec()) as rig:
        os.kill(rig.executor.pid, signal.SIGKILL)
        await rig.listener.until(lambda: rig.listener.count("lost") == 1, "loss")
        await rig.executor.stop()
        assert rig.listener.count("restored") == 0
    assert psutil.Process().children(recursive=True) == []


async def test_a_load_that_waits_for_a_restart_ends_with_the_executor():
    """Nobody waits for an executor that is stopped."""
    async with running(make_spec(), restart_backoff_ns=600 * SECOND_NS, restart_backoff_max_ns=600 * SECOND_NS) as rig:
        for loss in (1, 2):  # the second in a row waits
            os.kill(rig.executor.pid, signal.SIGKILL)
            await rig.listener.until(lambda wanted=loss: rig.listener.count("lost") == wanted, "loss")
            if loss == 1:
                await rig.listener.until(lambda: rig.listener.count("restored") == 1, "restart")
        assert rig.executor.restart_expected_ns() > 600 * SECOND_NS
        load = asyncio.ensure_future(rig.executor.load(make_spec("other")))
        await asyncio.sleep(0)
        await rig.executor.stop()
        with pytest.raises(LoadError, match="stopped"):
            await load
