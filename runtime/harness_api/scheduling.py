"""``spec.scheduling`` and ``spec.limits``: what concerns all models of a service together."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from harness_api.base import ApiModel
from harness_api.fields import TIB


class SchedulingPolicy(StrEnum):
    """How batches are formed over the pods of a service."""

    PRICED_FRONTRUN = "PricedFrontrun"


class Goal(StrEnum):
    """What the scheduler favours below full load."""

    LATENCY = "Latency"
    ACCELERATORS = "Accelerators"


class Scheduling(ApiModel):
    """The scheduler over all pods."""

    policy: Annotated[SchedulingPolicy, Field(strict=False)] = SchedulingPolicy.PRICED_FRONTRUN
    """`PricedFrontrun`: deadline-ordered, deferring, priced by the work that waits."""
    goal: Annotated[Goal, Field(strict=False)] | None = None
    """`Latency` starts idle accelerators at once below load 0.6; `Accelerators` always defers, so that the accelerators in use follow the load. Absent: `Accelerators` where a group autoscales, else `Latency`."""


class Limits(ApiModel):
    """Bounds of the whole service, in each process that queues."""

    max_pending_requests: Annotated[int, Field(ge=1, le=1 << 20)] = 16384
    """Most requests that wait or run; one more is refused."""
    max_pending_bytes: Annotated[int, Field(ge=1, le=TIB)] = 1 << 30
    """Most bytes of inputs that wait or run."""
    max_hold_seconds: Annotated[int, Field(ge=1, le=3600)] = 120
    """Longest time that a request without deadline is held."""
