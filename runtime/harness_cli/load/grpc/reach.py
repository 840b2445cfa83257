"""Asks in milliseconds whether a gRPC server is there; a channel would try again for seconds and not say what it met."""

from __future__ import annotations

import contextlib
import socket

from harness_cli.errors import FAILED, CliError

CONNECT_S = 5.0
ANSWER_S = 1.0
"""How long a server may take to greet; one that is slower is left to the channel."""
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""RFC 9113 §3.4: the client's preface and an empty SETTINGS frame. The server answers with SETTINGS."""
_FRAME_HEAD = 9
_SETTINGS = 4


def reach(url: str) -> None:
    """Connect to ``host:port`` and greet. Raises CliError when nobody listens there, or one who does not speak HTTP/2."""
    host, _, port = url.rpartition(":")
    try:
        peer = socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S)
    except ConnectionRefusedError:
        raise CliError(f"{url}: connection refused: no server listens there", exit_code=FAILED) from None
    except TimeoutError:
        raise CliError(f"{url}: no connection within {CONNECT_S:g} s", exit_code=FAILED) from None
    except OSError as error:
        raise CliError(f"{url}: no connection: {error.strerror or error}", exit_code=FAILED) from None
    with peer:
        head = _greet(peer)
    if head and (len(head) < _FRAME_HEAD or head[3] != _SETTINGS):
        raise CliError(
            f"{url}: answers, but not in gRPC; the server's gRPC port is wanted: is this the metrics port?",
            exit_code=FAILED,
        )


def _greet(peer: socket.socket) -> bytes:
    """The first bytes of the answer, at most a frame's head; fewer when the server is slow or closes."""
    head = b""
    peer.settimeout(ANSWER_S)
    with contextlib.suppress(OSError):
        peer.sendall(_GREETING)
        while len(head) < _FRAME_HEAD and (more := peer.recv(_FRAME_HEAD - len(head))):
            head += more
    return head
