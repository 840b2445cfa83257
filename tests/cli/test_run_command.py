"""harness run as a person types it, with real runtimes of an emulated accelerator."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
from harness_cli.run.options import RunOptions
from harness_cli.run.plan import plan_replicas
from harness_cli.service_file import read_service

from tests.cli.documents import emulated_service

pytestmark = pytest.mark.process

SERVICE = emulated_service(1000, 100)


class Running:
    """A `harness run --json` process and its events."""

    def __init__(self, service, *words: str):
        argv = [sys.executable, "-m", "harness_cli.main", "run", "-f", str(service), "--json", *words]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.events: list[dict] = []

    def until(self, event: str) -> dict:
        for line in self.process.stdout:
            self.events.append(json.loads(line))
            if self.events[-1]["event"] == event:
                return self.events[-1]
        raise AssertionError(f"no {event}: {self.events} {self.process.stderr.read()}")

    def end_by_itself(self) -> tuple[int, str]:
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        if self.process.poll() is None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        self.events += [json.loads(line) for line in out.splitlines()]
        return self.process.returncode, err


def test_two_replicas_serve_crash_and_drain(tmp_path, run_harness):
    """Addresses are announced; load over both is answered; a killed replica comes back on its port; SIGTERM drains, exit 0."""
    service = tmp_path / "s.yaml"
    service.write_text(SERVICE)
    running = Running(service)
    try:
        ready = running.until("all_ready")
        assert len(set(ready["addresses"])) == 2
        urls = " ".join(f"--url {address}" for address in ready["addresses"])
        code, out, err = run_harness(f"load {urls} --model m --rate 100 --duration 1 --deadline-ms 1000 --json -")
        figures = json.loads(out)
        assert code in {0, 3}, err
        assert figures["outcomes"] == {"completed": figures["sent"]}
        victim = ready["replicas"][0]
        os.kill(victim["pid"], signal.SIGKILL)
        running.until("crashed")
        again = running.until("ready")
        assert (again["replica"], again["grpc"], again["restarts"]) == (victim["replica"], victim["grpc"], 1)
    finally:
        code, _ = running.end()
    assert code == 0
    assert [event["event"] for event in running.events].count("stopped") == 2
    assert running.events[-1] == {"event": "all_stopped"}


def test_no_replica_outlives_a_killed_command(tmp_path):
    """After kill -9 of `harness run` the kernel tells the replicas to drain."""
    service = tmp_path / "s.yaml"
    service.write_text(SERVICE)
    running = Running(service, "--replicas", "1")
    pid = running.until("all_ready")["replicas"][0]["pid"]
    running.end(signal.SIGKILL)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("the replica is still there")


def test_a_port_that_is_taken_ends_the_command(tmp_path):
    """The replica's own words, exit code 1, no traceback."""
    service = tmp_path / "s.yaml"
    service.write_text(SERVICE)
    first = Running(service, "--replicas", "1")
    try:
        port = first.until("all_ready")["addresses"][0].rpartition(":")[2]
        code, err = Running(service, "--replicas", "1", "--port-base", port).end_by_itself()
    finally:
        first.end()
    assert code == 1
    assert "before it was ready" in err
    assert f"  cannot listen on 127.0.0.1:{port}: address already in use\n" in err
    assert "it is started again" not in err
    assert "GRPC_VERBOSITY" not in err
    assert "Traceback" not in err


def test_notices_are_told_once(tmp_path):
    """By the command, not again by each replica."""
    service = tmp_path / "s.yaml"
    service.write_text(SERVICE.replace("executionSizes: [1, 4]", "objective: {onTimePermille: 999}"))
    running = Running(service)
    try:
        running.until("all_ready")
    finally:
        code, err = running.end()
    assert code == 0
    assert err.count("onTimePermille") == 1
    assert err.startswith("note: ")


def test_options_reach_every_replica(tmp_path):
    """Address, message bound and accelerator class are the runtimes'; None and "" leave them their defaults."""
    service = tmp_path / "s.yaml"
    service.write_text(SERVICE)
    found = read_service(service, trust_repository=False).service
    options = RunOptions(file=service, bind="0.0.0.0", max_message_bytes=4096, accelerator_class="a100", threads=3)
    for replica in plan_replicas(found, options):
        words = list(replica.command(1, 2))
        given = dict(itertools.pairwise(words))
        assert given["--bind"] == "0.0.0.0"
        assert given["--max-message-bytes"] == "4096"
        assert given["--accelerator-class"] == "a100"
        assert given["--threads"] == "3"
    [first, _] = plan_replicas(found, RunOptions(file=service))
    words = list(first.command(1, 2))
    assert "--max-message-bytes" not in words
    assert words[words.index("--threads") + 1] == str(max(1, (os.cpu_count() or 1) // 2))


def test_a_runtime_takes_the_options(tmp_path):
    """End to end: a request over the bound given on the command line is refused with it."""
    service = tmp_path / "s.yaml"
    service.write_text(SERVICE)
    words = ("--replicas", "1", "--bind", "localhost", "--max-message-bytes", "2048", "--accelerator-class", "a100")
    running = Running(service, *words)
    try:
        state = running.until("all_ready")["replicas"][0]
        with urllib.request.urlopen(f"http://{state['metrics']}/state", timeout=10) as answer:
            settings = json.load(answer)["settings"]
    finally:
        running.end()
    assert (settings["bind"], settings["max_message_bytes"]) == ("localhost", 2048)


@pytest.mark.parametrize(
    ("changes", "words", "want"),
    [
        (
            {"format: Profiled": "format: Python\n      storageUri: file:models"},
            ("--allow-python-models",),
            "no [luck]",
        ),
        ({"cpu": "cpu"}, ("--port-base", "TAKEN"), "address already in use"),
    ],
)
def test_a_reason_for_not_starting_is_shown_once(tmp_path, changes, words, want):
    """What the replica logs before it is ready is left out when the command ends with its words; --verbose shows it."""
    text = SERVICE
    for old, new in changes.items():
        text = text.replace(old, new)
    if "Python" in text:
        text = "".join(line for line in text.splitlines(keepends=True) if "emulation" not in line)
    (tmp_path / "models" / "1").mkdir(parents=True)
    (tmp_path / "models" / "1" / "model.py").write_text("raise RuntimeError('no [luck]')\n")
    service = tmp_path / "s.yaml"
    service.write_text(text)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        words = tuple(str(taken.getsockname()[1]) if word == "TAKEN" else word for word in words)
        code, err = Running(service, "--replicas", "1", *words).end_by_itself()
        _, all_of_it = Running(service, "--replicas", "1", "--verbose", *words).end_by_itself()
    assert code == 1
    assert err.count(want) == 1, err
    assert all_of_it.count(want) > 1
