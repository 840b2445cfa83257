"""From :class:`RequestEnded` to a gRPC status with trailers (protocol.md §3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from harness_proto.grpc import status_pb2

if TYPE_CHECKING:
    from harness_runtime.errors import RequestEnded

RETRY_INFO_URL = "type.googleapis.com/google.rpc.RetryInfo"
RETRY_MS = 1000
"""Hint for an end that is worth a retry and brings no number of its own."""
DETAILS_CHARACTERS_MAX = 1024
"""A status travels in HTTP/2 headers, which clients bound at 8 KiB or more: a longer message would turn into another error."""
_NS_PER_MS = 1_000_000


def details(message: str) -> str:
    """A message that fits into headers: ASCII, bounded."""
    plain = message.encode("ascii", "backslashreplace").decode("ascii")
    return plain if len(plain) <= DETAILS_CHARACTERS_MAX else plain[: DETAILS_CHARACTERS_MAX - 3] + "..."


def status_of(end: RequestEnded) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str | bytes], ...]]:
    """Code, details and trailing metadata.

    Trailers: ``harness-outcome``; ``harness-reason``, the reason's code and, where there are any, the numbers behind it
    (``cannot_finish; needed_ms=23.000; had_ms=11.000``); ``grpc-status-details-bin`` with a ``google.rpc.RetryInfo``, where a
    retry makes sense.
    """
    status = end.status
    code = grpc.StatusCode[status.grpc]
    message = details(end.message)
    trailers: list[tuple[str, str | bytes]] = [
        ("harness-outcome", end.outcome.value),
        ("harness-reason", _reason(end)),
    ]
    if status.retry:
        retry_ms = RETRY_MS if end.retry_after_ms is None else end.retry_after_ms
        trailers.append(("grpc-status-details-bin", _retry_status(code, message, retry_ms)))
    return code, message, tuple(trailers)


def _reason(end: RequestEnded) -> str:
    parts = [end.reason]
    if end.needed_ns is not None:
        parts.append(f"needed_ms={end.needed_ns / _NS_PER_MS:.3f}")
    if end.had_ns is not None:
        parts.append(f"had_ms={end.had_ns / _NS_PER_MS:.3f}")
    return details("; ".join(parts))


def _retry_status(code: grpc.StatusCode, message: str, retry_ms: int) -> bytes:
    delay = Duration(seconds=retry_ms // 1000, nanos=retry_ms % 1000 * _NS_PER_MS)
    info = AnyMessage(type_url=RETRY_INFO_URL, value=status_pb2.RetryInfo(retry_delay=delay).SerializeToString())
    return status_pb2.Status(code=code.value[0], message=message, details=[info]).SerializeToString()
