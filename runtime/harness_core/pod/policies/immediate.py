"""Immediate: run whatever waits as soon as the accelerator is free.

Why choose it: batches grow by themselves while one runs, and a lone request never waits. Right where deadlines are loose or absent
and the accelerator is not near its limit.
What it reads: priority, arrival, rows, bytes, limits. Not targets: under overload every answer is late before any is refused.
What it costs: O(batch) per batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_core.outcome import BatchReason
from harness_core.pod.policies.base import Candidate, gather, latest_start

if TYPE_CHECKING:
    from harness_core.pod.lane import Lane
    from harness_core.pod.policies.base import Moment
    from harness_core.queue import Entry


class Immediate:
    """Order of priority, then arrival."""

    reason = BatchReason.IDLE

    def key(self, entry: Entry) -> int:
        """Arrival."""
        return entry.arrival

    def ready_ns(self, lane: Lane, moment: Moment) -> int:  # noqa: ARG002 - the signature is the protocol's
        """At once."""
        return moment.now_ns

    def urgency(self, lane: Lane, moment: Moment) -> tuple[int, int]:
        """By the head's target; by its limit once the target is lost."""
        head = lane.queue.head()
        need = lane.timing.need_ns(min(lane.queue.rows, lane.timing.max_rows))
        if moment.base_ns + lane.timing.need_ns(head.rows) <= head.target:
            return (0, head.target - need)
        return (1, head.limit - need)

    def candidate(self, lane: Lane, moment: Moment) -> Candidate | None:
        """As many as fit, in order; none whose limit the batch would miss."""
        limits, timing = lane.model.limits, lane.timing
        members, rows = gather(lane.queue.in_order(), limits.max_batch_rows, limits.max_batch_bytes)
        reason = BatchReason.DRAIN if moment.draining else self.reason
        # A limit that the whole batch would miss makes the batch smaller; its owner goes first, since it cannot wait.
        while members:
            tightest = min(members, key=lambda entry: entry.limit)
            if moment.base_ns + timing.need_ns(rows) <= tightest.limit:
                break
            reason = BatchReason.DEADLINE
            fit = timing.fit(tightest.limit - moment.base_ns)
            others = [entry for entry in members if entry is not tightest]
            if fit >= tightest.rows:
                others.insert(0, tightest)
                members, rows = gather(others, fit, limits.max_batch_bytes)
                break
            members, rows = others, rows - tightest.rows
        if not members:
            return None
        if rows == limits.max_batch_rows:
            reason = BatchReason.FULL
        return Candidate(members, rows, latest_start(members, timing.need_ns(rows), moment), reason, [])
