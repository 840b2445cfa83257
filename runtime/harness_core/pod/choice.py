"""Which lane is next on the accelerator.

Parts of failed batches first, in turn with other work; then what can still be on time before spare work, and the earliest latest
start first (scheduling.md §1, Symphony; §5.3: by latest start, since by deadline or by value starves whole models).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_core.pod import isolation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness_core.pod.lane import Lane
    from harness_core.pod.policies.base import Candidate, Moment


class Chooser:
    """Remembers only whether the last batch was part of a failed one, so that isolating cannot starve the others."""

    __slots__ = ("_isolated_last",)

    def __init__(self) -> None:
        self._isolated_last = False

    def next(self, lanes: Iterable[Lane], moment: Moment) -> tuple[Lane, Candidate] | None:
        """The lane and batch to launch at ``moment``, None when nothing is ready. Its order of lanes breaks ties."""
        isolating, ready = [], []
        for lane in lanes:
            if lane.isolating:
                isolating.append(lane)
            elif lane.model.policy.ready_ns(lane, moment) <= moment.now_ns:
                ready.append(lane)
        if isolating and not (ready and self._isolated_last):
            self._isolated_last = True
            return isolating[0], isolation.candidate(isolating[0], moment)
        self._isolated_last = False
        found = _most_urgent(ready, moment)
        if found is None and isolating:
            self._isolated_last = True
            return isolating[0], isolation.candidate(isolating[0], moment)
        return found

    @staticmethod
    def ready_ns(lanes: Iterable[Lane], moment: Moment) -> int | None:
        """From when some lane has work to launch, None when none has."""
        times = [
            moment.now_ns if lane.isolating else lane.model.policy.ready_ns(lane, moment)
            for lane in lanes
            if lane.waits
        ]
        return min(times, default=None)


def _most_urgent(lanes: list[Lane], moment: Moment) -> tuple[Lane, Candidate] | None:
    if len(lanes) > 1:
        ranks = [lane.model.policy.urgency(lane, moment) for lane in lanes]
        order = sorted(range(len(lanes)), key=ranks.__getitem__)
        lanes = [lanes[index] for index in order]
    for lane in lanes:
        candidate = lane.model.policy.candidate(lane, moment)
        if candidate is not None:
            return lane, candidate
    return None
