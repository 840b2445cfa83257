"""State of the pod's machine: models, and their lanes with queue, rate and timing."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from harness_core.pod.policies import policy_of
from harness_core.pod.timing import Timing
from harness_core.queue import Entry, ExpiryHeap, LaneQueue, Place
from harness_core.rate import ArrivalRate, planned_batch

if TYPE_CHECKING:
    from harness_core.correction import Correction
    from harness_core.descriptor import LaneKey
    from harness_core.pod.settings import ModelLimits

IDLE_LANES_MAX = 64
"""Empty lanes whose rate is remembered, per model; the longest idle is forgotten first."""


class Lane:
    """Queue, rate and timing of one lane. Groups of ``isolating`` wait to be run again apart."""

    __slots__ = ("isolating", "key", "limits", "model", "queue", "rate", "timing")

    def __init__(self, key: LaneKey, model: Model) -> None:
        self.key = key
        self.model = model
        self.queue = LaneQueue()
        self.rate = ArrivalRate()
        self.timing = model.timing(key.bucket)
        self.limits = ExpiryHeap(_is_queued)
        self.isolating: deque[list[Entry]] = deque()

    @property
    def waits(self) -> bool:
        """Whether anything is queued or isolated."""
        return bool(self.queue.requests or self.isolating)

    def plan(self, now: int, delay_ns: int) -> int:
        """b*, the batch that the arrival rate can fill and the deadlines allow (``harness_core.rate``)."""
        rate = self.rate
        most = self.model.limits.max_batch_rows
        rows = planned_batch(self.timing.need_ns, rate.per_ns(now), rate.budget_ns, delay_ns, most)
        return self.timing.thrifty[rows]


class Model:
    """One model: limits, lanes, and what waits in all of them together.

    ``waiting`` holds what is queued, isolated or staged, in order of arrival: the bounds of the queue count until the run begins.
    """

    __slots__ = (
        "_timings", "bytes", "idle_lanes", "lanes", "limits", "policy", "requests", "rows", "timeouts", "waiting",
    )  # fmt: skip

    def __init__(self, limits: ModelLimits) -> None:
        self.lanes: dict[LaneKey, Lane] = {}
        self.idle_lanes: dict[LaneKey, Lane] = {}
        self.waiting: dict[int, Entry] = {}
        self.rows = 0
        self.bytes = 0
        self.timeouts = ExpiryHeap(_has_not_begun)
        self._timings: dict[str, Timing] = {}
        self.limits = limits
        self.policy = policy_of(limits.policy)
        self.set_limits(limits)

    def set_limits(self, limits: ModelLimits) -> None:
        """Take new limits or profiles; corrections of unchanged profiles are kept, queues are put into the new policy's order."""
        old, new = self._timings, {}
        self.limits = limits
        for bucket in ("", *limits.profiles):
            profile = limits.profiles.get(bucket, limits.default_profile)
            timing = Timing(profile, limits.max_batch_rows, limits.execution_sizes)
            # What was learnt is a ratio to the old profile: it means nothing for another.
            if bucket in old and old[bucket].profile == profile:
                timing.correction = old[bucket].correction
            new[bucket] = timing
        self._timings = new
        for lane in (*self.lanes.values(), *self.idle_lanes.values()):
            lane.timing = self.timing(lane.key.bucket)
        policy = policy_of(limits.policy)
        if policy is not self.policy:
            self.policy = policy
            for lane in self.lanes.values():
                lane.queue.reorder(policy.key)

    def reschedule(self) -> None:
        """Compute anew when each request must leave, after a change of limits. What waits fits the new limits."""
        self.timeouts = ExpiryHeap(_has_not_begun)
        if self.limits.queue_timeout_ns:
            for entry in self.waiting.values():
                self.timeouts.push(entry.arrival + self.limits.queue_timeout_ns, entry, len(self.waiting))
        for lane in (*self.lanes.values(), *self.idle_lanes.values()):
            lane.limits = ExpiryHeap(_is_queued)
            for entry in lane.queue.in_order():
                lane.limits.push(entry.limit - lane.timing.raw_ns[entry.rows], entry, lane.queue.requests)

    def timing(self, bucket: str) -> Timing:
        """Timing of a bucket; those without a profile of their own share the default's (and its correction)."""
        return self._timings.get(bucket) or self._timings[""]

    @property
    def corrections(self) -> dict[str, Correction]:
        """Live corrections by bucket; "" is the default's."""
        return {bucket: timing.correction for bucket, timing in self._timings.items()}

    def lane(self, key: LaneKey) -> Lane:
        """The lane of ``key``, made or woken when it was empty."""
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.idle_lanes.pop(key, None) or Lane(key, self)
            self.lanes[key] = lane
        return lane

    def enqueue(self, entry: Entry, now: int) -> None:
        """Queue an admitted request in its lane."""
        lane = self.lane(entry.lane)
        lane.rate.observe(now, entry.rows, entry.target - entry.arrival)
        lane.queue.push(entry)
        self.add(entry)
        lane.limits.push(entry.limit - lane.timing.raw_ns[entry.rows], entry, lane.queue.requests)
        if self.limits.queue_timeout_ns:
            self.timeouts.push(entry.arrival + self.limits.queue_timeout_ns, entry, len(self.waiting))

    def settle(self, lane: Lane) -> None:
        """Put an empty lane aside, remembering its rate for a while."""
        if lane.waits or lane.key not in self.lanes:
            return
        del self.lanes[lane.key]
        self.idle_lanes[lane.key] = lane
        if len(self.idle_lanes) > IDLE_LANES_MAX:
            del self.idle_lanes[next(iter(self.idle_lanes))]

    def add(self, entry: Entry) -> None:
        """Count a request that begins to wait."""
        self.waiting[entry.id] = entry
        self.rows += entry.rows
        self.bytes += entry.bytes

    def drop(self, entry: Entry) -> None:
        """Count a request that waits no more."""
        del self.waiting[entry.id]
        self.rows -= entry.rows
        self.bytes -= entry.bytes


def _is_queued(entry: Entry) -> bool:
    return entry.place is Place.QUEUED


def _has_not_begun(entry: Entry) -> bool:
    return entry.place in (Place.QUEUED, Place.STAGED)
