"""Names, labels and starting values of a pod's metrics (protocol.md §5)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from harness_core.decision import BatchPlan
from harness_core.descriptor import LaneKey
from harness_core.outcome import BatchReason, Outcome
from harness_runtime.metrics import ModelNow, PodMetrics, PodNow
from harness_runtime.model import ModelFormat, ModelSpec

ROOT = Path(__file__).resolve().parents[3]
LABELS = {"service": "shop", "group": "cpu"}
MS = 1_000_000


def spec(name: str, **fields) -> ModelSpec:
    values = {
        "version": "1",
        "digest": f"d-{name}",
        "format": ModelFormat.PROFILED,
        "path": None,
        "max_batch_size": 8,
        "execution_sizes": (),
        "inputs": (),
        "outputs": (),
        "objective_ns": 1,
        "max_latency_ns": None,
        "weight": 1.0,
        "max_weight": 1.0,
        "priority": 0,
    }
    return ModelSpec(name=name, **{**values, **fields})


def plan(rows: int, reason: BatchReason = BatchReason.FULL, members: tuple[int, ...] = (1, 2)) -> BatchPlan:
    return BatchPlan(1, LaneKey("d-a"), members, rows, 8, reason, 10 * MS, 0)


def value(metrics: PodMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, {**LABELS, **labels})


@pytest.fixture
def metrics() -> PodMetrics:
    made = PodMetrics(LABELS, [spec("a"), spec("b", max_batch_size=12, execution_sizes=(3, 12))], 0, version="1")
    made.watch(lambda: PodNow({"a": ModelNow(queue_requests=3, queue_oldest_ns=1500 * MS), "b": ModelNow()}))
    return made


def test_every_series_exists_at_zero_from_the_start(metrics):
    """A scaler must be able to tell idle from missing (B046): every model with every outcome and reason."""
    for model in ("a", "b"):
        for outcome in Outcome:
            assert value(metrics, "harness_requests_total", model=model, outcome=outcome.value) == 0
        for reason in BatchReason:
            assert value(metrics, "harness_batches_total", model=model, reason=reason.value) == 0
        for name in ("formation_delay", "inference_latency", "batch_execution"):
            assert value(metrics, f"harness_{name}_seconds_count", model=model) == 0
        assert value(metrics, "harness_weight_on_time_total", model=model) == 0
        assert value(metrics, "harness_isolated_failures_total", model=model) == 0
    assert value(metrics, "harness_requests_total", model="", outcome="invalid") == 0


def test_gauges_are_read_at_the_scrape(metrics):
    """B048: the queue shows as it is now, not as it was when something last completed."""
    assert value(metrics, "harness_queue_requests", model="a") == 3
    assert value(metrics, "harness_queue_oldest_seconds", model="a") == 1.5
    assert value(metrics, "harness_queue_requests", model="b") == 0


def test_batch_rows_count_rows_and_have_a_bound_at_every_execution_size(metrics):
    """B009: the histogram counts rows; its largest occupied bucket is the model's own limit."""
    metrics.batch_started(0, spec("a"), plan(8), [5 * MS, 7 * MS])
    assert value(metrics, "harness_batch_rows_sum", model="a") == 8
    assert value(metrics, "harness_batch_rows_bucket", model="a", le="8.0") == 1
    assert value(metrics, "harness_batch_rows_bucket", model="a", le="4.0") == 0
    assert value(metrics, "harness_batch_rows_bucket", model="b", le="12.0") == 0
    assert value(metrics, "harness_formation_delay_seconds_count", model="a") == 2
    assert value(metrics, "harness_batches_total", model="a", reason="full") == 1


def test_profile_error_is_smoothed_and_bounded(metrics):
    """A batch that took half as long again as predicted counts 0.5; a stall is clipped at 1 (ratio 2)."""
    metrics.batch_started(0, spec("a"), plan(2), [])
    metrics.batch_ended(15 * MS, spec("a"), plan(2), 15 * MS, failed=False)
    assert value(metrics, "harness_profile_error_ratio", model="a") == pytest.approx(0.5)
    metrics.batch_ended(15 * MS, spec("a"), plan(2), 9000 * MS, failed=False)
    assert value(metrics, "harness_profile_error_ratio", model="a") == pytest.approx(0.525)


def test_isolated_failures_count_single_members_only(metrics):
    """B003: half of a split batch that fails again is not yet a member found at fault."""
    metrics.batch_ended(0, spec("a"), plan(2, BatchReason.ISOLATE), 1, failed=True)
    assert value(metrics, "harness_isolated_failures_total", model="a") == 0
    metrics.batch_ended(0, spec("a"), plan(1, BatchReason.ISOLATE, (1,)), 1, failed=True)
    assert value(metrics, "harness_isolated_failures_total", model="a") == 1


def test_weight_counts_on_time_apart(metrics):
    """The goal's two sums: weight answered by the target, and weight that asked."""
    metrics.request_ended(spec("a"), Outcome.COMPLETED, 2.0, 5 * MS)
    metrics.request_ended(spec("a"), Outcome.LATE, 3.0, 5 * MS)
    metrics.request_ended(spec("a"), Outcome.EXPIRED, 4.0, None)
    assert value(metrics, "harness_weight_total", model="a") == 9
    assert value(metrics, "harness_weight_on_time_total", model="a") == 2
    assert value(metrics, "harness_inference_latency_seconds_count", model="a") == 2


def test_refusals_of_unknown_models_share_one_series(metrics):
    """A caller cannot invent label values."""
    metrics.refused("", Outcome.INVALID, "unknown_model")
    assert value(metrics, "harness_requests_total", model="", outcome="invalid") == 1


def test_answers_that_could_not_be_sent_are_counted_apart(metrics):
    """They are among the answered ones already, and both reasons are there from the start."""
    assert value(metrics, "harness_unsent_answers_total", model="a", reason="internal") == 0
    metrics.unsent("a", "response_too_large")
    assert value(metrics, "harness_unsent_answers_total", model="a", reason="response_too_large") == 1


def test_reference_page_is_fresh():
    """docs/reference/metrics.md is what the code says; `make generate` writes it."""
    run = subprocess.run(
        [sys.executable, "-m", "harness_runtime.metrics_reference"], capture_output=True, text=True, check=True
    )
    assert run.stdout == (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
