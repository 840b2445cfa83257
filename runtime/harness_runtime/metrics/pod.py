"""Counters and histograms of a pod (protocol.md §5), filled by the batcher's and the data plane's reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from harness_core.outcome import ANSWERED, BatchReason, Outcome
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from harness_runtime.metrics.live import LiveGauges
from harness_runtime.metrics.windows import BusyWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from harness_core.decision import BatchPlan
    from harness_core.profile import LatencyProfile

    from harness_runtime.metrics.live import PodNow
    from harness_runtime.model import ModelSpec

PREFIX: Final = "harness_"
NS_PER_S: Final = 1e9
TIME_BUCKETS: Final = (
    *(step / 1e4 for step in (5, 7.5)),
    *(step * scale for scale in (1e-3, 1e-2, 1e-1, 1.0) for step in (1, 1.5, 2, 3, 5, 7.5)),
    *(10.0, 15.0, 20.0, 30.0, 45.0, 60.0),
)
"""0.5 ms to 60 s, neighbours at most a factor of 1.7 apart."""
ERROR_GAIN: Final = 0.05
ERROR_MAX: Final = 2.0
"""Mean ratio of measured to profile: EWMA(.05), clipped at 2 (scheduling.md §2, step 8)."""
UTILISATIONS_MAX: Final = 65536
"""Values of U(n) that are kept; lanes may be as many as callers send shapes."""
UNSENT_REASONS: Final = ("response_too_large", "internal")
UNKNOWN_MODEL: Final = ""
"""Label of requests for a model that is not configured: a caller must not be able to invent label values."""


@dataclass(slots=True)
class _Series:
    """The children of one model, looked up once."""

    requests: dict[Outcome, Counter]
    batches: dict[BatchReason, Counter]
    formation: Histogram
    latency: Histogram
    execution: Histogram
    rows: Histogram
    weight: Counter
    weight_on_time: Counter
    isolated: Counter
    error: Gauge
    ratio: float | None = None


class PodMetrics:
    """Metrics of one pod in a registry of their own; adapter of ``batcher.Observer``.

    ``labels`` are the names and values that every series carries (service, group). Series of every model exist at 0 from the
    start. ``profile_of(spec, lane bucket)`` gives the profile behind U(n), None where there is none.
    """

    def __init__(
        self,
        labels: Mapping[str, str],
        models: Iterable[ModelSpec],
        now_ns: int,
        *,
        version: str,
        profile_of: Callable[[ModelSpec, str], LatencyProfile | None] = lambda _spec, _bucket: None,
    ) -> None:
        models = list(models)
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series per child that nobody reads
        self.registry = CollectorRegistry()
        self.busy = BusyWindow(now_ns)
        self._labels = dict(labels)
        self._profile_of = profile_of
        self._utilisation: dict[tuple[str, str, int], float] = {}
        families = _Families(labels, models, self.registry)
        self._series = {spec.name: families.of_model(spec.name) for spec in models}
        self._refused = {name: families.outcomes(name) for name in [*self._series, UNKNOWN_MODEL]}
        self._unsent = {name: families.unsent_by_reason(name) for name in self._series}
        self._executor_lost = Counter(
            PREFIX + "executor_lost", "Times the executor process was lost.", list(labels), registry=self.registry
        ).labels(*labels.values())
        build = Gauge(PREFIX + "build_info", "Always 1.", [*labels, "version"], registry=self.registry)
        build.labels(*labels.values(), version).set(1)

    def watch(self, now: Callable[[], PodNow]) -> None:
        """Read ``now`` at every scrape for the live gauges."""
        self.registry.register(LiveGauges(PREFIX, self._labels, now))

    def exposition(self) -> bytes:
        """All series in Prometheus's text format."""
        return generate_latest(self.registry)

    # -- reports ------------------------------------------------------------------------------------------------------------

    def batch_started(self, now_ns: int, spec: ModelSpec, plan: BatchPlan, formation_ns: Sequence[int]) -> None:
        """Observer: a batch began to run."""
        series = self._series[spec.name]
        self.busy.started(now_ns)
        series.batches[plan.reason].inc()
        series.rows.observe(plan.rows)
        for wait_ns in formation_ns:
            series.formation.observe(wait_ns / NS_PER_S)

    def batch_ended(self, now_ns: int, spec: ModelSpec, plan: BatchPlan, execution_ns: int, *, failed: bool) -> None:
        """Observer: a batch ended."""
        series = self._series[spec.name]
        if failed and plan.reason is BatchReason.ISOLATE and len(plan.members) == 1:
            series.isolated.inc()
        if execution_ns <= 0:
            return
        self.busy.ended(now_ns, self._utilisation_of(spec, plan))
        series.execution.observe(execution_ns / NS_PER_S)
        expected_ns = self._expected_ns(spec, plan)
        if not failed and expected_ns > 0:
            ratio = min(ERROR_MAX, execution_ns / expected_ns)
            series.ratio = ratio if series.ratio is None else series.ratio + ERROR_GAIN * (ratio - series.ratio)
            series.error.set(series.ratio - 1)

    def request_ended(self, spec: ModelSpec, outcome: Outcome, weight: float, latency_ns: int | None) -> None:
        """Observer: a request that the batcher had ended."""
        series = self._series[spec.name]
        series.requests[outcome].inc()
        series.weight.inc(weight)
        if outcome is Outcome.COMPLETED:
            series.weight_on_time.inc(weight)
        if outcome in ANSWERED and latency_ns is not None:
            series.latency.observe(latency_ns / NS_PER_S)

    def executor_lost(self, now_ns: int) -> None:
        """Observer: the executor process is gone."""
        self._executor_lost.inc()
        self.busy.ended(now_ns, 0.0)

    def refused(self, model: str, outcome: Outcome, reason: str) -> None:  # noqa: ARG002 - the data plane's signature
        """A request that ended before the batcher saw it; ``model`` empty when it is not configured."""
        self._refused[model][outcome].inc()

    def unsent(self, model: str, reason: str) -> None:
        """An answer that was counted as completed or late, and that its caller did not get."""
        self._unsent[model][reason].inc()

    def profiles_changed(self) -> None:
        """Profiles were measured anew: what was computed from the old ones is forgotten."""
        self._utilisation.clear()

    def _expected_ns(self, spec: ModelSpec, plan: BatchPlan) -> int:
        """The profile's own latency: the planner's prediction is corrected already and would hide the profile's error."""
        profile = self._profile_of(spec, plan.lane.bucket)
        return plan.predicted_ns if profile is None else profile.latency_ns(plan.execution_size)

    def _utilisation_of(self, spec: ModelSpec, plan: BatchPlan) -> float:
        key = (spec.digest, plan.lane.bucket, plan.rows)
        known = self._utilisation.get(key)
        if known is None:
            profile = self._profile_of(spec, plan.lane.bucket)
            known = 0.0 if profile is None else profile.utilisation(plan.rows)
            if len(self._utilisation) < UTILISATIONS_MAX:
                self._utilisation[key] = known
        return known


