"""From an ending of the core to the error that an edge sends: a sentence with the model and the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harness_core.outcome import Outcome

from harness_runtime.errors import RequestEnded
from harness_runtime.text import quoted

if TYPE_CHECKING:
    from harness_core.decision import Ending

NS_PER_MS: Final = 1_000_000
OUT_OF_MEMORY: Final = "out_of_memory"
"""Reason of a failure for lack of device memory; it has a status of its own (protocol.md §3)."""

_SENTENCE: Final[dict[Outcome, str]] = {
    Outcome.EXPIRED: "waited until it could no longer be answered before its limit",
    Outcome.REJECTED_INFEASIBLE: "cannot be answered before its limit",
    Outcome.REJECTED_CAPACITY: "the queue is full",
    Outcome.SHED: "gave way to a fuller batch of requests that can still be on time",
    Outcome.CANCELLED: "was withdrawn by its caller",
    Outcome.UNAVAILABLE: "nothing can run it now",
    Outcome.FAILED: "the model failed",
}


def error_of(ending: Ending, model: str) -> RequestEnded:
    """The error of an ending without an answer."""
    said = ending.message or _SENTENCE.get(ending.outcome, ending.outcome.value)
    numbers = _numbers(ending)
    message = f"model {quoted(model)}: {said} ({ending.reason}{numbers})"
    retry_ms = None if ending.retry_after_ns is None else max(1, -(-ending.retry_after_ns // NS_PER_MS))
    return RequestEnded(
        ending.outcome,
        ending.reason,
        message,
        retry_after_ms=retry_ms,
        out_of_memory=ending.reason == OUT_OF_MEMORY,
        needed_ns=ending.needed_ns,
        had_ns=ending.had_ns,
    )


def _numbers(ending: Ending) -> str:
    if ending.needed_ns is None or ending.had_ns is None:
        return ""
    return f": needed {ending.needed_ns / NS_PER_MS:.3f} ms, had {ending.had_ns / NS_PER_MS:.3f} ms"
