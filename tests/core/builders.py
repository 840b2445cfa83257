"""Builders and a driver in virtual time for the tests of the core."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness_core.decision import BatchPlan, BatchResult, Decision, Ending
from harness_core.descriptor import LOWEST_PRIORITY, LaneKey, RequestDescriptor
from harness_core.journal import Journal
from harness_core.pod.machine import PodMachine
from harness_core.pod.settings import ModelLimits, PodLimits, PolicyName
from harness_core.profile import LatencyProfile

if TYPE_CHECKING:
    from harness_core.outcome import Outcome

MS = 1_000_000


def make_limits(**changes) -> ModelLimits:
    """A model "m" with l(b) = 5 + b ms and batches of 8 rows."""
    values = {
        "model": "m", "default_profile": LatencyProfile.linear(5 * MS, MS, 32), "policy": PolicyName.DEADLINE,
        "max_batch_rows": 8, "objective_ns": 100 * MS,
    }  # fmt: skip
    return ModelLimits(**(values | changes))


@dataclass
class Pod:
    """A machine with its executor up, driven by hand; remembers what was launched and how requests ended, and when."""

    model: ModelLimits = field(default_factory=make_limits)
    limits: PodLimits = field(default_factory=lambda: PodLimits(staging=False))
    journal: Journal = field(default_factory=Journal)
    up: bool = True

    def __post_init__(self) -> None:
        self.machine = PodMachine(self.limits, self.journal)
        self.machine.add_model(0, self.model)
        if self.up:
            self.machine.on_executor_up(0)
        self.ids = itertools.count(1)
        self.launched: list[BatchPlan] = []
        self.endings: dict[int, Ending] = {}
        self.ended_ms: dict[int, float] = {}
        self.wake_ns: int | None = None

    def arrive(
        self, at_ms: float, rows: int = 1, within_ms: float = 1000, limit_ms: float | None = None, **changes
    ) -> int:
        """One request, without a decision: target ``within_ms`` after arrival, limit the same unless given. Returns its id."""
        now = round(at_ms * MS)
        values = {
            "id": next(self.ids), "lane": LaneKey(self.model.model), "rows": rows, "bytes": 10 * rows, "arrival_ns": now,
            "target_ns": now + round(within_ms * MS),
            "limit_ns": now + round((within_ms if limit_ms is None else limit_ms) * MS),
            "priority": LOWEST_PRIORITY,
        } | changes  # fmt: skip
        self.machine.on_arrival(now, RequestDescriptor(**values))
        return values["id"]

    def decide(self, at_ms: float) -> Decision:
        """One decision; a second one at once must be empty."""
        now = round(at_ms * MS)
        decision = self.machine.decide(now)
        again = self.machine.decide(now)
        assert again == Decision((), (), decision.wake_at_ns), "decide is idempotent"
        self.launched += decision.launches
        for ending in decision.endings:
            assert ending.request_id not in self.endings, "one end"
            self.endings[ending.request_id] = ending
            self.ended_ms[ending.request_id] = at_ms
        self.wake_ns = decision.wake_at_ns
        return decision

    def done(self, at_ms: float, batch: int = -1, **result) -> Decision:
        """The batch (by index of launching) ends at ``at_ms`` as its profile says, or with this result; then a decision."""
        plan = self.launched[batch]
        values = {"execution_ns": 0} | result
        self.machine.on_done(round(at_ms * MS), plan.batch_id, BatchResult(**values))
        return self.decide(at_ms)

    def outcome(self, request_id: int) -> Outcome | None:
        """How a request ended; None while it is open."""
        ending = self.endings.get(request_id)
        return None if ending is None else ending.outcome

    @property
    def wake_ms(self) -> float | None:
        """The last decision's wake-up time."""
        return None if self.wake_ns is None else self.wake_ns / MS

    @property
    def rows(self) -> list[int]:
        """Rows of each launched batch."""
        return [plan.rows for plan in self.launched]

    @property
    def members(self) -> list[tuple[int, ...]]:
        """Members of each launched batch."""
        return [plan.members for plan in self.launched]
