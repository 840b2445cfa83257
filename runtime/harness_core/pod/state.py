"""What the parts of the machine share: models, open requests, batches handed over, and the state of the executor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness_core.pod.choice import Chooser
from harness_core.pod.flight import Flights
from harness_core.pod.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness_core.pod.lane import Lane, Model
    from harness_core.pod.settings import PodLimits


@dataclass(slots=True)
class PodState:
    """Written by the modules of ``harness_core.pod`` only, on behalf of one machine."""

    limits: PodLimits
    delay_ns: int
    models: dict[str, Model] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    flights: Flights = field(default_factory=Flights)
    chooser: Chooser = field(default_factory=Chooser)
    up: bool = False
    draining: bool = False
    retry_after_ns: int | None = None
    """How long the executor is expected to stay away."""
    sequence: int = 0
    batches: int = 0

    def lanes(self) -> Iterator[Lane]:
        """All lanes with work, in a fixed order."""
        return (lane for model in self.models.values() for lane in model.lanes.values())

    def answer_base_ns(self, now: int) -> int:
        """A batch launched next, running for x, is answered at this plus x."""
        return self.flights.free_ns(now) + self.delay_ns
