"""The seam that an edge fills: another implementation (native, REST) takes the same place with the same tests."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import Protocol


class BindError(Exception):
    """The address could not be bound; the message names it."""


def bind_error(host: str, port: int, error: OSError) -> BindError:
    """One line: the address and the system's own reason (event loops and libraries put words of their own around it)."""
    known = error.errno in errno.errorcode
    reason = os.strerror(error.errno) if known and error.errno is not None else error.strerror or str(error)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return BindError(f"cannot listen on {address}: {reason[:1].lower()}{reason[1:]}")


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    """Where an edge listens and what it takes.

    ``port`` 0: a free one. ``max_message_bytes`` bounds each message in both directions; ``hop`` is this server's name in
    the refusal of a larger one. ``max_concurrent_streams`` bounds the calls in flight on one connection: above the pod's own
    bound on pending requests, so that the batcher refuses with a reason instead of HTTP/2 holding calls back.
    """

    bind: str = "127.0.0.1"
    port: int = 8001
    max_message_bytes: int = 64 << 20
    hop: str = "runtime"
    max_concurrent_streams: int = 32768


class Edge(Protocol):
    """One listening server."""

    async def start(self) -> int:
        """Listen; the port. Raises BindError."""

    def set_serving(self, service: str, serving: bool) -> None:
        """State of a name in the health service; names of models and the server follow the data plane by themselves."""

    async def drain(self) -> None:
        """Report not serving, whatever comes after; calls are still taken and answered."""

    async def stop(self, grace_s: float) -> None:
        """Take no new calls, let running ones end for at most ``grace_s`` seconds, then cancel them."""
