"""The load generator against a small server: what it sends, counts and believes."""

from __future__ import annotations

import json
import os
import signal
import time

import numpy as np
import pytest
from harness_cli.errors import CliError
from harness_cli.load.config import LoadConfig
from harness_cli.load.engine import run_load
from harness_sim.workloads import Arrivals, RateSchedule, Workload
from helpers_oip import FakeServer

MS = 1_000_000


def make_config(server: FakeServer, **changes) -> LoadConfig:
    want = {
        "schedule": RateSchedule.constant(100, 0.5),
        "workload": Workload(Arrivals.CONSTANT),
        "deadline_ns": 500 * MS,
    }
    return LoadConfig(urls=(server.url,), model="double", **(want | changes))


def parameters(request) -> dict:
    return {name: getattr(value, value.WhichOneof("parameter_choice")) for name, value in request.parameters.items()}


def test_sends_all_and_reports_the_agreed_figures():
    """R·S requests with `timeout` and a gRPC deadline of D arrive, and the summary has the fields of the contract."""
    with FakeServer() as server:
        report = run_load(make_config(server))
    summary = json.loads(json.dumps(report.summary()))
    assert summary["sent"] == summary["on_time"] == len(server.received) == 50
    assert summary["on_time_ratio"] == 1.0
    assert summary["outcomes"] == {"completed": 50}
    assert {"p50", "p99"} <= set(summary["latency_ms"])
    assert summary["send_lag_ms"]["p99"] >= 0
    assert isinstance(summary["valid"], bool)
    assert all(parameters(request) == {"timeout": 500_000} for request in server.received)
    assert all(0.3 < remaining <= 0.51 for remaining in server.remaining)


def test_answers_belong_to_their_requests():
    """Answer i is the output for sample i, whatever the order in which answers came."""
    samples = [{"X": np.full((1, 4), i, np.float32)} for i in range(20)]
    with FakeServer() as server:
        report = run_load(make_config(server, samples=samples, keep_answers=True))
    assert report.samples == 20
    for i in range(len(report.records)):
        assert report.tensors(i)["Y"].tolist() == [[i % 20] * 4]


def test_refusals_are_outcomes_and_not_on_time():
    """The trailer names the outcome; only answers count."""
    with FakeServer(refuse_every=5) as server:
        report = run_load(make_config(server))
    assert report.outcomes == {"completed": 40, "rejected_capacity": 10}
    assert report.on_time_ratio == pytest.approx(0.8)
    assert not np.any(report.on_time & report.ended_as("rejected_capacity"))


def test_a_server_that_never_answers_in_time():
    """The client's own deadline ends a request; with no trailer the status code is the outcome, and the server sees the cancel."""
    with FakeServer(delay_s=5) as server:
        report = run_load(make_config(server, deadline_ns=50 * MS, schedule=RateSchedule.constant(100, 0.2)))
        assert report.outcomes == {"DEADLINE_EXCEEDED": 20}
        assert report.summary()["latency_ms"]["p50"] is None
        assert report.on_time_ratio == 0


def test_latency_counts_from_the_intended_send_time():
    """With room for one request in flight the rest waits, and that wait is in the latency and in the send lag (invalid)."""
    with FakeServer(delay_s=0.05) as server:
        report = run_load(
            make_config(server, in_flight_max=1, deadline_ns=10_000 * MS, schedule=RateSchedule.constant(100, 0.2))
        )
    latency = report.records.latency_ns / MS
    assert len(latency) == 20
    # The last is intended at 190 ms and answered after 20 turns of 50 ms.
    assert latency[-1] > 20 * 50 - 190 - 20
    assert not report.valid
    assert "late itself" in report.faults[0]


@pytest.mark.parametrize("schedule", [RateSchedule.constant(1 / 100, 150), RateSchedule.constant(0, 120)])
def test_an_interrupt_need_not_wait_for_the_next_request(schedule):
    """Ctrl-C ends the sending at once, between two requests that are far apart and in the silence behind the last one."""
    begun = time.monotonic()
    with FakeServer() as server:
        report = run_load(make_config(server, schedule=schedule), lambda _moment: os.kill(os.getpid(), signal.SIGINT))
    assert time.monotonic() - begun < 30
    assert report.interrupted


