"""What the driver keeps of a batch that is with the executor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness_core.decision import BatchPlan

    from harness_runtime.model import ModelSpec


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
