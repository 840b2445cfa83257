"""The closed set of ways in which a request or a batch leaves the system.

Every request ends exactly once, with one :class:`Outcome` (design.md §2.4). The values are metric labels and wire
strings: they are API.
"""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """How a request ended. Maps to one status code (``harness_runtime.errors``; protocol.md §3)."""

    COMPLETED = "completed"
    """Answered by its target."""
    LATE = "late"
    """Answered, after its target and before its limit."""
    EXPIRED = "expired"
    """Queued, and then could no longer be answered before its limit."""
    REJECTED_INFEASIBLE = "rejected_infeasible"
    """Never queued: it could not have been answered before its limit."""
    REJECTED_CAPACITY = "rejected_capacity"
    """Never queued: a bound on requests, rows or bytes was reached."""
    SHED = "shed"
    """Queued, and then gave way to a fuller batch of requests that can still be on time."""
    CANCELLED = "cancelled"
    """Withdrawn by its caller."""
    UNAVAILABLE = "unavailable"
    """Nothing could run it: executor lost, model not ready, draining."""
    INVALID = "invalid"
    """Contradicts the model's signature or the protocol."""
    FAILED = "failed"
    """The model raised, or answered with the wrong shape."""


ANSWERED = frozenset({Outcome.COMPLETED, Outcome.LATE})
"""Outcomes in which the caller receives the model's output."""


class BatchReason(StrEnum):
    """Why a batch left its queue when it did (label ``reason`` of ``harness_batches_total``)."""

    FULL = "full"
    """It reached the largest size that its limits allow."""
    WINDOW = "window"
    """The queue delay it was allowed to wait had passed."""
    DEADLINE = "deadline"
    """One more row would have made a member miss its deadline."""
    IDLE = "idle"
    """The accelerator was free and waiting had no value."""
    DRAIN = "drain"
    """The pod is shutting down and waits for nobody."""
    ISOLATE = "isolate"
    """Part of a failed batch, run apart to find the member at fault."""
