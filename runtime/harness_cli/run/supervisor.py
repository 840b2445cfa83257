"""Keeps replicas running: starts them, restarts what crashes with growing pauses, drains all at the end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness_cli.errors import FAILED, CliError
from harness_cli.run.replica import Replica, ReplicaProcess, ReplicaState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


REFUSAL = "harness-runtime: "
"""How ``harness_runtime.main`` begins a user's mistake on stderr."""


@dataclass(frozen=True, slots=True)
class SupervisorSettings:
    """Times in seconds.

    Pauses before restarts double from ``backoff_s`` to ``backoff_s_max`` and start over after a run of ``stable_s``. ``drain_s``: from the
    request to drain to the kill.
    """

    backoff_s: float = 0.5
    backoff_s_max: float = 30.0
    stable_s: float = 60.0
    drain_s: float = 70.0


class Supervisor:
    """Runs ``replicas`` until ``stop``. ``on_event(replica, event)`` hears ``started``, every announcement, ``crashed``, ``restarting``."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        on_event: Callable[[Replica, str], None],
        on_log: Callable[[Replica, str], None],
        settings: SupervisorSettings | None = None,
    ) -> None:
        self._replicas = replicas
        self._on_event = on_event
        self._on_log = on_log
        self._settings = settings or SupervisorSettings()
        self._processes: dict[str, ReplicaProcess] = {}
        self._stopping = asyncio.Event()
        self._ready = asyncio.Event()

    async def wait_ready(self) -> None:
        """Wait until every replica has been ready once."""
        await self._ready.wait()

    def stop(self) -> None:
        """Drain every replica; ``run`` ends when all are gone."""
        self._stopping.set()

    async def run(self) -> None:
        """Run until ``stop``. Raises CliError with a replica's own words when it ends before it was ever ready."""
        keepers = [asyncio.create_task(self._keep(replica)) for replica in self._replicas]
        ender = asyncio.create_task(self._end_all())
        try:
            await asyncio.gather(*keepers)
        finally:
            self._stopping.set()
            await asyncio.gather(*keepers, return_exceptions=True)
            ender.cancel()

    async def _keep(self, replica: Replica) -> None:
        settings = self._settings
        pause_s = settings.backoff_s
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            started_s = loop.time()
            process = self._processes[replica.name] = ReplicaProcess(replica, self._heard, self._on_log)
            code = await process.run()
            if self._stopping.is_set():
                break
            replica.state = ReplicaState.CRASHED
            self._on_event(replica, "crashed")
            if not replica.was_ready:
                raise CliError(_last_words(replica, code), exit_code=FAILED)
            if loop.time() - started_s >= settings.stable_s:
                pause_s = settings.backoff_s
            await self._pause(pause_s)
            pause_s = min(2 * pause_s, settings.backoff_s_max)
            if not self._stopping.is_set():
                replica.restarts += 1
                self._on_event(replica, "restarting")
        replica.state = ReplicaState.STOPPED

    def _heard(self, replica: Replica, event: str) -> None:
        self._on_event(replica, event)
        if event == "model_failed" and not replica.was_ready:
            # It would serve the other models and never be ready: whoever starts it by hand wants the reason instead.
            self._processes[replica.name].terminate()
        if all(other.was_ready for other in self._replicas):
            self._ready.set()

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    async def _end_all(self) -> None:
        await self._stopping.wait()
        for process in self._processes.values():
            process.terminate()
        await asyncio.sleep(self._settings.drain_s)
        for process in self._processes.values():
            process.kill()


def _own_words(log: list[str]) -> list[str]:
    """From the sentence with which the runtime refuses to start, where there is one; else all that is kept."""
    first = next((k for k, line in enumerate(log) if line.startswith(REFUSAL)), 0)
    return [line.removeprefix(REFUSAL) for line in log[first:]]


def _last_words(replica: Replica, code: int) -> str:
    if replica.failed_models:
        reasons = "\n".join(f"  {reason}" for reason in replica.failed_models)
        return f"replica {replica.name} could not load every model (--verbose shows its whole log):\n{reasons}"
    ended = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    words = "\n".join(f"  {line}" for line in _own_words(list(replica.log))) or "  (it said nothing)"
    return f"replica {replica.name} {ended} before it was ready:\n{words}"
