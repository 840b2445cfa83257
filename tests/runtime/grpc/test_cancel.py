"""Deadlines and cancels travel from the client to the batcher."""

from __future__ import annotations

import time

import grpc

from tests.runtime.grpc.running import echo_message, output


def wait_for(condition) -> None:
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_b006_a_cancel_withdraws_the_request(edge, batcher):
    """B006: the batcher's task is cancelled when the client gives up."""
    batcher.hold = True
    call = edge.stub.ModelInfer.future(echo_message(), timeout=30)
    wait_for(lambda: batcher.works)
    call.cancel()
    wait_for(lambda: batcher.withdrawn == 1)


def test_b006_a_passed_deadline_withdraws_the_request(edge, batcher):
    """B006: also when nothing but the RPC's deadline ends it."""
    batcher.hold = True
    error = edge.error(echo_message(), timeout=0.2)
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    wait_for(lambda: batcher.withdrawn == 1)


def test_the_deadline_is_the_limit(edge, batcher):
    """design.md §3: a minute is only the limit and the objective stays the target; a timeout is both.

    gRPC writes a minute in steps of 100 ms, rounded up.
    """
    edge.infer(echo_message(), timeout=60)
    (work,) = batcher.works
    assert work.target_ns - work.arrival_ns == 100_000_000
    assert 50e9 < work.limit_ns - work.arrival_ns < 60.2e9
    batcher.works.clear()
    edge.infer(echo_message(), timeout=5)
    message = echo_message()
    message.parameters["timeout"].int64_param = 30_000
    edge.infer(message, timeout=60)
    assert batcher.works[1].target_ns == batcher.works[1].limit_ns == batcher.works[1].arrival_ns + 30_000_000


def test_no_deadline_is_max_hold(edge, batcher):
    """Without one the request is held for limits.maxHoldSeconds."""
    edge.infer(echo_message(), timeout=None)
    (work,) = batcher.works
    assert work.limit_ns - work.arrival_ns == 120 * 10**9


def test_answers_are_matched_to_their_calls(edge, batcher):
    """Many calls at once on one connection: each gets its own numbers and id."""
    calls = [edge.stub.ModelInfer.future(echo_message(first=n, id=str(n)), timeout=30) for n in range(20)]
    for n, call in enumerate(calls):
        response = call.result()
        assert response.id == str(n)
        assert output(response, "Y")[0][0] == 2 * n
