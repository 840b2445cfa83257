"""An executor on the virtual loop: one batch at a time, in the order of submission, exact times."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from harness_runtime.ports import Job, JobOutput, JobResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness_runtime.ports import ExecutorListener

MS = 1_000_000


def doubled(job: Job) -> list[JobOutput]:
    """Y = 2 * X, on the executed shape; padding rows are cut off as the port says."""
    [given] = job.inputs
    batch = np.full(given.shape, given.pad_value, dtype=given.parts[0].dtype)
    start = 0
    for part in given.parts:
        corner = tuple(slice(size) for size in part.shape[1:])
        batch[(slice(start, start + len(part)), *corner)] = part
        start += len(part)
    return [JobOutput("Y", given.datatype, (2 * batch)[: job.rows])]


@dataclass
class SimExecutor:
    """Twin of the process executor. ``latency_ns``, ``outputs`` and ``error`` say what a job does; ``jobs`` records all of them.

    ``refuse`` makes ``submit`` raise; a latency of None never ends.
    """

    latency_ns: Callable[[Job], int | None]
    outputs: Callable[[Job], list[JobOutput]] = doubled
    error: Callable[[Job], str | None] = lambda _job: None
    refuse: Callable[[Job], Exception | None] = lambda _job: None
    slots: int = 2
    jobs: list[Job] = field(default_factory=list)
    started: list[tuple[float, int]] = field(default_factory=list)
    withdrawn: list[Job] = field(default_factory=list)
    held: int = 0
    held_max: int = 0
    up: bool = True
    listener: ExecutorListener | None = None
    _queue: deque[Job] = field(default_factory=deque)
    _running: Job | None = None
    _timer: asyncio.TimerHandle | None = None

    async def start(self, listener: ExecutorListener) -> None:
        self.listener = listener

    async def load(self, spec) -> None:
        """Every model is there."""

    async def stop(self) -> None:
        """Nothing runs any more."""
        self._forget()

    def restart_expected_ns(self) -> int:
        return 3000 * MS

    def submit(self, job: Job) -> None:
        refusal = self.refuse(job)
        if refusal is not None:
            raise refusal
        if not self.up:
            raise RuntimeError("down")
        if self.held >= self.slots:
            raise RuntimeError("all slots are taken")
        self.held += 1
        self.held_max = max(self.held_max, self.held)
        self.jobs.append(job)
        self._queue.append(job)
        self._next()

    def withdraw(self, batch_id: int) -> None:
        for job in list(self._queue):
            if job.batch_id == batch_id:
                self._queue.remove(job)
                self.withdrawn.append(job)
                result = JobResult(batch_id, 0, withdrawn=True, release=self._release)
                asyncio.get_running_loop().call_soon(self.listener.on_result, result)

    def lose(self, reason: str = "killed") -> None:
        """The process dies."""
        self._forget()
        self.up = False
        self.listener.on_lost(reason)

    def restore(self) -> None:
        """It is back."""
        self.up = True
        self.listener.on_restored()

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._queue.clear()
        self._running = None
        self.held = 0

    def _next(self) -> None:
        if self._running is None and self._queue:
            self._running = self._queue.popleft()
            asyncio.get_running_loop().call_soon(self._begin, self._running)

    def _begin(self, job: Job) -> None:
        if self._running is not job:
            return
        loop = asyncio.get_running_loop()
        self.started.append((loop.time(), job.rows))
        self.listener.on_started(job.batch_id)
        latency_ns = self.latency_ns(job)
        if latency_ns is not None:
            self._timer = loop.call_later(latency_ns / 1e9, self._finish, job, latency_ns)

    def _finish(self, job: Job, latency_ns: int) -> None:
        self._running = None
        self._next()
        error = self.error(job)
        result = JobResult(job.batch_id, latency_ns, [] if error else self.outputs(job), error, release=self._release)
        self.listener.on_result(result)

    def _release(self) -> None:
        self.held -= 1
