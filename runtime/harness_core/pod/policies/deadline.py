"""Deadline: eager earliest-deadline-first with window drop to the planned batch (scheduling.md §1, §2 "A pod alone").

Why choose it: the most requests on time, and no collapse under overload. The default.

How: with one accelerator waiting is worthless (§3, bound 4), so a free accelerator starts at once. The head's deadline bounds the
batch. When the heads allow only a batch below the plan b* (``harness_core.rate.planned_batch``) while enough younger requests
wait, the oldest head that allows it begins the batch and those before it are given up: without that a late start makes small
batches, which make later starts ("metastable batch collapse"). Requests whose target is lost but not their limit run when nothing
can be on time, in batches small enough not to ruin the next planned one; spare rows of an execution size are theirs at once.
No batch is larger than its throughput r/l(r) justifies, which execution sizes and full caches make smaller than what fits.

What it reads: priority (strict levels), target, limit, weight, rows, bytes, corrected latency, arrival rate.
What it costs: O(heads skipped + batch) per batch; each request is skipped at most once.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from harness_core.outcome import BatchReason
from harness_core.pod.policies.base import LOOK_AHEAD, Candidate, gather, latest_start

if TYPE_CHECKING:
    from harness_core.pod.lane import Lane
    from harness_core.pod.policies.base import Moment
    from harness_core.queue import Entry, Ranked


HEADS_WEIGHED_MAX = 8
"""Heavy heads considered as the first of a batch: bounds a decision in which weights differ."""


class Deadline:
    """Order of priority, then target."""

    def key(self, entry: Entry) -> int:
        """Target."""
        return entry.target

    def ready_ns(self, lane: Lane, moment: Moment) -> int:  # noqa: ARG002 - the signature is the protocol's
        """At once (eager)."""
        return moment.now_ns

    def urgency(self, lane: Lane, moment: Moment) -> tuple[int, int]:
        """Latest start of the first band's head with the batch it allows; spare work by limit."""
        demote_lost(lane, moment)
        timing = lane.timing
        band = lane.queue.first_band()
        if band is None:
            head = lane.queue.head()
            return (1, head.limit - timing.need_ns(head.rows))
        head = band.items[0][3]
        fit = timing.fit(head.target - moment.base_ns)
        return (0, head.target - timing.need_ns(min(fit, band.rows)))

    def candidate(self, lane: Lane, moment: Moment) -> Candidate | None:
        """The batch to start now: of requests that can be on time, else of spare ones."""
        demote_lost(lane, moment)
        band = lane.queue.first_band()
        if band is None:
            return _spare_work(lane, moment)
        timing = lane.timing
        skip = _heads_to_skip(lane, band, moment)
        items = band.items
        fit = timing.fit(items[skip][3].target - moment.base_ns)
        members, rows = _batch_from(lane, band, skip, moment)
        if not members:
            return None
        if rows < fit and len(lane.queue.bands) > 1:
            rows = _join_lower_levels(lane, members, rows, fit, moment)
        members, rows = _cut_to_thrift(lane, members, rows)
        if lane.queue.spare.items:
            rows = _fill_padding(lane, members, rows, moment)
        start = latest_start(members, timing.need_ns(rows), moment)
        return Candidate(members, rows, start, _reason(lane, rows, fit, moment), [item[3] for item in items[:skip]])


def demote_lost(lane: Lane, moment: Moment) -> None:
    """Move heads whose target is lost even if they ran alone at once to the spare work. Each request moves at most once."""
    base, timing, queue = moment.base_ns, lane.timing, lane.queue
    for band in list(queue.bands.values()):
        while band.items:
            head = band.items[0][3]
            if base + timing.need_ns(head.rows) <= head.target:
                break
            queue.demote(head, head.priority)


def _heads_to_skip(lane: Lane, band: Ranked, moment: Moment) -> int:
    """How many heads to give up so that the batch reaches min(b*, what waits behind them), if they are not worth more."""
    timing, base = lane.timing, moment.base_ns
    plan = lane.plan(moment.now_ns, moment.delay_ns)
    waiting = band.rows
    for index, item in enumerate(band.items):
        entry = item[3]
        if timing.fit(entry.target - base) >= max(min(plan, waiting), entry.rows):
            return index and _worth_skipping(lane, band, index, plan, moment)
        waiting -= entry.rows
    return 0


