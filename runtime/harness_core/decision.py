"""What a state machine of the core tells its driver to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness_core.descriptor import LaneKey
    from harness_core.outcome import BatchReason, Outcome


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Start this batch now (or stage it behind the running one).

    ``rows`` is the sum of the members' rows, ``execution_size`` the size the model runs at (``>= rows``, the rest is
    padding), ``predicted_ns`` the latency expected at that size, ``latest_start_ns`` the last start at which every
    member can still meet its deadline.
    """

    batch_id: int
    lane: LaneKey
    members: tuple[int, ...]
    rows: int
    execution_size: int
    reason: BatchReason
    predicted_ns: int
    latest_start_ns: int


@dataclass(frozen=True, slots=True)
class Ending:
    """A request's one and only end.

    ``reason`` is a short stable code (``queue_full``, ``limit_passed``, …); ``needed_ns`` and ``had_ns`` are the
    numbers behind a refusal where they apply; ``retry_after_ns`` is a hint where a retry makes sense; ``message`` carries the model's own error for
    ``failed``.
    """

    request_id: int
    outcome: Outcome
    reason: str
    needed_ns: int | None = None
    had_ns: int | None = None
    retry_after_ns: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """All that follows from the events so far. ``wake_at_ns`` is when to call ``decide`` again, if nothing happens first."""

    launches: tuple[BatchPlan, ...] = ()
    endings: tuple[Ending, ...] = ()
    wake_at_ns: int | None = None


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What a driver learnt of a batch.

    ``execution_ns`` is the executor's own measure of the run. ``failure`` set: the batch failed as a whole while the executor
    survived (the machine bisects it). ``member_failures``: members whose own part could not be used, by request id.
    """

    execution_ns: int
    failure: str | None = None
    out_of_memory: bool = False
    member_failures: Mapping[int, str] = field(default_factory=dict)
