"""Kills a run that takes far too long (design.md §3: ``max(10 x p99, floor)``)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness_runtime.executor.settings import ExecutorSettings


class Watchdog:
    """Watches the one running batch. ``on_late(batch_id, seconds)`` is called when its time is over.

    Starting and ending a run sets a field; a timer exists only while something runs and is moved only when it fires.
    """

    def __init__(self, settings: ExecutorSettings, on_late: Callable[[int, float], None]) -> None:
        self._settings = settings
        self._on_late = on_late
        self._batch: int | None = None
        self._allowed = 0.0
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def watching(self) -> bool:
        """True while a run is being watched."""
        return self._batch is not None

    def allowed_s(self, expected_ns: int) -> float:
        """Seconds that a run may take; ``expected_ns`` 0: nothing is known of it."""
        settings = self._settings
        if expected_ns <= 0:
            return max(settings.load_timeout_ns, settings.watchdog_floor_ns) / 1e9
        return max(settings.watchdog_factor * expected_ns, settings.watchdog_floor_ns) / 1e9

    def started(self, batch_id: int, expected_ns: int) -> None:
        """A run began."""
        loop = asyncio.get_running_loop()
        self._batch = batch_id
        self._allowed = self.allowed_s(expected_ns)
        self._deadline = loop.time() + self._allowed
        if self._timer is not None and self._timer.when() > self._deadline:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = loop.call_at(self._deadline, self._fired)

    def ended(self) -> None:
        """The run is over."""
        self._batch = None

    def stop(self) -> None:
        """Nothing runs any more, and no timer is left."""
        self._batch = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fired(self) -> None:
        self._timer = None
        if self._batch is None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() < self._deadline:
            self._timer = loop.call_at(self._deadline, self._fired)
            return
        batch, self._batch = self._batch, None
        self._on_late(batch, self._allowed)
