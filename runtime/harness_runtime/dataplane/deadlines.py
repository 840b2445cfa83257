"""When a request should be answered, and when it is given up (design.md §3, Deadline of a request)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness_runtime.model import ModelSpec

NS_PER_US = 1000
HOLD_NS_MAX = 24 * 3600 * 1_000_000_000
"""A day. No limit lies further away, so that timers only see numbers they can hold."""


def target_and_limit(
    spec: ModelSpec, timeout_us: int | None, arrival_ns: int, deadline_ns: int | None, max_hold_ns: int
) -> tuple[int, int]:
    """Target (drives scheduling and the on-time figures) and limit (the request is given up), ``arrival <= target <= limit``.

    With a ``timeout`` both are arrival + timeout, the timeout capped by ``maxLatencyMilliseconds``. Without one the target
    is arrival + objective and the limit the transport's deadline, or else arrival + ``maxHoldSeconds``. The transport's
    deadline bounds every limit, since nobody waits beyond it; one that has passed gives the arrival itself.
    """
    if timeout_us is not None:
        span_ns = timeout_us * NS_PER_US
        if spec.max_latency_ns is not None:
            span_ns = min(span_ns, spec.max_latency_ns)
        limit_ns = arrival_ns + span_ns
        if deadline_ns is not None:
            limit_ns = min(limit_ns, deadline_ns)
    else:
        limit_ns = arrival_ns + max_hold_ns if deadline_ns is None else deadline_ns
    limit_ns = max(arrival_ns, min(limit_ns, arrival_ns + HOLD_NS_MAX))
    target_ns = limit_ns if timeout_us is not None else min(arrival_ns + spec.objective_ns, limit_ns)
    return target_ns, limit_ns
