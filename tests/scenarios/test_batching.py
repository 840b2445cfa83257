"""Scenarios about queues and batches, on a real runtime process: B003, B004, B006, B007, B009, B011, B040, B048."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import grpc
import psutil
import pytest

from tests.scenarios.models import ECHO_SIGNATURE, echo_source, emulated, model, write_model, write_service
from tests.scenarios.pod import Pod, echo, output, trailers

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process

PICKY = 'if (inputs["X"][:, 0] < 0).any():\n    raise ValueError("negative first element")'
PICKY_AFTER = (
    'if (outputs["Y"][:, 0] < 0).any():\n    return {"Y": outputs["Y"][:-1], "TAG": outputs["TAG"]}\nreturn outputs'
)
WINDOW = {"policy": "MaxDelay", "maxQueueDelayMicroseconds": 2_000_000}
"""Long enough for a handful of calls to arrive inside it on a machine that is busy with other things."""


def slow(seconds: float) -> str:
    # The warm-up sends zeros: only a call that means it is slow, or the pod would take minutes to become ready.
    return f'if (inputs["X"] != 0).any():\n    time.sleep({seconds})'


def one_model(tmp_path: Path, source: str, **fields: object) -> Path:
    write_model(tmp_path / "repository", "echo", source)
    return write_service(tmp_path, model("echo", tmp_path / "repository", **fields))


def wait_until(condition, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.02)


def codes(calls) -> list[str]:
    return ["OK" if call.exception() is None else call.code().name for call in calls]


@pytest.mark.parametrize("source", [echo_source(PICKY), echo_source(after=PICKY_AFTER)], ids=["forward", "output"])
def test_b003_a_poisonous_member_alone_gets_the_error(tmp_path, source: str):
    """B003: 7 of 8 are answered rightly, the eighth gets INTERNAL; isolated failures are counted."""
    with Pod(one_model(tmp_path, source, batching=WINDOW)) as pod:
        calls = [pod.send(echo(first=-9.0 if i == 3 else float(i), id=str(i))) for i in range(8)]
        assert codes(calls) == ["INTERNAL" if i == 3 else "OK" for i in range(8)]
        for i, call in enumerate(calls):
            if i != 3:
                assert output(call.result(), "Y")[0, 0] == 2 * i
                assert call.result().id == str(i)
        error = calls[3].exception()
        assert trailers(error)["harness-outcome"] == "failed"
        assert pod.metric("harness_batches_total", reason="isolate") >= 2
        assert pod.metric("harness_requests_total", outcome="failed") == 1


def test_b003_bad_input_contents_hurt_only_their_sender(tmp_path):
    """B003, in decoding: the poison is refused at the edge and the others share their batch."""
    with Pod(one_model(tmp_path, echo_source(), batching=WINDOW)) as pod:
        poison = echo(first=3)
        poison.raw_input_contents[0] = b"\0" * 15
        calls = [pod.send(poison if i == 3 else echo(first=float(i))) for i in range(8)]
        assert codes(calls) == ["INVALID_ARGUMENT" if i == 3 else "OK" for i in range(8)]


def test_b004_the_server_answers_on_after_a_failed_batch(tmp_path):
    """B004: ok, poison, ten ok; the poison's error comes at once and readiness holds."""
    with Pod(one_model(tmp_path, echo_source(PICKY), batching={"policy": "Immediate"})) as pod:
        pod.infer(echo(first=1))
        began = time.monotonic()
        with pytest.raises(grpc.RpcError):
            pod.infer(echo(first=-1))
        assert time.monotonic() - began < 5
        assert codes([pod.send(echo(first=float(i))) for i in range(10)]) == ["OK"] * 10
        assert pod.http("/readyz")


def test_b006_requests_given_up_by_their_callers_never_run(tmp_path):
    """B006: ten calls with 200 ms deadlines behind a long run end at about 200 ms, and forward runs once."""
    with Pod(one_model(tmp_path, echo_source(slow(4.0)), maxBatchSize=1, batching={"policy": "Immediate"})) as pod:
        pod.forget_forwards()
        first = pod.send(echo(first=1))
        wait_until(lambda: pod.metric("harness_inflight_batches") == 1)
        began = time.monotonic()
        late = [pod.send(echo(first=2), timeout=0.2) for _ in range(10)]
        assert codes(late) == ["DEADLINE_EXCEEDED"] * 10
        assert time.monotonic() - began < 3
        assert not first.done()
        first.result()
        assert pod.rows_of_forwards() == [1]
        assert pod.metric("harness_queue_requests") == 0
        ended = sum(
            pod.metric("harness_requests_total", outcome=outcome)
            for outcome in ("cancelled", "expired", "rejected_infeasible")
        )
        assert ended == 10


