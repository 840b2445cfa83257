"""What a machine shows of itself: plain values, read live by metrics (B048)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness_core.pod.lane import Model
    from harness_core.pod.state import PodState


@dataclass(frozen=True, slots=True)
class ModelSnapshot:
    """One model. ``queue_*`` count what has not begun to run, staged work included; ``oldest_arrival_ns`` is None when empty.

    ``inflight_batches`` counts running batches (0 or 1). ``profile_error_ratio``: measured / profile by bucket ("" is the
    default profile); ``safety_factor``: what the planner multiplies the profile by.
    """

    queue_requests: int
    queue_rows: int
    queue_bytes: int
    oldest_arrival_ns: int | None
    inflight_batches: int
    staged_batches: int
    lanes: int
    profile_error_ratio: dict[str, float] = field(default_factory=dict)
    safety_factor: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodSnapshot:
    """The whole pod. ``pending_*`` count everything that has not ended, running work included."""

    queue_requests: int
    queue_rows: int
    queue_bytes: int
    oldest_arrival_ns: int | None
    inflight_batches: int
    staged_batches: int
    pending_requests: int
    pending_rows: int
    pending_bytes: int
    executor_up: bool
    draining: bool
    models: dict[str, ModelSnapshot] = field(default_factory=dict)


def take(state: PodState) -> PodSnapshot:
    """The present snapshot; O(requests that wait)."""
    models = {digest: _of_model(state, digest, model) for digest, model in state.models.items()}
    oldest = [model.oldest_arrival_ns for model in models.values() if model.oldest_arrival_ns is not None]
    return PodSnapshot(
        queue_requests=sum(model.queue_requests for model in models.values()),
        queue_rows=sum(model.queue_rows for model in models.values()),
        queue_bytes=sum(model.queue_bytes for model in models.values()),
        oldest_arrival_ns=min(oldest, default=None),
        inflight_batches=min(1, len(state.flights)),
        staged_batches=max(0, len(state.flights) - 1),
        pending_requests=len(state.ledger),
        pending_rows=state.ledger.rows,
        pending_bytes=state.ledger.bytes,
        executor_up=state.up,
        draining=state.draining,
        models=models,
    )


def _of_model(state: PodState, digest: str, model: Model) -> ModelSnapshot:
    ours = [flight.plan.lane.model == digest for flight in state.flights.all]
    return ModelSnapshot(
        queue_requests=len(model.waiting),
        queue_rows=model.rows,
        queue_bytes=model.bytes,
        oldest_arrival_ns=min((entry.arrival for entry in model.waiting.values()), default=None),
        inflight_batches=sum(ours[:1]),
        staged_batches=sum(ours[1:]),
        lanes=len(model.lanes),
        profile_error_ratio={bucket: correction.ratio for bucket, correction in model.corrections.items()},
        safety_factor={bucket: correction.factor for bucket, correction in model.corrections.items()},
    )
