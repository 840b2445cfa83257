"""What is refused on arrival: checks in order, the first that objects ends the request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_core import reasons
from harness_core.decision import Ending
from harness_core.outcome import Outcome

if TYPE_CHECKING:
    from harness_core.descriptor import RequestDescriptor
    from harness_core.pod.lane import Model
    from harness_core.pod.settings import ModelLimits
    from harness_core.pod.state import PodState


def refuse_unavailable(request: RequestDescriptor, state: PodState, *, known: bool) -> Ending:
    """The pod drains, does not know the model, or has no executor."""
    if state.draining:
        return Ending(request.id, Outcome.UNAVAILABLE, reasons.DRAINING)
    if not known:
        return Ending(request.id, Outcome.UNAVAILABLE, reasons.MODEL_UNKNOWN)
    return Ending(request.id, Outcome.UNAVAILABLE, reasons.EXECUTOR_DOWN, retry_after_ns=state.retry_after_ns)


def oversize(rows: int, size: int, limits: ModelLimits) -> tuple[str, str] | None:
    """Reason and message when no batch of the model could hold the request: it is never cut (protocol.md §4)."""
    if rows > limits.max_batch_rows:
        return reasons.ROWS_OVER_MAX, f"{rows} rows, a batch holds at most {limits.max_batch_rows}"
    if size > limits.max_batch_bytes:
        return reasons.BYTES_OVER_MAX, f"{size} bytes, a batch holds at most {limits.max_batch_bytes}"
    return None


def refuse_size(request: RequestDescriptor, model: Model) -> Ending | None:
    """See :func:`oversize`."""
    objection = oversize(request.rows, request.bytes, model.limits)
    if objection is None:
        return None
    reason, message = objection
    return Ending(request.id, Outcome.INVALID, reason, message=message)


def refuse_capacity(request: RequestDescriptor, model: Model, state: PodState, retry_ns: int) -> Ending | None:
    """A bound on what waits for the model, or on all that is in the pod, is reached (B007)."""
    limits, pod, pending = model.limits, state.limits, state.ledger
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
    had_ns = request.limit_ns - request.reply_ns - now
    if needed_ns <= had_ns:
        return None
    had_ns = max(0, had_ns)
    return Ending(request.id, Outcome.REJECTED_INFEASIBLE, reasons.INFEASIBLE, needed_ns=needed_ns, had_ns=had_ns)
