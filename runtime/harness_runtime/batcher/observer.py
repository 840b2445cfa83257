"""What the batcher reports of its work: the seam that the metrics fill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness_core.decision import BatchPlan
    from harness_core.outcome import Outcome

    from harness_runtime.model import ModelSpec


class Observer(Protocol):
    """Told on the event loop's thread. A fault of its own is logged and hurts nobody."""

    def batch_started(self, now_ns: int, spec: ModelSpec, plan: BatchPlan, formation_ns: Sequence[int]) -> None:
        """A batch began to run. ``formation_ns``: arrival to start, of the members that start for the first time."""

    def batch_ended(self, now_ns: int, spec: ModelSpec, plan: BatchPlan, execution_ns: int, *, failed: bool) -> None:
        """A batch ended. ``execution_ns`` is the executor's measure, 0 when it never ran."""

    def request_ended(self, spec: ModelSpec, outcome: Outcome, weight: float, latency_ns: int | None) -> None:
        """A request ended. ``latency_ns``: arrival to answer, None without an answer."""

    def executor_lost(self, now_ns: int) -> None:
        """The executor process is gone, and every batch with it."""


class NoObserver:
    """Looks away."""

    def batch_started(self, now_ns: int, spec: ModelSpec, plan: BatchPlan, formation_ns: Sequence[int]) -> None:
        """Nothing."""

    def batch_ended(self, now_ns: int, spec: ModelSpec, plan: BatchPlan, execution_ns: int, *, failed: bool) -> None:
        """Nothing."""

    def request_ended(self, spec: ModelSpec, outcome: Outcome, weight: float, latency_ns: int | None) -> None:
        """Nothing."""

    def executor_lost(self, now_ns: int) -> None:
        """Nothing."""