def _worth_skipping(lane: Lane, band: Ranked, window: int, plan: int, moment: Moment) -> int:
    """``window``, or fewer heads where some of them weigh more, row for row, than what would take their place.

    A batch is worth its weights less its time at the price of the planned batch of the lightest rows (scheduling.md §2, step 3, with
    the price of one level). With equal weights and rows the window always wins: a batch below the plan costs more than it is worth.
    """
    items, timing = band.items, lane.timing
    density = [item[3].weight / item[3].rows for item in islice(items, window)]
    batches = {window: _batch_from(lane, band, window, moment)}
    lightest = min(entry.weight / entry.rows for entry in batches[window][0])
    if max(density) <= lightest:
        return window
    lightest = min(lightest, *density)
    heavy = (index for index, weight in enumerate(density) if index and weight > lightest)
    for index in (0, *islice(heavy, HEADS_WEIGHED_MAX)):
        # A head that is lost already would begin a batch without itself.
        if timing.fit(items[index][3].target - moment.base_ns) >= items[index][3].rows:
            batches[index] = _batch_from(lane, band, index, moment)
    price = lightest * plan / timing.need_ns(plan)

    def score(index: int) -> tuple[float, int]:
        members, rows = batches[index]
        return sum(entry.weight for entry in members) - price * timing.need_ns(rows), -index

    return max(batches, key=score)


def _batch_from(lane: Lane, band: Ranked, index: int, moment: Moment) -> tuple[list[Entry], int]:
    """Members and rows of the batch that begins with this entry of the band and is on time for it."""
    fit = lane.timing.fit(band.items[index][3].target - moment.base_ns)
    entries = (item[3] for item in islice(band.items, index, None))
    return gather(entries, fit, lane.model.limits.max_batch_bytes)


def _join_lower_levels(lane: Lane, members: list[Entry], rows: int, fit: int, moment: Moment) -> int:
    """Fill the room that the first level leaves, making nobody late. Returns the new rows."""
    timing = lane.timing
    room = lane.model.limits.max_batch_bytes - sum(entry.bytes for entry in members)
    for band in islice(lane.queue.bands.values(), 1, None):
        for item in islice(band.items, LOOK_AHEAD):
            entry = item[3]
            own_fit = timing.fit(entry.target - moment.base_ns)
            if rows + entry.rows <= min(fit, own_fit) and entry.bytes <= room:
                members.append(entry)
                rows += entry.rows
                room -= entry.bytes
                fit = min(fit, own_fit)
    return rows


def _cut_to_thrift(lane: Lane, members: list[Entry], rows: int) -> tuple[list[Entry], int]:
    """Leave the last ones to the next batch where fewer rows are answered faster, row for row (``Timing.thrifty``).

    Nine rows that would run as sixteen are eight and one: both are answered earlier so, and the accelerator is free sooner.
    """
    most = lane.timing.thrifty[rows]
    kept: list[Entry] = []
    kept_rows = 0
    for entry in members:
        if kept_rows + entry.rows > most:
            break
        kept.append(entry)
        kept_rows += entry.rows
    return (kept, kept_rows) if kept else (members, rows)


def _fill_padding(lane: Lane, members: list[Entry], rows: int, moment: Moment) -> int:
    """Give the rows between the batch and its execution size, which cost nothing, to spare work. Returns the new rows."""
    size = min(lane.timing.execution_size(rows), lane.timing.max_rows)
    if size <= rows:
        return rows
    end = moment.base_ns + lane.timing.need_ns(rows)
    room = lane.model.limits.max_batch_bytes - sum(entry.bytes for entry in members)
    in_time = (entry for entry in islice(lane.queue.spare, LOOK_AHEAD) if entry.limit >= end)
    chosen, more = gather(in_time, size - rows, room)
    members.extend(chosen)
    return rows + more


def _spare_work(lane: Lane, moment: Moment) -> Candidate | None:
    """Work that can only be late, bounded so that a request that arrives now still makes the next planned batch."""
    timing, base = lane.timing, moment.base_ns
    head = lane.queue.head()
    plan = lane.plan(moment.now_ns, moment.delay_ns)
    bound = timing.fit(int(lane.rate.budget_ns) - timing.need_ns(plan) - moment.delay_ns)
    # Deadlines so short that no spare batch would leave room for them cannot be protected.
    fit = min(timing.fit(head.limit - base), max(bound, head.rows) if bound else timing.max_rows)
    members, rows = gather(lane.queue.spare, fit, lane.model.limits.max_batch_bytes)
    # Spare work of a lower level may have an earlier limit than its head.
    end = base + timing.need_ns(rows)
    members = [entry for entry in members if entry.limit >= end]
    rows = sum(entry.rows for entry in members)
    if not members:
        return None
    start = latest_start(members, timing.need_ns(rows), moment)
    return Candidate(members, rows, start, _reason(lane, rows, rows + 1, moment), [])


def _reason(lane: Lane, rows: int, fit: int, moment: Moment) -> BatchReason:
    if rows >= lane.model.limits.max_batch_rows:
        return BatchReason.FULL
    if moment.draining:
        return BatchReason.DRAIN
    return BatchReason.DEADLINE if rows >= fit else BatchReason.IDLE
