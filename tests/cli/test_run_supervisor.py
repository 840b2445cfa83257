"""The supervisor of harness run, with small scripts in the place of runtimes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap

import pytest
from harness_cli.errors import CliError
from harness_cli.run.replica import Replica, ReplicaState
from harness_cli.run.supervisor import Supervisor, SupervisorSettings

pytestmark = pytest.mark.process

WELL = """
    import json, signal, sys, time
    def say(**message): print(json.dumps(message), flush=True)
    def end(*_):
        say(event="draining"); say(event="stopped"); sys.exit(0)
    signal.signal(signal.SIGTERM, end)
    grpc, metrics = (int(port) or default for port, default in zip(sys.argv[1:3], (41001, 41002)))
    say(event="listening", grpc=f"127.0.0.1:{grpc}", metrics=f"127.0.0.1:{metrics}")
    print("loading", file=sys.stderr, flush=True)
    say(event="ready")
    while True: time.sleep(1)
"""


def make_replica(script: str, name: str = "r-0") -> Replica:
    code = textwrap.dedent(script)
    return Replica(
        name=name, group="r", command=lambda grpc, metrics: [sys.executable, "-c", code, str(grpc), str(metrics)]
    )


class Watch:
    """Hears everything; can wait for an event."""

    def __init__(self):
        self.events, self.lines, self._new = [], [], asyncio.Event()

    def event(self, replica, event):
        self.events.append((replica.name, event))
        self._new.set()

    def log(self, replica, line):
        self.lines.append(line)

    async def until(self, count: int, event: str):
        while sum(heard == event for _, heard in self.events) < count:
            self._new.clear()
            await asyncio.wait_for(self._new.wait(), 20)


def supervise(replicas, watch, **settings) -> Supervisor:
    return Supervisor(
        replicas, watch.event, watch.log, SupervisorSettings(**({"backoff_s": 0.05, "drain_s": 10} | settings))
    )


def test_starts_announces_and_drains_all():
    """Both become ready with their addresses; stop drains them; run returns."""

    async def scenario():
        watch, replicas = Watch(), [make_replica(WELL, "r-0"), make_replica(WELL, "r-1")]
        supervisor = supervise(replicas, watch)
        task = asyncio.create_task(supervisor.run())
        await asyncio.wait_for(supervisor.wait_ready(), 20)
        assert [replica.grpc for replica in replicas] == ["127.0.0.1:41001"] * 2
        assert [replica.state for replica in replicas] == [ReplicaState.READY] * 2
        supervisor.stop()
        await asyncio.wait_for(task, 20)
        assert [replica.exit_code for replica in replicas] == [0, 0]
        assert {replica.state for replica in replicas} == {ReplicaState.STOPPED}
        assert ("r-0", "draining") in watch.events
        assert "loading" in watch.lines

    asyncio.run(scenario())


def test_a_crashed_replica_comes_back_on_its_ports():
    """After kill -9: restarted with the ports it had, the other one is left alone."""

    async def scenario():
        watch, replicas = Watch(), [make_replica(WELL, "r-0"), make_replica(WELL, "r-1")]
        supervisor = supervise(replicas, watch)
        task = asyncio.create_task(supervisor.run())
        await asyncio.wait_for(supervisor.wait_ready(), 20)
        first, other = replicas[0].pid, replicas[1].pid
        os.kill(first, signal.SIGKILL)
        await watch.until(3, "ready")
        assert replicas[0].pid != first
        assert replicas[0].restarts == 1
        assert replicas[0].grpc_port == 41001
        assert replicas[1].pid == other
        supervisor.stop()
        await asyncio.wait_for(task, 20)

    asyncio.run(scenario())


def test_a_replica_that_never_gets_ready_ends_the_command():
    """Its own words are in the error, and the healthy one is drained, not left behind."""

    async def scenario():
        watch = Watch()
        bad = make_replica("import sys; print('no such model file', file=sys.stderr); sys.exit(4)", "bad-0")
        good = make_replica(WELL, "good-0")
        with pytest.raises(CliError, match=r"(?s)bad-0 ended with exit code 4.*no such model file") as caught:
            await asyncio.wait_for(supervise([good, bad], watch).run(), 20)
        assert caught.value.exit_code == 1
        assert good.state is ReplicaState.STOPPED

    asyncio.run(scenario())


def test_a_replica_deaf_to_sigterm_is_killed_after_its_grace():
    """Drain has an end."""

    async def scenario():
        watch = Watch()
        deaf = make_replica(
            WELL.replace("signal.signal(signal.SIGTERM, end)", "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
        )
        supervisor = supervise([deaf], watch, drain_s=0.3)
        task = asyncio.create_task(supervisor.run())
        await asyncio.wait_for(supervisor.wait_ready(), 20)
        supervisor.stop()
        await asyncio.wait_for(task, 20)
        assert deaf.exit_code == -signal.SIGKILL

    asyncio.run(scenario())


def test_restarts_pause_longer_and_longer():
    """A replica that was ready once and now dies at once is not started in a hot loop."""
    script = """
        import json, os, sys
        print(json.dumps({"event": "ready"}), flush=True)
    """

    async def scenario():
        watch = Watch()
        supervisor = supervise([make_replica(script)], watch, backoff_s=0.1, backoff_s_max=0.4)
        task = asyncio.create_task(supervisor.run())
        loop = asyncio.get_running_loop()
        start = loop.time()
        await watch.until(4, "restarting")
        assert loop.time() - start >= 0.1 + 0.2 + 0.4 + 0.4
        supervisor.stop()
        await asyncio.wait_for(task, 20)

    asyncio.run(scenario())


def test_a_model_that_cannot_be_loaded_ends_the_start_with_its_reason():
    """The runtime would serve its other models and never be ready; whoever started it is told why instead of waiting."""
    failing = WELL.replace('say(event="ready")', 'say(event="model_failed", model="m", version="1", reason="no file")')

    async def scenario():
        with pytest.raises(CliError, match=r"(?s)r-0 could not load every model.*model 'm': no file"):
            await asyncio.wait_for(supervise([make_replica(failing)], Watch()).run(), 20)

    asyncio.run(scenario())
