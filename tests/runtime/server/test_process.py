"""The assembled runtime as a real process: life, drain, mistakes, losses."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.error
from typing import TYPE_CHECKING

import grpc
import numpy as np
import psutil
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from harness_proto.grpc import inference_pb2 as pb

from tests.scenarios.models import echo_source, emulated, model, write_model, write_service
from tests.scenarios.pod import Pod, echo, output, request, trailers

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process


def call(value: float = 1.0, rows: int = 1, model: str = "m", **parameters) -> pb.ModelInferRequest:
    return request(model, parameters=parameters, X=np.full((rows, 4), value, np.float32))


def wait_until(condition, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def status_of(future) -> grpc.StatusCode:
    try:
        future.result(timeout=30)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@contextlib.contextmanager
def pod_of(tmp_path: Path, *models, **options):
    with Pod(write_service(tmp_path, *models), **options) as pod:
        yield pod


def test_ready_then_answers_then_drains(tmp_path):
    """Main job: announce, warm up, answer over gRPC with one's own rows, and leave with status 0."""
    with pod_of(tmp_path, emulated("m", 2000, 100)) as pod:
        answer = pod.infer(call(3.5, rows=2))
        assert np.array_equal(output(answer, "Y"), np.full((2, 4), 3.5, np.float32))
        state = pod.state()
        assert state["ready"] is True
        [served] = state["models"]
        points = served["profiles"][""]["points"]
        assert [point["size"] for point in points] == [1, 2, 4, 8, 16, 32]
        assert all(point["samples"] > 0 for point in points)
        assert pod.http("/readyz") == "ok\n"
        assert pod.metric("harness_requests_total", outcome="completed", model="m") == 1
        assert pod.metric("harness_batches_total") == 1
        assert pod.metric("harness_model_ready", model="m") == 1


def test_sigterm_loses_no_accepted_request(tmp_path):
    """Drain: what runs and what waits is answered, what comes later is told to go elsewhere, exit status 0."""
    write_model(tmp_path, "echo", echo_source("if inputs['X'][0, 0] == 1: time.sleep(4)"))
    slow = model("echo", tmp_path, maxBatchSize=1, batching={"policy": "Immediate"})
    slow["objective"] = {"latencyMilliseconds": 100_000}
    with pod_of(tmp_path, slow) as pod:
        # The first runs for seconds, so that the others are seen waiting however slow this machine is.
        futures = [pod.send(echo(first=1.0))]
        wait_until(lambda: pod.metric("harness_inflight_batches") == 1)
        futures += [pod.send(echo(first=2.0)) for _ in range(5)]
        wait_until(lambda: pod.metric("harness_queue_requests") == 5)
        pod.process.send_signal(signal.SIGTERM)
        pod.wait_event("draining")
        late = pod.send(echo(first=9.0))
        assert status_of(late) is grpc.StatusCode.UNAVAILABLE
        assert [status_of(future) for future in futures] == [grpc.StatusCode.OK] * 6
        pod.wait_event("stopped")
        assert pod.process.wait(timeout=10) == 0


def test_liveness_holds_until_a_normal_end(tmp_path):
    """A probe that comes while the server stops must not have it restarted: 200 until nobody listens, beside a watcher of its health."""
    with pod_of(tmp_path, emulated("m", 1000, 100)) as pod:
        watch = HealthStub(pod.channel).Watch(health_pb2.HealthCheckRequest(), timeout=60)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        pod.process.send_signal(signal.SIGTERM)
        answers = []
        with contextlib.suppress(OSError):
            while not answers or answers[-1] == 200:
                try:
                    pod.http("/healthz")
                    answers.append(200)
                except urllib.error.HTTPError as error:
                    answers.append(error.code)
        assert set(answers) == {200}
        pod.wait_event("stopped")
        assert pod.process.wait(timeout=10) == 0


def test_second_signal_ends_at_once(tmp_path):
    """An operator who asks twice does not want to wait; every request still gets a status."""
    write_model(tmp_path, "echo", echo_source("if inputs['X'][0, 0] > 0: time.sleep(20)"))
    slow = model("echo", tmp_path, maxBatchSize=1, objective={"latencyMilliseconds": 100_000})
    with pod_of(tmp_path, slow) as pod:
        futures = [pod.send(echo(first=1.0), timeout=100) for _ in range(3)]
        wait_until(lambda: pod.metric("harness_queue_requests") == 2)
        pod.process.send_signal(signal.SIGTERM)
        pod.wait_event("draining")
        pod.process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        assert pod.process.wait(timeout=15) == 0
        assert time.monotonic() - begun < 10
        assert {status_of(future) for future in futures} == {grpc.StatusCode.UNAVAILABLE}


