"""A runtime whose core has failed must not look alive (B004)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import grpc
import numpy as np
import pytest
from harness_proto.grpc import inference_pb2_grpc as rpc

from tests.scenarios.models import emulated, write_service
from tests.scenarios.pod import request

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process

BREAKING = """
import sys
from harness_core.pod import machine
from harness_runtime.main import main

decide = machine.PodMachine.decide

def failing(self, now):
    decision = decide(self, now)
    assert not decision.launches, "lost track"
    return decision

machine.PodMachine.decide = failing
sys.exit(main(sys.argv[1:]))
"""


def call_until_it_breaks(process: subprocess.Popen[str]) -> set[grpc.StatusCode]:
    """Wait until it is ready, call it, and say how the calls ended."""
    events = {}
    while "ready" not in events:
        event = json.loads(process.stdout.readline())
        events[event["event"]] = event
    with grpc.insecure_channel(events["listening"]["grpc"]) as channel:
        stub = rpc.GRPCInferenceServiceStub(channel)
        message = request("m", X=np.ones((1, 4), np.float32))
        begun = time.monotonic()
        futures = [stub.ModelInfer.future(message, timeout=30) for _ in range(3)]
        codes = {future.exception().code() for future in futures}
        assert time.monotonic() - begun < 10
    return codes


def test_broken_core_ends_every_request_and_then_the_process(tmp_path: Path):
    """Never Ready with a dead loop: the callers get UNAVAILABLE at once, the process ends with a failure and is started again."""
    service = write_service(tmp_path, emulated("m", 1000, 100))
    arguments = ["--service", str(service), "--grpc-port", "0", "--metrics-port", "0"]
    command = [sys.executable, "-c", BREAKING, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            codes = call_until_it_breaks(process)
            stdout, stderr = process.communicate(timeout=30)
        finally:
            process.kill()
    assert codes == {grpc.StatusCode.UNAVAILABLE}
    assert process.returncode == 1
    assert '"failed"' in stdout
    assert "lost track" in stderr