def test_b006_a_cancelled_call_leaves_the_queue(tmp_path):
    """B006: cancelled by hand, ten calls are counted as cancelled, the queue is empty, and forward runs once."""
    with Pod(one_model(tmp_path, echo_source(slow(4.0)), maxBatchSize=1, batching={"policy": "Immediate"})) as pod:
        pod.forget_forwards()
        first = pod.send(echo(first=1))
        wait_until(lambda: pod.metric("harness_inflight_batches") == 1)
        waiting = [pod.send(echo(first=2)) for _ in range(10)]
        wait_until(lambda: pod.metric("harness_queue_requests") >= 9)
        for call in waiting:
            call.cancel()
        wait_until(lambda: pod.metric("harness_requests_total", outcome="cancelled") == 10)
        assert pod.metric("harness_queue_requests") == 0
        first.result()
        assert pod.rows_of_forwards() == [1]


def test_b007_a_queue_timeout_does_not_wait_for_the_executor(tmp_path):
    """B007 (a): with a queue timeout of 1 s behind a run of 6 s, B is refused at about 1 s."""
    batching = {"policy": "Immediate", "queueTimeoutMilliseconds": 1000}
    with Pod(one_model(tmp_path, echo_source(slow(6.0)), maxBatchSize=1, batching=batching)) as pod:
        running = pod.send(echo(first=1))
        wait_until(lambda: pod.metric("harness_inflight_batches") == 1)
        # The staged place counts as queued until it runs, so B and C wait behind A whichever is staged.
        began = time.monotonic()
        waiting = [pod.send(echo(first=2)) for _ in range(2)]
        errors = [call.exception() for call in waiting]
        assert 0.9 < time.monotonic() - began < 4
        assert {error.code() for error in errors} == {grpc.StatusCode.DEADLINE_EXCEEDED}
        assert not running.done()


@pytest.mark.parametrize("gap_seconds", [0.0, 0.05])
def test_b007_exactly_the_bound_waits(tmp_path, gap_seconds: float):
    """B007 (b): with a queue of 4, of 10 calls exactly 4 wait and 6 are refused at once, every time."""
    batching = {"policy": "Immediate", "maxQueueSize": 4}
    with Pod(one_model(tmp_path, echo_source(slow(3.0)), maxBatchSize=4, batching=batching)) as pod:
        for _ in range(2):
            first = pod.send(echo(first=1))
            wait_until(lambda: pod.metric("harness_inflight_batches") == 1)
            calls = []
            for _ in range(10):
                calls.append(pod.send(echo(first=1)))
                time.sleep(gap_seconds)
            assert sorted(codes(calls)) == ["OK"] * 4 + ["RESOURCE_EXHAUSTED"] * 6
            first.result()


def test_b009_the_limit_counts_rows(tmp_path):
    """B009: six calls of 3 rows run as 6+6+6, nine of 1 row as 8+1; never above 8."""
    with Pod(one_model(tmp_path, echo_source(), batching=WINDOW)) as pod:
        pod.forget_forwards()
        for call in [pod.send(echo(first=1, rows=3)) for _ in range(6)]:
            assert output(call.result(), "Y").shape == (3, 4)
        assert rows_run(pod, "_count") == 3
        for call in [pod.send(echo(first=1)) for _ in range(9)]:
            call.result()
        assert max(pod.rows_of_forwards()) <= 8
        assert rows_run(pod, "_count") == 5
        assert rows_run(pod, "_sum") == 27


def rows_run(pod: Pod, suffix: str) -> float:
    return pod.metric(f"harness_batch_rows{suffix}", model="echo")


def test_b009_a_request_over_the_limit_is_refused_with_the_limit(tmp_path):
    """B009: nine rows for a model of at most eight: INVALID_ARGUMENT naming both."""
    with Pod(one_model(tmp_path, echo_source())) as pod:
        with pytest.raises(grpc.RpcError) as caught:
            pod.infer(echo(rows=9))
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "9" in caught.value.details()
        assert "8" in caught.value.details()


@pytest.mark.parametrize("delay_ms", [3000, 20])
def test_b011_batch_settings_reach_the_batcher(tmp_path, delay_ms: int):
    """B011: a lone call takes the delay of its own YAML, and the effective settings say so."""
    batching = {"policy": "MaxDelay", "maxQueueDelayMicroseconds": 1000 * delay_ms}
    with Pod(one_model(tmp_path, echo_source(), maxBatchSize=4, batching=batching)) as pod:
        pod.infer(echo())
        began = time.monotonic()
        pod.infer(echo())
        took_ms = 1000 * (time.monotonic() - began)
        assert delay_ms <= took_ms < delay_ms + 2000
        assert effective(pod.state(), "max_queue_delay_ns") == {1_000_000 * delay_ms}