def test_weights_priority_and_rows_are_sent():
    """Weights follow their shares, priority goes along, rows per request follow --rows."""
    with FakeServer() as server:
        report = run_load(
            make_config(
                server, schedule=RateSchedule.constant(400, 0.5), weights={10: 1, 1: 3}, priority=2, rows={1: 1, 4: 1}
            )
        )
    weights = [parameters(request)["weight"] for request in server.received]
    assert set(weights) == {10.0, 1.0}
    assert {parameters(request)["priority"] for request in server.received} == {2}
    assert {request.inputs[0].shape[0] for request in server.received} == {1, 4}
    assert report.rows == sum(request.inputs[0].shape[0] for request in server.received)
    assert sorted(report.records.weight.tolist()) == sorted(weights)
    by_weight = report.summary()["by_weight"]
    assert by_weight["10"]["sent"] + by_weight["1"]["sent"] == 200


def test_closed_loop_keeps_its_clients_busy_and_no_more():
    """Four clients against 20 ms: about 200 requests a second, never more than four under way."""
    with FakeServer(delay_s=0.02) as server:
        report = run_load(make_config(server, schedule=None, closed=4, duration_s=0.5))
    starts, ends = report.records.sent_ns, report.records.done_ns
    under_way = [int(np.sum((starts <= at) & (ends > at))) for at in starts]
    assert max(under_way) <= 4
    assert 20 <= len(report.records) <= 104
    assert report.valid


def test_without_a_deadline_no_timeout_is_sent():
    """Neither parameter: the model's own objective decides; every answer counts."""
    with FakeServer() as server:
        report = run_load(make_config(server, deadline_ns=None))
    assert all(parameters(request) == {} for request in server.received)
    assert report.on_time_ratio == 1.0
    assert report.summary()["deadline_ms"] is None


def test_several_servers_take_turns():
    """Round robin over urls and connections."""
    with FakeServer() as one, FakeServer() as two:
        config = make_config(one, connections=2)
        run_load(
            LoadConfig(**{name: getattr(config, name) for name in config.__slots__} | {"urls": (one.url, two.url)})
        )
        assert len(one.received) == len(two.received) == 25


def test_windows_show_the_course():
    """Stretches of intended time with their own share."""
    with FakeServer() as server:
        report = run_load(make_config(server))
    windows = report.windows(0.1)
    assert [window["sent"] for window in windows] == [10] * 5
    assert all(window["on_time_ratio"] == 1.0 for window in windows)


def test_progress_is_told():
    """The hook sees growing numbers."""
    seen = []
    with FakeServer() as server:
        run_load(make_config(server, schedule=RateSchedule.constant(50, 1)), seen.append)
    assert seen
    assert [p.sent for p in seen] == sorted(p.sent for p in seen)
    assert seen[-1].planned_requests == 50


def test_a_plain_server_without_model_config_is_served_too():
    """ModelConfig is an extension; without it a leading -1 says batched."""
    with FakeServer(max_batch_size=None) as server:
        report = run_load(make_config(server))
    assert report.signature.batched
    assert report.signature.max_rows is None


def test_mistakes_are_one_line():
    """Unknown model, unreachable server, wrong inputs: CliError with the name, the limit and the value."""
    with FakeServer() as server:
        config = make_config(server)
        same = {name: getattr(config, name) for name in config.__slots__}
        with pytest.raises(CliError, match="does not serve model 'nope'"):
            run_load(LoadConfig(**same | {"model": "nope"}))
        with pytest.raises(CliError, match="at most 8"):
            run_load(LoadConfig(**same | {"rows": {9: 1}}))
        with pytest.raises(CliError, match=r"input 'X' has shape \[1, 3\], the model wants \[rows, 4\]"):
            run_load(LoadConfig(**same | {"samples": [{"X": np.zeros((1, 3), np.float32)}]}))


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({"urls": ()}, "url"),
        ({"closed": 2}, "exactly one"),
        ({"schedule": None, "closed": 2}, "duration"),
        ({"deadline_ns": 10}, "deadline"),
        ({"connections": 0}, "connections"),
    ],
)
def test_a_config_that_cannot_be_is_refused(changes, want):
    """Contradictions are told before anything is sent."""
    base = {"urls": ("127.0.0.1:1",), "model": "m", "schedule": RateSchedule.constant(1, 1)}
    with pytest.raises(ValueError, match=want):
        LoadConfig(**(base | changes))
