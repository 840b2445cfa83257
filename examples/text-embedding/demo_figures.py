"""The demo's figures: what one step of the rising rate showed, and whether the whole run may be called good."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from harness_cli.run.scrape import quantile_ms
from harness_core.profile import LatencyProfile, ProfilePoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    from demo_service import Totals
    from harness_cli.load.report import LoadReport

COSINE_MIN = 0.9999
ON_TIME_MIN = 0.99
EARLY_MIN = 0.5
"""Share of the refusals of the overload step that must reach the client before the deadline. What waits is refused early; what runs
when its deadline comes, because the client took the processor from the batch, can only be told then."""
MODERATE = (0.2, 0.4, 0.6)
HIGH = 0.8
OVERLOAD = 1.5
GIVEN_UP = "DEADLINE_EXCEEDED"
"""The status code that gRPC's client makes up itself; an answer of the server carries an outcome."""
REFUSALS = ("rejected_infeasible", "expired", "rejected_capacity", "shed")
DEADLINE_BATCHES = 4
DEADLINE_STEP_MS = 10
_MS = 1e6


@dataclass(frozen=True, slots=True)
class Step:
    """One rate. Times in milliseconds; None where nothing happened. ``load``: share of the measured capacity."""

    load: float
    rate: float
    sent: int
    answered: int
    on_time_ratio: float
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    send_lag_p99_ms: float
    batch_rows: float
    formation_p50_ms: float | None
    speedup: float
    utilisation: float
    refused: int
    refused_early: int
    refusal_p50_ms: float | None
    given_up: int
    """Requests that the client itself ended at the deadline because nothing had come."""
    other: dict[str, int]
    """Ends that are neither answers nor refusals, by outcome: there should be none."""
    cosine_min: float | None
    repeated: int = 0
    """How often the step was done before, at the rate of a capacity that the machine no longer had."""

    @property
    def moderate(self) -> bool:
        """Whether every request of the step is expected to be on time."""
        return self.load <= max(MODERATE)

    def as_json(self) -> dict[str, Any]:
        """JSON-ready values."""
        return asdict(self)


def profiles_of(state: Mapping[str, Any]) -> dict[int, LatencyProfile]:
    """Bucket (tokens) → profile, as the replica measured it while it warmed up."""
    measured = state["models"][0]["profiles"]
    return {
        int(name.split(",")[0].rpartition("=")[2]): LatencyProfile.from_points(
            ProfilePoint(point["size"], point["p50_ns"], point["p99_ns"], point["samples"])
            for point in profile["points"]
        )
        for name, profile in measured.items()
    }


def deadline_ms_of(profiles: Mapping[int, LatencyProfile], main_bucket: int, max_batch: int) -> int:
    """Four full batches of the commonest bucket, rounded up to 10 ms.

    A request may find a batch running and one of another length before its own; the rest is for the client, which
    shares the processor.
    """
    full_ms = profiles[main_bucket].latency_ns(max_batch) / _MS
    return DEADLINE_STEP_MS * math.ceil(DEADLINE_BATCHES * full_ms / DEADLINE_STEP_MS)


def make_step(
    load: float, report: LoadReport, counted: Totals, profile: LatencyProfile, cosine: npt.NDArray[np.float64]
) -> Step:
    """Put the client's and the replicas' view of one step together. ``cosine``: of each answer with the model run alone."""
    records, figures = report.records, report.summary()
    latency_ms = records.latency_ns / _MS
    deadline_ms = figures["deadline_ms"]
    refused = np.zeros(len(records), bool)
    for outcome in REFUSALS:
        refused |= report.ended_as(outcome)
    known = {*REFUSALS, GIVEN_UP, "completed", "late", "OK"}
    rows = counted.rows / counted.batches if counted.batches else 0.0
    size = max(1, round(rows))
    return Step(
        load=load,
        rate=figures["requests_per_second"]["offered"],
        sent=len(records),
        answered=int(records.answered.sum()),
        on_time_ratio=report.on_time_ratio,
        latency_p50_ms=figures["latency_ms"]["p50"],
        latency_p99_ms=figures["latency_ms"]["p99"],
        send_lag_p99_ms=figures["send_lag_ms"]["p99"] or 0.0,
        batch_rows=rows,
        formation_p50_ms=quantile_ms(counted.formation, 0.5),
        speedup=profile.speedup(size),
        utilisation=profile.utilisation(size),
        refused=int(refused.sum()),
        refused_early=int((latency_ms[refused] < deadline_ms).sum()),
        refusal_p50_ms=float(np.median(latency_ms[refused])) if refused.any() else None,
        given_up=int(report.ended_as(GIVEN_UP).sum()),
        other={name: count for name, count in report.outcomes.items() if name not in known},
        cosine_min=float(cosine.min()) if len(cosine) else None,
    )


def faults_of(steps: Sequence[Step]) -> list[str]:
    """Why the run is not good; empty when it is."""
    faults = []
    for step in steps:
        name = f"at {step.load:.0%} of the capacity"
        if step.cosine_min is None:
            faults.append(f"{name}: nothing was answered")
        elif step.cosine_min < COSINE_MIN:
            faults.append(
                f"{name}: an answer has cosine {step.cosine_min:.6f} with the model run alone, at least {COSINE_MIN} is asked"
            )
        if step.other:
            faults.append(f"{name}: unexpected ends {step.other}")
        if step.moderate and step.on_time_ratio < ON_TIME_MIN:
            faults.append(f"{name}: {step.on_time_ratio:.2%} on time, at least {ON_TIME_MIN:.0%} is asked")
    overload = steps[-1]
    if not overload.refused:
        faults.append(f"at {overload.load:.0%} of the capacity: nothing was refused")
    elif overload.refused_early < EARLY_MIN * (overload.refused + overload.given_up):
        faults.append(
            f"at {overload.load:.0%} of the capacity: {overload.refused_early} of"
            f" {overload.refused + overload.given_up} refusals came before the deadline, at least {EARLY_MIN:.0%} is asked"
        )
    return faults
