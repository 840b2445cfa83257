"""Finding the member at fault: a failed batch runs again in halves, down to singles (protocol.md §4; B003).

The halves wait in ``Lane.isolating``; new batches of the lane wait for them, so at most the members of the batches that were
handed over are ever in isolation. Each member is run at most once alone, since a single that fails is not split again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_core.outcome import BatchReason
from harness_core.pod.policies.base import Candidate, latest_start
from harness_core.queue import Entry, Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness_core.pod.lane import Lane
    from harness_core.pod.policies.base import Moment


def split(lane: Lane, members: Sequence[Entry]) -> None:
    """Put the members of a failed batch to isolation in two halves (one, when one is left), before older groups."""
    middle = (len(members) + 1) // 2
    for entry in members:
        entry.place = Place.ISOLATED
    groups = [list(group) for group in (members[:middle], members[middle:]) if group]
    lane.isolating.extendleft(reversed(groups))


def remove(lane: Lane, entry: Entry) -> None:
    """Take a member out of its group."""
    for group in lane.isolating:
        if entry in group:
            group.remove(entry)
            break
    # Equality of lists: the one that is empty.
    if [] in lane.isolating:
        lane.isolating.remove([])


def lost(lane: Lane, base_ns: int) -> list[Entry]:
    """Members that could not be answered before their limit even if they ran alone and next."""
    if not lane.isolating:
        return []
    need_ns = lane.timing.need_ns
    return [e for group in lane.isolating for e in group if base_ns + need_ns(e.rows) > e.limit]


def next_lost_ns(lane: Lane, lead_ns: int) -> int | None:
    """When the next member is lost if nothing is launched, its answer coming ``lead_ns`` and its run after that moment."""
    if not lane.isolating:
        return None
    need_ns = lane.timing.need_ns
    return min(e.limit - need_ns(e.rows) - lead_ns + 1 for group in lane.isolating for e in group)


def candidate(lane: Lane, moment: Moment) -> Candidate:
    """The first group that waits; halved further while it would miss a member's limit or a bound that has shrunk."""
    limits = lane.model.limits
    while True:
        group = lane.isolating[0]
        rows = sum(entry.rows for entry in group)
        fits = rows <= limits.max_batch_rows and sum(entry.bytes for entry in group) <= limits.max_batch_bytes
        if len(group) == 1 or (
            fits and moment.base_ns + lane.timing.need_ns(rows) <= min(entry.limit for entry in group)
        ):
            start = latest_start(group, lane.timing.need_ns(rows), moment)
            return Candidate(group, rows, start, BatchReason.ISOLATE, [], isolated=True)
        lane.isolating.popleft()
        split(lane, group)
