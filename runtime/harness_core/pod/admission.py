"""What is refused on arrival: an ordered chain of checks, the first that objects ends the request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_core import reasons
from harness_core.decision import Ending
from harness_core.outcome import Outcome

if TYPE_CHECKING:
    from harness_core.descriptor import RequestDescriptor
    from harness_core.pod.lane import Model
    from harness_core.pod.ledger import Ledger
    from harness_core.pod.settings import PodLimits


def refuse_size(request: RequestDescriptor, model: Model) -> Ending | None:
    """More rows or bytes than any batch of the model holds: a request is never cut (protocol.md §4)."""
    limits = model.limits
    if request.rows > limits.max_batch_rows:
        message = f"{request.rows} rows, a batch holds at most {limits.max_batch_rows}"
        return Ending(request.id, Outcome.INVALID, reasons.ROWS_OVER_MAX, message=message)
    if request.bytes > limits.max_batch_bytes:
        message = f"{request.bytes} bytes, a batch holds at most {limits.max_batch_bytes}"
        return Ending(request.id, Outcome.INVALID, reasons.BYTES_OVER_MAX, message=message)
    return None


def refuse_capacity(
    request: RequestDescriptor, model: Model, pending: Ledger, pod: PodLimits, retry_ns: int
) -> Ending | None:
    """A bound on what waits for the model, or on all that is in the pod, is reached (B007)."""
    limits = model.limits
    checks = (
        (reasons.QUEUE_FULL, "requests wait for the model", len(model.waiting), 1, limits.max_queue_requests),
        (reasons.QUEUE_BYTES_FULL, "bytes wait for the model", model.bytes, request.bytes, limits.max_queue_bytes),
        (reasons.POD_FULL, "requests are in the pod", len(pending), 1, pod.max_pending_requests),
        (reasons.POD_FULL, "rows are in the pod", pending.rows, request.rows, pod.max_pending_rows),
        (reasons.POD_FULL, "bytes are in the pod", pending.bytes, request.bytes, pod.max_pending_bytes),
    )
    for reason, what, have, more, bound in checks:
        if have + more > bound:
            message = f"{have} {what}, {more} more would exceed the limit of {bound}"
            return Ending(request.id, Outcome.REJECTED_CAPACITY, reason, retry_after_ns=retry_ns, message=message)
    return None


def refuse_infeasible(request: RequestDescriptor, now: int, needed_ns: int) -> Ending | None:
    """Even alone and next, the request would be answered after its limit."""
    had_ns = request.limit_ns - now
    if needed_ns <= had_ns:
        return None
    return Ending(
        request.id, Outcome.REJECTED_INFEASIBLE, reasons.INFEASIBLE, needed_ns=needed_ns, had_ns=max(0, had_ns)
    )
