"""One runtime process: its command, what it announces, what it says in its log."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import signal
import sys
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LOG_LINES = 30
"""Last lines of a process's log that are kept to explain its death."""
LINE_BYTES_MAX = 1 << 20
_PR_SET_PDEATHSIG = 1


class ReplicaState(StrEnum):
    """Life of a replica, as its process announces it."""

    STARTING = "starting"
    LISTENING = "listening"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"
    CRASHED = "crashed"


@dataclass(slots=True)
class Replica:
    """A replica over all its processes. Ports 0: free ones, kept over restarts once known."""

    name: str
    group: str
    command: Callable[[int, int], Sequence[str]]
    """(gRPC port, metrics port) → argv."""
    grpc_port: int = 0
    metrics_port: int = 0
    state: ReplicaState = ReplicaState.STARTING
    grpc: str = ""
    metrics: str = ""
    pid: int = 0
    restarts: int = 0
    was_ready: bool = False
    exit_code: int | None = None
    failed_models: list[str] = field(default_factory=list)
    """What this run of the process said of models that it could not load."""
    log: deque[str] = field(default_factory=lambda: deque(maxlen=LOG_LINES))

    def describe(self) -> dict[str, Any]:
        """JSON-ready state."""
        return {
            "replica": self.name,
            "group": self.group,
            "state": self.state.value,
            "grpc": self.grpc,
            "metrics": self.metrics,
            "pid": self.pid,
            "restarts": self.restarts,
        }


class ReplicaProcess:
    """One run of a replica's process. ``on_event`` hears every announcement, ``on_log`` every line of its log."""

    def __init__(
        self, replica: Replica, on_event: Callable[[Replica, str], None], on_log: Callable[[Replica, str], None]
    ) -> None:
        self._replica = replica
        self._on_event = on_event
        self._on_log = on_log
        self._process: asyncio.subprocess.Process | None = None
        self._unwanted = False

    async def run(self) -> int:
        """Start, follow until the end, give the exit code. Raises OSError when it cannot be started."""
        replica = self._replica
        replica.state = ReplicaState.STARTING
        replica.failed_models.clear()
        argv = replica.command(replica.grpc_port, replica.metrics_port)
        self._process = process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
            # A Ctrl-C in the terminal must reach us only: we drain the replicas in our own time.
            start_new_session=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )
        replica.pid = process.pid
        if self._unwanted:
            self.terminate()
        self._on_event(replica, "started")
        try:
            await asyncio.gather(
                self._follow(process.stdout, self._announced), self._follow(process.stderr, self._logged)
            )
            replica.exit_code = await process.wait()
        except asyncio.CancelledError:
            self.kill()
            await process.wait()
            raise
        return replica.exit_code

    def terminate(self) -> None:
        """Ask for a drain; a process that is still being started is asked as soon as it exists."""
        self._unwanted = True
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    @staticmethod
    async def _follow(stream: asyncio.StreamReader | None, hear: Callable[[str], None]) -> None:
        while stream is not None:
            try:
                line = await stream.readline()
            except ValueError:
                # Longer than LINE_BYTES_MAX: the reader dropped it.
                continue
            if not line:
                return
            hear(line.decode(errors="replace").rstrip())

    def _announced(self, line: str) -> None:
        try:
            message = json.loads(line)
            event = str(message["event"])
        except (ValueError, KeyError, TypeError):
            self._logged(line)
            return
        replica = self._replica
        if event == "listening":
            replica.grpc, replica.metrics = str(message.get("grpc", "")), str(message.get("metrics", ""))
            replica.grpc_port, replica.metrics_port = _port(replica.grpc), _port(replica.metrics)
        elif event == "model_failed":
            replica.failed_models.append(f"model {message.get('model')!r}: {message.get('reason')}")
        if event in set(ReplicaState):
            replica.state = ReplicaState(event)
            replica.was_ready = replica.was_ready or replica.state is ReplicaState.READY
        self._on_event(replica, event)

    def _logged(self, line: str) -> None:
        self._replica.log.append(line)
        self._on_log(self._replica, line)


def _port(address: str) -> int:
    port = address.rpartition(":")[2]
    return int(port) if port.isdecimal() else 0


def _die_with_parent() -> None:
    """In the child, before exec: the kernel sends SIGTERM when the parent dies, so that kill -9 of it leaves no orphans."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
