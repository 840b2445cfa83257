"""What a machine shows of itself: plain values, read live by metrics (B048)."""

from __future__ import annotations

from dataclasses import dataclass, field


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
