"""What the driver keeps of requests that wait and of batches that run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from harness_core.decision import BatchPlan

    from harness_runtime.errors import RequestEnded
    from harness_runtime.model import ModelSpec
    from harness_runtime.ports import Work, WorkResult
    from harness_runtime.tensors import Tensor


@dataclass(slots=True)
class Waiting:
    """A request from its arrival to its end. The one place that holds its payload; dropped with it.

    ``outputs`` is set when its batch came back and before the machine has said how it ended, ``done_ns`` then says when, and
    ``first`` that it is the first of its batch, by which the way to the answer is measured.
    """

    work: Work
    answer: asyncio.Future[WorkResult | RequestEnded]
    started: bool = False
    outputs: list[Tensor] | None = None
    done_ns: int = 0
    first: bool = False


@dataclass(slots=True)
class Flight:
    """A batch with the executor. ``members``: rows by request id, in the order of the merge.

    ``lone``: no other batch was with the executor when it was launched, so that its way there can be measured.
    """

    plan: BatchPlan
    spec: ModelSpec
    launched_ns: int
    lone: bool
    members: dict[int, int] = field(default_factory=dict)
    started: bool = False