def effective(state: object, name: str) -> set[object]:
    """Every value that ``/state`` gives for a setting of this name."""
    if isinstance(state, dict):
        own = {state[name]} if name in state else set()
        return own.union(*(effective(value, name) for value in state.values()))
    if isinstance(state, list):
        return set().union(*(effective(value, name) for value in state))
    return set()


def test_b040_probes_answer_while_the_model_runs(tmp_path):
    """B040: during a run of 6 s every probe answers in under a second; liveness ignores queues and models."""
    with Pod(one_model(tmp_path, echo_source(slow(6.0)))) as pod:
        call = pod.send(echo(first=1))
        wait_until(lambda: pod.metric("harness_inflight_batches") == 1)
        for _ in range(8):
            assert min(probe_seconds(pod) for _ in range(2)) < 1
            time.sleep(0.3)
        assert not call.done()
        assert output(call.result(), "Y")[0, 0] == 2


def probe_seconds(pod: Pod) -> float:
    began = time.monotonic()
    pod.http("/healthz")
    pod.http("/readyz")
    return time.monotonic() - began


def test_b048_a_hung_queue_is_visible_before_anything_completes(tmp_path):
    """B048: in flight 1, the rest queued with their age, and all gauges 0 once the callers are gone."""
    with Pod(one_model(tmp_path, echo_source(slow(8.0)), maxBatchSize=1, batching={"policy": "Immediate"})) as pod:
        began = time.monotonic()
        calls = [pod.send(echo(first=1)) for _ in range(50)]
        time.sleep(2)
        inflight = pod.metric("harness_inflight_batches")
        assert inflight + pod.metric("harness_queue_requests") == 50
        assert inflight <= 2
        oldest = pod.metric("harness_queue_oldest_seconds")
        assert 1.0 < oldest <= time.monotonic() - began
        for call in calls:
            call.cancel()
        wait_until(lambda: pod.metric("harness_queue_requests") == 0)
        wait_until(lambda: pod.metric("harness_inflight_batches") == 0, 20)
        assert pod.metric("harness_queue_oldest_seconds") == 0


def test_kill_9_of_the_executor_under_load(tmp_path):
    """Members of the lost batches get UNAVAILABLE with a retry hint; the pod is ready again by itself; none hangs."""
    service = write_service(tmp_path, emulated("echo", 20_000, 1_000, 8))
    with Pod(service) as pod:
        calls = []
        for i in range(200):
            calls.append(pod.send(emulated_call(), timeout=20))
            if i == 100:
                executor = psutil.Process(pod.process.pid).children()[0]
                executor.kill()
            time.sleep(0.004)
        outcomes = codes(calls)
        assert set(outcomes) <= {"OK", "UNAVAILABLE", "RESOURCE_EXHAUSTED"}
        assert "UNAVAILABLE" in outcomes
        lost = next(call.exception() for call in calls if call.code() == grpc.StatusCode.UNAVAILABLE)
        assert "grpc-status-details-bin" in trailers(lost)
        wait_until(lambda: pod.state() and ready(pod), 30)
        assert codes([pod.send(emulated_call()) for _ in range(4)]) == ["OK"] * 4


def ready(pod: Pod) -> bool:
    try:
        return bool(pod.http("/readyz"))
    except OSError:
        return False


def emulated_call():
    message = echo(first=1)
    del message.inputs[1]
    del message.raw_input_contents[1]
    return message


def test_sigterm_drains_without_losing_a_request(tmp_path):
    """SIGTERM: what was accepted is answered, what comes later is UNAVAILABLE, the process ends with status 0."""
    with Pod(one_model(tmp_path, echo_source(slow(4.0)), maxBatchSize=20, batching={"policy": "Immediate"})) as pod:
        calls = [pod.send(echo(first=1))]
        wait_until(lambda: pod.metric("harness_inflight_batches") == 1)
        calls += [pod.send(echo(first=1)) for _ in range(19)]
        wait_until(lambda: pod.metric("harness_queue_requests") == 19)
        pod.process.terminate()
        assert codes(calls) == ["OK"] * 20


def test_the_signature_of_echo_is_served(tmp_path):
    """Metadata carries the leading -1 of a batched model (protocol.md §1)."""
    with Pod(one_model(tmp_path, echo_source())) as pod:
        from harness_proto.grpc import inference_pb2 as pb

        metadata = pod.stub.ModelMetadata(pb.ModelMetadataRequest(name="echo"), timeout=5)
        assert [list(tensor.shape) for tensor in metadata.inputs] == [[-1, 4], [-1, 1]]
        assert [tensor.name for tensor in metadata.outputs] == [entry["name"] for entry in ECHO_SIGNATURE["outputs"]]