def test_killed_executor_comes_back_by_itself(tmp_path):
    """Kill -9 of the executor under load: UNAVAILABLE with a retry hint, not ready, ready again, nothing unanswered."""
    with pod_of(tmp_path, emulated("m", 20_000, 1000, objective={"latencyMilliseconds": 5000})) as pod:
        futures = []
        for value in range(100):
            if value == 50:
                os.kill(pod.state()["executor"]["pid"], signal.SIGKILL)
            futures.append(pod.send(call(value)))
            time.sleep(0.005)
        codes = {status_of(future) for future in futures}
        assert codes <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}
        assert grpc.StatusCode.UNAVAILABLE in codes
        refused = [future.exception() for future in futures if future.exception() is not None]
        assert all(trailers(error)["harness-outcome"] == "unavailable" for error in refused)
        assert pod.wait_event("executor_lost")
        pod.wait_event("executor_restored")
        pod.wait_event("ready")
        assert pod.infer(call(7)).outputs[0].shape == [1, 4]
        assert pod.metric("harness_executor_lost_total") == 1
        assert pod.state()["executor"]["incarnation"] == 2
        ended = pod.metric("harness_requests_total")
        assert ended == 101


def test_model_that_cannot_load_leaves_the_others_served(tmp_path):
    """Its state says why; the server is not ready as a whole; the others answer."""
    good = emulated("m", 1000, 100)
    (tmp_path / "bad" / "1").mkdir(parents=True)
    (tmp_path / "bad" / "1" / "model.py").write_text("raise RuntimeError('no weights')\n", encoding="utf-8")
    bad = {**good, "name": "bad", "format": "Python", "storageUri": f"file://{tmp_path}/bad"}
    bad.pop("emulation")
    with pod_of(tmp_path, bad, good, wait_for="listening") as pod:
        failed = pod.wait_event("model_failed")
        assert failed["model"] == "bad"
        assert "no weights" in failed["reason"]
        pod.wait_event("model_ready")
        assert pod.infer(call(2)).outputs[0].shape == [1, 4]
        with pytest.raises(grpc.RpcError) as refused:
            pod.infer(call(2, model="bad"))
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "no weights" in refused.value.details()
        assert not pod.stub.ServerReady(pb.ServerReadyRequest()).ready
        assert pod.stub.ServerLive(pb.ServerLiveRequest()).live
        assert pod.state()["ready"] is False


def test_idle_server_takes_next_to_no_cpu(tmp_path):
    """No polling: below 1 % of a core over several seconds, the executor process included (issue 3)."""
    with pod_of(tmp_path, emulated("m", 1000, 100)) as pod:
        pod.infer(call())
        time.sleep(1.0)
        processes = [psutil.Process(pod.process.pid), *psutil.Process(pod.process.pid).children(recursive=True)]

        def share(seconds: float) -> float:
            begun, used = time.monotonic(), -sum(sum(process.cpu_times()[:2]) for process in processes)
            time.sleep(seconds)
            used += sum(sum(process.cpu_times()[:2]) for process in processes)
            return used / (time.monotonic() - begun)

        # The quietest of three windows: a tick of 10 ms charged to the wrong process is a quarter of the bound.
        assert min(share(4.0) for _ in range(3)) < 0.01


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--service", "nowhere.yaml"], "No such file or directory"),
        (["--service", "service.yaml", "--group", "gpu"], "gpu"),
        (["--service", "service.yaml", "--threads", "0"], "--threads"),
        (["--service", "service.yaml", "--grpc-port", "8123", "--metrics-port", "8123"], "--metrics-port"),
        (["--service", "bad.yaml"], "spec.models"),
    ],
)
def test_users_mistakes_are_one_line_and_exit_status_2(tmp_path, arguments, said):
    """No traceback for what a user can put right."""
    write_service(tmp_path, emulated("m", 1000, 100))
    bad = (tmp_path / "service.yaml").read_text(encoding="utf-8").replace("maxBatchSize: 32", "maxBatchSize: none")
    (tmp_path / "bad.yaml").write_text(bad, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "harness_runtime.main", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 2
    assert said in run.stderr
    assert "Traceback" not in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1


def test_taken_port_is_a_users_mistake(tmp_path):
    """The message names the address."""
    with pod_of(tmp_path, emulated("m", 1000, 100)) as pod:
        port = pod.addresses["metrics"].rpartition(":")[2]
        run = subprocess.run(
            [
                sys.executable,
                "-m",
                "harness_runtime.main",
                "--service",
                str(tmp_path / "service.yaml"),
                "--grpc-port",
                "0",
                "--metrics-port",
                port,
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert run.returncode == 2
        assert port in run.stderr
        assert "Traceback" not in run.stderr
