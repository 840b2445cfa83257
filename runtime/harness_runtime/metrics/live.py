"""Gauges read at the time of the scrape: a queue that hangs shows before anything completes (scenario B048)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from harness_runtime.model import ModelState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from harness_core.pod.snapshot import PodSnapshot
    from prometheus_client import Metric

    from harness_runtime.model import ModelEntry


@dataclass(frozen=True, slots=True)
class ModelNow:
    """One model at this moment, summed over its versions."""

    queue_requests: int = 0
    queue_rows: int = 0
    queue_oldest_ns: int = 0
    inflight_batches: int = 0
    ready: bool = False


@dataclass(frozen=True, slots=True)
class PodNow:
    """The pod at this moment. ``models`` by name."""

    models: Mapping[str, ModelNow]
    busy: float = 0.0
    utilisation: float = 0.0
    executor_up: bool = False
    ready: bool = False
    dispatch_delay_ns: int = 0


def models_now(entries: Sequence[ModelEntry], snapshot: PodSnapshot, now_ns: int) -> dict[str, ModelNow]:
    """The queue by model name, versions of one name added up."""
    names = dict.fromkeys(entry.spec.name for entry in entries)
    return {
        name: _model_now([entry for entry in entries if entry.spec.name == name], snapshot, now_ns) for name in names
    }


def _model_now(versions: Sequence[ModelEntry], snapshot: PodSnapshot, now_ns: int) -> ModelNow:
    states = [state for entry in versions if (state := snapshot.models.get(entry.spec.digest)) is not None]
    oldest_ns = min(
        (state.oldest_arrival_ns for state in states if state.oldest_arrival_ns is not None), default=now_ns
    )
    return ModelNow(
        queue_requests=sum(state.queue_requests for state in states),
        queue_rows=sum(state.queue_rows for state in states),
        queue_oldest_ns=max(0, now_ns - oldest_ns),
        inflight_batches=sum(state.inflight_batches for state in states),
        ready=all(entry.state is ModelState.READY for entry in versions),
    )


_PER_MODEL: tuple[tuple[str, str, Callable[[ModelNow], float]], ...] = (
    ("queue_requests", "Requests that have not begun to run.", lambda now: now.queue_requests),
    ("queue_rows", "Rows of the requests that have not begun to run.", lambda now: now.queue_rows),
    ("queue_oldest_seconds", "Age of the oldest request that has not begun to run; 0 when there is none.", lambda now: now.queue_oldest_ns / 1e9),
    ("inflight_batches", "Batches that run now (staged ones still count as queued).", lambda now: now.inflight_batches),
    ("model_ready", "1 when the model is loaded, warmed up and served.", lambda now: now.ready),
)  # fmt: skip

_PER_POD: tuple[tuple[str, str, Callable[[PodNow], float]], ...] = (
    ("busy_ratio", "Share of the last ten seconds in which the accelerator ran.", lambda now: now.busy),
    ("utilisation_ratio", "Mean of U(n) over the batches of the last ten seconds, weighted by their time: how well the accelerator is filled while it runs.", lambda now: now.utilisation),
    ("executor_up", "1 while the executor process runs with its models.", lambda now: now.executor_up),
    ("ready", "1 while the server is ready.", lambda now: now.ready),
    ("dispatch_delay_seconds", "Measured time that a batch takes beyond its run, subtracted from every deadline.", lambda now: now.dispatch_delay_ns / 1e9),
)  # fmt: skip


class LiveGauges(Collector):
    """Collector of what :class:`PodNow` says. ``labels``: names and values that every series carries."""

    def __init__(self, prefix: str, labels: Mapping[str, str], now: Callable[[], PodNow]) -> None:
        self._prefix = prefix
        self._names: Sequence[str] = tuple(labels)
        self._values: Sequence[str] = tuple(labels.values())
        self._now = now

    def collect(self) -> Iterable[Metric]:
        """One family per gauge."""
        now = self._now()
        for name, text, value in _PER_MODEL:
            family = GaugeMetricFamily(self._prefix + name, text, labels=[*self._names, "model"])
            for model, state in now.models.items():
                family.add_metric([*self._values, model], float(value(state)))
            yield family
        for name, text, pod_value in _PER_POD:
            family = GaugeMetricFamily(self._prefix + name, text, labels=self._names)
            family.add_metric(self._values, float(pod_value(now)))
            yield family
