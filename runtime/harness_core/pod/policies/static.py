"""Static: waits for a full batch.

Why choose it: offline work and benchmarks, where batches of one size are wanted and nobody waits for a single answer.
What it reads: rows, bytes, arrival, limits, corrected latency. A batch leaves early only when the first limit would otherwise be
missed, or when the pod drains.
What it costs: O(batch) per batch. At low rates every request waits until its limit is near.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_core.outcome import BatchReason
from harness_core.pod.policies.immediate import Immediate
from harness_core.pod.policies.max_delay import is_full, limit_pressure_ns

if TYPE_CHECKING:
    from harness_core.pod.lane import Lane
    from harness_core.pod.policies.base import Moment


class Static(Immediate):
    """Order of priority, then arrival; waits for ``max_batch_rows``, for limit pressure or for the drain."""

    reason = BatchReason.DEADLINE

    def ready_ns(self, lane: Lane, moment: Moment) -> int:
        """Full or draining: at once; else when the earliest limit presses."""
        if moment.draining or is_full(lane):
            return moment.now_ns
        return max(moment.now_ns, limit_pressure_ns(lane, moment))
