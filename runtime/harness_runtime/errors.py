"""The one error by which a request ends without an answer, and the table from outcomes to status codes.

RequestEnded
└── carries an Outcome; edges map it by STATUS to gRPC codes (and HTTP, for the REST edge)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harness_core.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Status:
    """Wire status of an outcome: gRPC code name, HTTP status, and whether a retry hint goes along."""

    grpc: str
    http: int
    retry: bool = False


STATUS: Final[dict[Outcome, Status]] = {
    Outcome.COMPLETED: Status("OK", 200),
    Outcome.LATE: Status("OK", 200),
    Outcome.EXPIRED: Status("DEADLINE_EXCEEDED", 504),
    Outcome.REJECTED_INFEASIBLE: Status("DEADLINE_EXCEEDED", 504),
    Outcome.REJECTED_CAPACITY: Status("RESOURCE_EXHAUSTED", 429, retry=True),
    Outcome.SHED: Status("RESOURCE_EXHAUSTED", 429, retry=True),
    Outcome.UNAVAILABLE: Status("UNAVAILABLE", 503, retry=True),
    Outcome.INVALID: Status("INVALID_ARGUMENT", 400),
    Outcome.CANCELLED: Status("CANCELLED", 499),
    Outcome.FAILED: Status("INTERNAL", 500),
}
"""protocol.md §3. An unknown model is INVALID with ``not_found`` set; a failure for lack of device memory has
``out_of_memory`` set: both have codes of their own."""

NOT_FOUND: Final = Status("NOT_FOUND", 404)
OUT_OF_MEMORY: Final = Status("RESOURCE_EXHAUSTED", 429)
TOO_LARGE: Final = Status("RESOURCE_EXHAUSTED", 413)
"""A message over ``maxMessageBytes``: no retry hint, it will not shrink."""
UNIMPLEMENTED: Final = Status("UNIMPLEMENTED", 501)
"""A part of the protocol that this server does not offer (shared memory, classification)."""


class RequestEnded(Exception):  # noqa: N818 - an end, often not an error of ours
    """A request ended without an answer.

    ``reason`` is a short stable code, ``message`` a sentence for the caller that names tensor, limit and hop.
    ``needed_ns`` and ``had_ns`` are the numbers behind a refusal where they apply. ``status`` replaces the outcome's own
    wire status.
    """

    def __init__(
        self,
        outcome: Outcome,
        reason: str,
        message: str,
        *,
        retry_after_ms: int | None = None,
        not_found: bool = False,
        out_of_memory: bool = False,
        needed_ns: int | None = None,
        had_ns: int | None = None,
        status: Status | None = None,
    ) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.reason = reason
        self.message = message
        self.retry_after_ms = retry_after_ms
        self.not_found = not_found
        self.out_of_memory = out_of_memory
        self.needed_ns = needed_ns
        self.had_ns = had_ns
        self._status = status

    @property
    def status(self) -> Status:
        """The wire status of this end."""
        if self._status is not None:
            return self._status
        if self.not_found:
            return NOT_FOUND
        if self.out_of_memory:
            return OUT_OF_MEMORY
        return STATUS[self.outcome]


def internal_fault() -> RequestEnded:
    """A fault of the server's own; the log has it."""
    return RequestEnded(Outcome.FAILED, "internal", "the server failed on this request; its log has the reason")


def invalid(reason: str, message: str) -> RequestEnded:
    """A request that contradicts the model's signature or the protocol."""
    return RequestEnded(Outcome.INVALID, reason, message)
