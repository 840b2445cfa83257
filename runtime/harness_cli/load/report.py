"""What a load test found, and whether it may be believed.

The rule: a result is valid when requests were sent, the test was not interrupted, and in an open loop the 99th percentile of
the generator's own send lag is at most ``min(5 ms, 10 % of the deadline)``. Latency counts from the *intended* send time, so a
slow server cannot slow the clock that measures it (no coordinated omission); a generator that was late itself would
blame its delay on the server, hence the rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from harness_cli.load.config import LoadConfig, Signature
    from harness_cli.load.recorder import Records

NOT_SERVED = frozenset(
    {
        "invalid",
        "unavailable",
        "failed",
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "FAILED_PRECONDITION",
        "UNAVAILABLE",
        "INTERNAL",
    }
    | {"UNIMPLEMENTED", "UNAUTHENTICATED", "PERMISSION_DENIED", "UNKNOWN"}
)
"""Outcomes that have nothing to do with how much was asked: of other servers than ours by status code."""
LAG_NS_MAX = 5_000_000
LAG_SHARE_MAX = 0.1
_MS = 1e6


@dataclass(frozen=True, slots=True)
class LoadReport:
    """Result of one load test. ``answers``: serialised responses by request (None: no answer kept), empty unless kept.

    Request ``i`` carried sample ``i % samples``.
    """

    config: LoadConfig
    signature: Signature
    records: Records
    samples: int
    rows: int
    elapsed_s: float
    interrupted: bool = False
    answers: Sequence[bytes | None] = field(default=(), repr=False)
    messages: Mapping[str, str] = field(default_factory=dict)
    """Outcome → the first message that the server (or the network) gave with it, shortened."""

    @property
    def lag_limit_ns(self) -> int:
        """Largest p99 send lag of a valid result."""
        deadline = self.config.deadline_ns
        return LAG_NS_MAX if deadline is None else min(LAG_NS_MAX, int(deadline * LAG_SHARE_MAX))

    @property
    def faults(self) -> list[str]:
        """Why the result is not valid; empty when it is."""
        faults = []
        if not len(self.records):
            faults.append("no request was sent")
        if self.interrupted:
            faults.append("the test was interrupted")
        lag = percentile_ms(self.records.lag_ns, 99)
        if lag is not None and not self.config.closed and lag * _MS > self.lag_limit_ns:
            faults.append(
                f"the load generator was late itself: p99 send lag {lag:.2f} ms, at most {self.lag_limit_ns / _MS:g} ms is"
                " allowed; give it more processor time or a lower rate"
            )
        return faults

    @property
    def valid(self) -> bool:
        """Whether the figures say something about the server."""
        return not self.faults

    @property
    def nothing_answered(self) -> bool:
        """Whether requests were sent and not one was answered."""
        return bool(len(self.records)) and not self.records.answered.any()

    @property
    def nothing_served(self) -> bool:
        """Whether not one request was answered, and every one for a reason that no lower load would change."""
        return self.nothing_answered and set(self.outcomes) <= NOT_SERVED

    @property
    def on_time(self) -> npt.NDArray[np.bool_]:
        """Per request: answered within the deadline, as the client saw it."""
        return self.records.on_time(self.config.deadline_ns)

    @property
    def on_time_ratio(self) -> float:
        """Share of requests answered on time; 0 when none was sent."""
        return float(self.on_time.mean()) if len(self.records) else 0.0

    @property
    def outcomes(self) -> dict[str, int]:
        """Requests by outcome, most frequent first."""
        counts = np.bincount(self.records.outcome, minlength=len(self.records.outcomes))
        named = zip(self.records.outcomes, counts.tolist(), strict=True)
        return dict(sorted(named, key=lambda item: -item[1]))

    def ended_as(self, outcome: str) -> npt.NDArray[np.bool_]:
        """Per request: whether it ended with this outcome."""
        if outcome not in self.records.outcomes:
            return np.zeros(len(self.records), np.bool_)
        ended: npt.NDArray[np.bool_] = self.records.outcome == self.records.outcomes.index(outcome)
        return ended

    def windows(self, width_s: float) -> list[dict[str, Any]]:
        """Rate, on-time share and answered latency per stretch of ``width_s`` seconds of intended send time."""
        width_ns = round(width_s * 1e9)
        which = self.records.intended_ns // width_ns
        on_time, latency = self.on_time, self.records.latency_ns
        found = []
        for k in range(int(which[-1]) + 1 if len(which) else 0):
            first, last = np.searchsorted(which, (k, k + 1))
            inside = slice(first, last)
            answered = latency[inside][self.records.answered[inside]]
            found.append(
                {
                    "start_s": k * width_s,
                    "sent": int(last - first),
                    "on_time_ratio": float(on_time[inside].mean()) if last > first else None,
                    "latency_ms": {"p50": percentile_ms(answered, 50), "p99": percentile_ms(answered, 99)},
                }
            )
        return found

    def tensors(self, index: int) -> dict[str, npt.NDArray[Any]] | None:
        """Outputs of request ``index`` by name; None when it was not answered. Needs ``keep_answers``."""
        from harness_cli.load.grpc.converters import response_tensors

        data = self.answers[index]
        return None if data is None else response_tensors(data)

    def summary(self) -> dict[str, Any]:
        """The figures as JSON-ready values."""
        records, config = self.records, self.config
        on_time = self.on_time
        answered = records.latency_ns[records.answered]
        total_weight = float(records.weight.sum())
        return {
            "model": self.signature.model,
            "version": self.signature.version,
            "urls": list(config.urls),
            "sent": len(records),
            "rows": self.rows,
            "on_time": int(on_time.sum()),
            "on_time_ratio": self.on_time_ratio,
            "weighted_on_time_ratio": float(records.weight[on_time].sum()) / total_weight if total_weight else 0.0,
            "outcomes": self.outcomes,
            "messages": dict(self.messages),
            "latency_ms": distribution_ms(answered),
            "send_lag_ms": distribution_ms(records.lag_ns),
            "valid": self.valid,
            "faults": self.faults,
            "requests_per_second": self._rates(),
            "duration_s": config.planned_s,
            "elapsed_s": self.elapsed_s,
            "deadline_ms": None if config.deadline_ns is None else config.deadline_ns / _MS,
            "loop": "closed" if config.closed else "open",
            "clients": config.closed or None,
            "arrivals": None if config.closed else config.workload.arrivals.value,
            "seed": config.seed,
            "by_weight": self._by_weight(),
        }

    def _rates(self) -> dict[str, float | None]:
        schedule = self.config.schedule
        seconds = self.config.planned_s
        return {
            "offered": schedule.mean_rate if schedule is not None else None,
            "sent": len(self.records) / seconds,
            "answered": int(self.records.answered.sum()) / seconds,
            "on_time": int(self.on_time.sum()) / seconds,
        }

    def _by_weight(self) -> dict[str, dict[str, float]]:
        if not self.config.weights:
            return {}
        on_time, weights = self.on_time, self.records.weight
        return {
            f"{weight:g}": {
                "sent": int((weights == weight).sum()),
                "on_time_ratio": float(on_time[weights == weight].mean()),
            }
            for weight in np.unique(weights).tolist()
        }


def percentile_ms(values_ns: npt.NDArray[np.int64], percent: float) -> float | None:
    """A percentile in ms; None of nothing."""
    return float(np.percentile(values_ns, percent)) / _MS if len(values_ns) else None


def distribution_ms(values_ns: npt.NDArray[np.int64]) -> dict[str, float | None]:
    """Mean, p50, p90, p99 and maximum in ms."""
    found: dict[str, float | None] = {"mean": float(values_ns.mean()) / _MS if len(values_ns) else None}
    found |= {f"p{percent}": percentile_ms(values_ns, percent) for percent in (50, 90, 99)}
    return found | {"max": percentile_ms(values_ns, 100)}
