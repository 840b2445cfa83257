"""One child process: its start, its control channel, its end. Knows messages, not their meaning."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from harness_runtime.executor import wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness_runtime.executor.memory import SlotMemory

log = logging.getLogger(__name__)

_LAST_WORDS_S = 0.1
"""After the channel closed: how long to wait for the process's exit status before saying that it is gone."""

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class ChildLink:
    """A child process and the channel to it, on the event loop: no thread, no polling.

    Its end shows as the channel's end of file or on the process's file descriptor (pidfd), whichever comes first: processes that a
    model forked may keep the channel open. ``on_exit`` is called once, unless ``close`` came first.
    """

    def __init__(
        self,
        memory: SlotMemory,
        config: dict[str, Any],
        *,
        on_message: Callable[[list[Any]], None],
        on_exit: Callable[[str], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_message = on_message
        self._on_exit = on_exit
        self._reason: str | None = None
        self._told = False
        self._last_words: asyncio.TimerHandle | None = None
        self._exited = self._loop.create_future()
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = _spawn(memory.fd, theirs.fileno(), config.get("threads"))
        except BaseException:
            self._channel.close()
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except OSError:
            # Nobody could wait for this child: it must not outlive the attempt.
            self._process.kill()
            self._process.wait()
            self._channel.close()
            raise
        self._channel.setblocking(False)
        self._loop.add_reader(self._channel.fileno(), self._readable)
        self._loop.add_reader(self._pidfd, self._ended)
        self.send(["config", config])

    @property
    def alive(self) -> bool:
        """False once it was killed, or ``on_exit`` was told."""
        return not self._told and self._reason is None

    def send(self, message: list[Any]) -> None:
        """Send without waiting. A child that is gone, or does not read, is killed: its end then shows as usual.

        Raises:
            ValueError: the message is too long.
        """
        data = wire.encode(message)
        try:
            self._channel.send(data)
        except OSError as error:
            self.kill(f"the executor process does not take messages ({error})")

    def kill(self, reason: str) -> None:
        """Kill the process and what it started; ``reason`` is what ``on_exit`` will be told."""
        if self._reason is None:
            self._reason = reason
        if self._process.returncode is None:
            # The child is the leader of its own group (start_new_session), and not reaped yet: the number is still its own.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    async def wait(self) -> None:
        """Return when the process has ended and is reaped."""
        await asyncio.shield(self._exited)

    def close(self) -> None:
        """Let go of channel and process descriptor. The process must have ended."""
        self._told = True
        if self._last_words is not None:
            self._last_words.cancel()
        self._close_channel()
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _close_channel(self) -> None:
        if self._channel.fileno() >= 0:
            self._loop.remove_reader(self._channel.fileno())
            self._channel.close()

    def _readable(self) -> None:
        while self._channel.fileno() >= 0:
            try:
                data = self._channel.recv(wire.MESSAGE_BYTES_MAX)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._end_of_channel()
                return
            try:
                message = wire.decode(data)
            except ValueError as error:
                self.kill(f"the executor process sent what is not a message ({error})")
                return
            self._on_message(message)

    def _end_of_channel(self) -> None:
        self._close_channel()
        self._last_words = self._loop.call_later(_LAST_WORDS_S, self._tell)
        if self._process.returncode is None and self._reason is None:
            # Usually it is already ending and this changes nothing; a process without a channel is of no use.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def _ended(self) -> None:
        # Answers that were sent before the end still count.
        self._readable()
        # What a model forked shares the group; the leader is not reaped yet, so the number cannot be anybody else's.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = -1
        if not self._exited.done():
            self._exited.set_result(None)
        self._close_channel()
        self._tell()

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            self._on_exit(self._reason or f"the executor process {_how(self._process.returncode)}")


def _how(code: int | None) -> str:
    if code is None:
        return "closed its channel"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
    return f"ended with status {code}"


def _spawn(memory: int, control: int, threads: int | None) -> subprocess.Popen[bytes]:
    # Read by numpy's and torch's libraries when they are loaded; torch is told again by the runner.
    limits = {} if threads is None else dict.fromkeys(_THREAD_VARIABLES, str(threads))
    # Popen forks and executes in C without running Python or fork handlers in between (vfork where it can): safe beside threads of
    # gRPC. -P: a file in the working directory must not stand in for a module. Its own session: Ctrl-C is for the server, which drains.
    arguments = ["--control", str(control), "--memory", str(memory), "--parent", str(os.getpid())]
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-P", "-m", "harness_runtime.executor.child", *arguments],
        stdin=subprocess.DEVNULL,
        # Models print; standard output belongs to the server's own events.
        stdout=2,
        env=os.environ | limits,
        pass_fds=(control, memory),
        start_new_session=True,
    )
