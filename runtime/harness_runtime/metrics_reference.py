"""Writes docs/reference/metrics.md from the metrics themselves: ``python -m harness_runtime.metrics_reference``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from harness_runtime.metrics import ModelNow, PodMetrics, PodNow
from harness_runtime.model import ModelFormat, ModelSpec

if TYPE_CHECKING:
    from prometheus_client import Metric

HEAD = """# Metrics of a runtime pod

Written by `python -m harness_runtime.metrics_reference`; do not edit.

Every pod serves these at `/metrics` on its metrics port (8002), in Prometheus's text format. All series exist from the start, counters at
0. Times are seconds. Besides the labels named here, every series carries `service` and `group`. The label `model` is empty for requests to
a model that is not configured. A call whose deadline passes inside gRPC, before the server's code sees it, is in no series: clients under heavy overload
count more calls than the server. Gauges of the queue are read at the scrape, so a queue that hangs shows before anything completes.

| metric | type | labels | meaning |
| --- | --- | --- | --- |
"""
COMMON = {"service", "group"}
HIDDEN = {"le"}


def reference() -> str:
    """The page."""
    metrics = PodMetrics({"service": "", "group": ""}, [_example()], 0, version="")
    metrics.watch(lambda: PodNow({"model": ModelNow()}))
    return HEAD + "".join(_row(family) for family in sorted(metrics.registry.collect(), key=lambda each: each.name))


def _row(family: Metric) -> str:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels: dict[str, list[str]] = {}
    for sample in family.samples:
        for label, value in sample.labels.items():
            if label not in COMMON | HIDDEN and value not in labels.setdefault(label, []):
                labels[label].append(value)
    shown = ", ".join(_label(label, values) for label, values in labels.items())
    return f"| `{name}` | {family.type} | {shown} | {family.documentation} |\n"


def _label(label: str, values: list[str]) -> str:
    if label in {"outcome", "reason"}:
        return f"`{label}`: " + ", ".join(f"`{value}`" for value in values)
    return f"`{label}`"


def _example() -> ModelSpec:
    return ModelSpec(
        name="model",
        version="1",
        digest="",
        format=ModelFormat.PROFILED,
        path=None,
        max_batch_size=1,
        execution_sizes=(),
        inputs=(),
        outputs=(),
        objective_ns=1,
        max_latency_ns=None,
        weight=1.0,
        max_weight=1.0,
        priority=0,
    )


if __name__ == "__main__":
    sys.stdout.write(reference())
