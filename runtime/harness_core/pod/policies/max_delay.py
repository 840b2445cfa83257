"""MaxDelay: a batch leaves when it is full or its oldest request has waited ``max_queue_delay_ns`` (Triton's dynamic batcher).

Why choose it: the behaviour that users of Triton know, from the two numbers that they have already tuned.
What it reads: priority, arrival, rows, bytes, ``max_batch_rows``, ``max_queue_delay_ns``, and limits: a
batch leaves early rather than break one (Triton would not). Not targets.
What it costs: O(batch) per batch. Waiting may cost deadlines that Deadline would have met: it knows a window, not the deadlines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_core.outcome import BatchReason
from harness_core.pod.policies.immediate import Immediate

if TYPE_CHECKING:
    from harness_core.pod.lane import Lane
    from harness_core.pod.policies.base import Moment


class MaxDelay(Immediate):
    """Order of priority, then arrival; waits for company up to the window."""

    reason = BatchReason.WINDOW

    def ready_ns(self, lane: Lane, moment: Moment) -> int:
        """Full or draining: at once; else when the oldest request's window ends, or a limit presses before that."""
        queue, limits = lane.queue, lane.model.limits
        if moment.draining or queue.spare.items or is_full(lane):
            return moment.now_ns
        # Inside a band the order is that of arrival, so the heads are the oldest.
        oldest = min(band.items[0][3].arrival for band in queue.bands.values())
        return max(moment.now_ns, min(oldest + limits.max_queue_delay_ns, limit_pressure_ns(lane, moment)))


def limit_pressure_ns(lane: Lane, moment: Moment) -> int:
    """When what waits must start, all together, so that the earliest limit is met. The queue is not empty.

    The heap holds limit - l(own rows) of the requests; the whole queue's need on top leaves some room. A timer that fires late by its
    grain is still in time.
    """
    first_ns = lane.limits.next_ns()
    if first_ns is None:
        return moment.now_ns
    need_ns = lane.timing.need_ns(min(lane.queue.rows, lane.timing.max_rows))
    return first_ns - need_ns - moment.delay_ns - moment.grain_ns


def is_full(lane: Lane) -> bool:
    """Whether waiting is pointless: another request like the head could not join the batch (two of 3 rows fill 8)."""
    queue, limits = lane.queue, lane.model.limits
    if queue.bytes >= limits.max_batch_bytes:
        return True
    return queue.rows + queue.head().rows > limits.max_batch_rows
