"""What a policy sees of a request: ids, sizes, times and keys; never a tensor (design.md §2.2)."""

from __future__ import annotations

from dataclasses import dataclass

LOWEST_PRIORITY = 9
"""Rank of a request without an explicit level: after the explicit levels 1 (highest) to 8 (protocol.md §2)."""


@dataclass(frozen=True, slots=True, order=True)
class LaneKey:
    """Unit of queue, rate, plan and profile: only requests of one lane share a batch (design.md §3).

    ``model`` is the model's digest. ``bucket`` names everything else that keeps requests apart: padded shapes, and, for
    inputs with a variable dimension and no buckets, the shapes themselves.
    """

    model: str
    bucket: str = ""


@dataclass(frozen=True, slots=True)
class RequestDescriptor:
    """One request as the core sees it.

    Times are integer nanoseconds on the driver's monotonic clock. ``target_ns`` drives scheduling and the on-time
    figures; ``limit_ns`` is when the request is given up; ``arrival_ns <= target_ns <= limit_ns``. ``reply_ns`` is what an
    answer needs to reach its caller: plans end that much earlier, and a refusal leaves in time to arrive before the limit.

    Raises:
        ValueError: rows or weight not positive, negative bytes, or times out of order.
    """

    id: int
    lane: LaneKey
    rows: int
    bytes: int
    arrival_ns: int
    target_ns: int
    limit_ns: int
    weight: float = 1.0
    priority: int = LOWEST_PRIORITY
    tenant: str = ""
    reply_ns: int = 0

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ValueError(f"rows must be at least 1, got {self.rows}")
        if self.bytes < 0:
            raise ValueError(f"bytes must not be negative, got {self.bytes}")
        if self.reply_ns < 0:
            raise ValueError(f"reply_ns must not be negative, got {self.reply_ns}")
        if not self.weight > 0:
            raise ValueError(f"weight must be positive, got {self.weight}")
        if not self.arrival_ns <= self.target_ns <= self.limit_ns:
            raise ValueError(
                f"times out of order: arrival {self.arrival_ns}, target {self.target_ns}, limit {self.limit_ns}"
            )
