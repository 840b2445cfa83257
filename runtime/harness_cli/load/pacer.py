"""A timer finer than an event loop's.

Loops round timers to milliseconds, which at 1,000 requests/s turns a Poisson process into small bursts and adds up to 1 ms
to each latency. A Linux timerfd wakes the loop within tens of microseconds and costs nothing in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import sys
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

_TIMER_ABSTIME = 1


class Pacer(Protocol):
    """Calls back once at or after each armed time, on the loop's thread."""

    def arm(self, at_ns: int) -> None:
        """Call back at ``at_ns`` on ``time.monotonic_ns()``; replaces an earlier time."""

    def close(self) -> None:
        """Never call back again."""


def make_pacer(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> Pacer:
    """The finest pacer that this platform has."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            return TimerFdPacer(loop, callback)
    return LoopPacer(loop, callback)


class LoopPacer:
    """The loop's own timer, for platforms without timerfd."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None

    def arm(self, at_ns: int) -> None:
        """See :class:`Pacer`."""
        self.close()
        self._handle = self._loop.call_later(max(0, at_ns - time.monotonic_ns()) / 1e9, self._callback)

    def close(self) -> None:
        """See :class:`Pacer`."""
        if self._handle is not None:
            self._handle.cancel()


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class TimerFdPacer:
    """timerfd_create(2) on CLOCK_MONOTONIC with absolute times, watched by the loop. Raises OSError where it is refused."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._loop = loop
        self._callback = callback
        self._spec = _Itimerspec()
        loop.add_reader(self._fd, self._expired)

    def arm(self, at_ns: int) -> None:
        """See :class:`Pacer`."""
        # An all-zero value would disarm the timer; any time of the past fires at once.
        at_ns = max(1, at_ns)
        self._spec.value.seconds, self._spec.value.nanoseconds = divmod(at_ns, 1_000_000_000)
        if self._libc.timerfd_settime(self._fd, _TIMER_ABSTIME, ctypes.byref(self._spec), None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def close(self) -> None:
        """See :class:`Pacer`."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _expired(self) -> None:
        # Re-armed between expiry and this call: nothing to read, and the new time will call again.
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 8)
            self._callback()
