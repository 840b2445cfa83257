"""Figures of the live table from a runtime's metrics."""

from __future__ import annotations

import io

import pytest
from harness_cli.run.replica import Replica, ReplicaState
from harness_cli.run.scrape import Window, parse, quantile_ms
from harness_cli.run.view import live_table
from rich.console import Console


def make_metrics(completed=0, late=0, cancelled=0, batches=0, rows=0, fast=0, slow=0, queue=3) -> str:
    return f"""
# TYPE harness_queue_requests gauge
harness_queue_requests{{model="a"}} {queue}
harness_queue_requests{{model="b"}} 1
# TYPE harness_inflight_batches gauge
harness_inflight_batches 2
# TYPE harness_busy_ratio gauge
harness_busy_ratio{{pod="p"}} 0.5
# TYPE harness_batch_rows histogram
harness_batch_rows_bucket{{le="+Inf"}} {batches}
harness_batch_rows_count {batches}
harness_batch_rows_sum {rows}
# TYPE harness_requests_total counter
harness_requests_total{{outcome="completed"}} {completed}
harness_requests_total{{outcome="late"}} {late}
harness_requests_total{{outcome="cancelled"}} {cancelled}
# TYPE harness_inference_latency_seconds histogram
harness_inference_latency_seconds_bucket{{le="0.01"}} {fast}
harness_inference_latency_seconds_bucket{{le="0.02"}} {fast + slow}
harness_inference_latency_seconds_bucket{{le="+Inf"}} {fast + slow}
harness_inference_latency_seconds_count {fast + slow}
harness_inference_latency_seconds_sum 1
"""


def test_figures_are_of_the_window():
    """Gauges as they are now; counters by their growth; what callers did themselves is left out of the share."""
    window = Window()
    assert window.figures() is None
    window.add(parse(make_metrics(completed=1000, batches=100, rows=100, fast=1000)))
    window.add(parse(make_metrics(completed=1090, late=10, cancelled=50, batches=110, rows=180, fast=1050, slow=50)))
    figures = window.figures()
    assert (figures.queue, figures.in_flight, figures.busy) == (4, 2, 0.5)
    assert figures.mean_batch_rows == 8
    assert figures.on_time_ratio == pytest.approx(0.9)
    assert figures.p50_ms == pytest.approx(10)
    assert figures.p99_ms == pytest.approx(19.8)


def test_a_restart_starts_the_window_anew():
    """Counters that went back never give negative figures."""
    window = Window()
    window.add(parse(make_metrics(completed=1000)))
    window.add(parse(make_metrics(completed=5)))
    window.add(parse(make_metrics(completed=15)))
    assert window.figures().on_time_ratio == 1.0
    assert window.figures().requests_per_scrape == 10


def test_quantiles_of_odd_histograms():
    """Nothing measured, and all above the last bound."""
    assert quantile_ms({}, 0.5) is None
    assert quantile_ms({0.1: 0, float("inf"): 0}, 0.5) is None
    assert quantile_ms({0.1: 0, float("inf"): 5}, 0.99) == pytest.approx(100)


def test_the_table_shows_replicas_with_and_without_figures():
    """State, address and numbers are on the line; an unmeasured replica has none."""
    window = Window()
    window.add(parse(make_metrics()))
    replicas = [Replica("g-0", "g", lambda *_: [], grpc="127.0.0.1:9"), Replica("g-1", "g", lambda *_: [])]
    replicas[0].state = ReplicaState.READY
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(live_table(console, "t", replicas, {"g-0": window.figures(), "g-1": None}))
    text = console.export_text()
    assert "127.0.0.1:9" in text
    assert "ready" in text
    assert "starting" in text
