"""What the runtime says on stderr: short lines of one form, the useful ones not buried."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.scenarios.models import echo_source, emulated, write_model, write_service
from tests.scenarios.models import model as stored

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process

LINE = re.compile(r'time=\S+ level=\w+ logger=\S+( executor=\d+)? msg=".*"( trace=".*")?')


def started(service: Path, *words: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "harness_runtime.main", "--service", str(service), "--allow-python-models", *words]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def log_until(event: str, service: Path, *words: str) -> list[str]:
    """Lines of stderr of a runtime that is asked to end after ``event``."""
    process = started(service, "--grpc-port", "0", "--metrics-port", "0", *words)
    assert process.stdout is not None
    for line in process.stdout:
        if f'"{event}"' in line:
            break
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    return err.splitlines()


def failing(tmp_path: Path) -> Path:
    write_model(tmp_path, "bad", echo_source() + "\nraise RuntimeError('no weights')\n")
    return write_service(tmp_path, stored("bad", tmp_path), emulated("good", 1000, 100))


def test_a_model_that_does_not_load_costs_two_short_lines(tmp_path):
    """The executor's with the model's own frames in it, and the server's; every line has the same form; reasons repeat no name."""
    lines = log_until("model_failed", failing(tmp_path))
    assert all(LINE.fullmatch(line) for line in lines), lines
    executor, server = [line for line in lines if "no weights" in line]
    assert "model bad version 1 does not load: RuntimeError: no weights" in executor
    assert " executor=" in executor
    assert "model.py" in executor
    assert "importlib" not in executor
    assert len(executor) < 1000
    assert "model=bad version=1: RuntimeError: no weights" in server


def test_every_frame_is_there_for_who_asks(tmp_path):
    """--verbose reaches the executor."""
    lines = log_until("model_failed", failing(tmp_path), "--verbose")
    [every] = [line for line in lines if "every frame" in line]
    assert "level=debug" in every
    assert "importlib" in every


def test_the_settings_are_one_short_line(tmp_path):
    """Names, policies, sizes, limits; the rest is on /state. A notice is no warning."""
    service = write_service(
        tmp_path, emulated("m", 1000, 100, objective={"latencyMilliseconds": 50, "onTimePermille": 999})
    )
    lines = log_until("ready", service)
    [settings] = [line for line in lines if "/state" in line]
    assert "model m version 1: Deadline" in settings
    assert len(settings) < 500
    [notice] = [line for line in lines if "onTimePermille" in line]
    assert "level=info" in notice


@pytest.mark.parametrize("which", ["grpc", "metrics"])
def test_a_taken_port_is_one_line(tmp_path, which):
    """Address and reason, the same words for both ports; nothing of gRPC's own beside it."""
    import socket

    service = write_service(tmp_path, emulated("m", 1000, 100))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = {"grpc": 0, "metrics": 0} | {which: port}
        process = started(service, "--grpc-port", str(ports["grpc"]), "--metrics-port", str(ports["metrics"]))
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.splitlines() == [f"harness-runtime: cannot listen on 127.0.0.1:{port}: address already in use"]