class _Families:
    """One family per metric; every family carries ``labels`` and the model."""

    def __init__(self, labels: Mapping[str, str], models: Sequence[ModelSpec], registry: CollectorRegistry) -> None:
        self._labels = dict(labels)
        self._registry = registry
        self.requests = self._counter("requests", "Requests by how they ended.", "outcome")
        self.batches = self._counter("batches", "Batches started, by why they left the queue then.", "reason")
        self.weight = self._counter("weight", "Weight of the requests that ended, however they did.")
        self.on_time = self._counter("weight_on_time", "Weight of the requests that were answered by their target.")
        self.isolated = self._counter(
            "isolated_failures", "Requests found at fault by running the parts of a failed batch apart."
        )
        self.unsent = self._counter(
            "unsent_answers",
            "Answers, counted in `harness_requests_total` as `completed` or `late`, in whose place the caller got an error.",
            "reason",
        )
        self.formation = self._histogram("formation_delay_seconds", "Arrival to the start of execution.", TIME_BUCKETS)
        self.latency = self._histogram(
            "inference_latency_seconds", "Arrival to answer, of answered requests.", TIME_BUCKETS
        )
        self.execution = self._histogram(
            "batch_execution_seconds", "Run of a batch, measured in the executor.", TIME_BUCKETS
        )
        self.rows = self._histogram("batch_rows", "Rows of a batch, padding not counted.", row_buckets(models))
        self.error = Gauge(
            PREFIX + "profile_error_ratio",
            "Measured run of a batch over its profile, minus 1; smoothed.",
            self._names(),
            registry=registry,
        )

    def of_model(self, name: str) -> _Series:
        """The children of one model; making them makes their series appear at 0."""
        values = (*self._labels.values(), name)
        return _Series(
            requests=self.outcomes(name),
            batches={reason: self.batches.labels(*values, reason.value) for reason in BatchReason},
            formation=self.formation.labels(*values),
            latency=self.latency.labels(*values),
            execution=self.execution.labels(*values),
            rows=self.rows.labels(*values),
            weight=self.weight.labels(*values),
            weight_on_time=self.on_time.labels(*values),
            isolated=self.isolated.labels(*values),
            error=self.error.labels(*values),
        )

    def outcomes(self, name: str) -> dict[Outcome, Counter]:
        """The counters of one model's requests."""
        values = (*self._labels.values(), name)
        return {outcome: self.requests.labels(*values, outcome.value) for outcome in Outcome}

    def unsent_by_reason(self, name: str) -> dict[str, Counter]:
        """The counters of one model's answers that could not be sent."""
        values = (*self._labels.values(), name)
        return {reason: self.unsent.labels(*values, reason) for reason in UNSENT_REASONS}

    def _names(self, *more: str) -> list[str]:
        return [*self._labels, "model", *more]

    def _counter(self, name: str, text: str, *more: str) -> Counter:
        return Counter(PREFIX + name, text, self._names(*more), registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(PREFIX + name, text, self._names(), registry=self._registry, buckets=buckets)


def row_buckets(models: Sequence[ModelSpec]) -> tuple[float, ...]:
    """Bounds of the batch size histogram: every execution size, and powers of two where any size may be run."""
    bounds: set[int] = {1}
    for spec in models:
        bounds.add(spec.max_rows)
        bounds.update(spec.execution_sizes or (1 << power for power in range(spec.max_rows.bit_length())))
    return tuple(float(bound) for bound in sorted(bounds))
