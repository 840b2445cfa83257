"""Queue of a lane: requests in (priority, key, sequence) order, and heaps of the times at which they must leave.

The order is kept in sorted lists: inserting and removing cost O(log n) comparisons and a move of at most n pointers, which for the
queue bounds in use (thousands) is below two microseconds, less than a balanced tree in Python, and heads and prefixes can be read by index.
Queues are bounded by their owner (``harness_core.pod.admission``).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from harness_core.invariants import check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness_core.descriptor import RequestDescriptor

COMPACT_SLACK = 64


class Place(Enum):
    """Where a request is between its arrival and its end."""

    QUEUED = "queued"
    ISOLATED = "isolated"
    """Waits to be run again as part of a half of its failed batch."""
    STAGED = "staged"
    """In a batch that was handed over behind the running one: still counts as waiting."""
    RUNNING = "running"
    ENDED = "ended"


class Entry:
    """One request in the machine: the descriptor's numbers, and where it is. ``key`` is its policy's rank (Policy.key).

    ``target`` and ``limit`` are what plans aim at, less the way of the answer to its caller; ``due`` is the caller's own target, and
    ``until`` the last moment at which a refusal still reaches it before its limit (half of the allowance: the other half is
    for runs that end a little later than planned).
    """

    __slots__ = (
        "arrival", "bytes", "due", "home", "id", "key", "lane", "limit", "place", "priority", "rank", "rows", "seq", "target", "until", "weight",
    )  # fmt: skip

    def __init__(self, descriptor: RequestDescriptor, seq: int) -> None:
        self.id = descriptor.id
        self.lane = descriptor.lane
        self.rows = descriptor.rows
        self.bytes = descriptor.bytes
        self.arrival = descriptor.arrival_ns
        self.target = descriptor.target_ns - descriptor.reply_ns
        self.limit = descriptor.limit_ns - descriptor.reply_ns
        self.due = descriptor.target_ns
        self.until = descriptor.limit_ns - descriptor.reply_ns // 2
        self.weight = descriptor.weight
        self.priority = descriptor.priority
        self.seq = seq
        self.key = 0
        self.rank = (self.priority, 0, seq)
        self.home: Ranked | None = None
        self.place = Place.QUEUED


class Ranked:
    """Entries in (priority, key, sequence) order. ``items`` may be read by index, never written from outside."""

    __slots__ = ("items", "rows")

    def __init__(self) -> None:
        self.items: list[tuple[int, int, int, Entry]] = []
        self.rows = 0

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Entry]:
        return (item[3] for item in self.items)

    def add(self, entry: Entry, priority: int, key: int) -> None:
        """Insert in order; O(log n) comparisons."""
        entry.rank = (priority, key, entry.seq)
        entry.home = self
        item = (priority, key, entry.seq, entry)
        if not self.items or item > self.items[-1]:
            self.items.append(item)
        else:
            insort(self.items, item)
        self.rows += entry.rows

    def remove(self, entry: Entry) -> None:
        """Take out by rank; O(log n) comparisons."""
        index = bisect_left(self.items, entry.rank)
        check(self.items[index][3] is entry, f"request {entry.id} is not where it should wait")
        del self.items[index]
        entry.home = None
        self.rows -= entry.rows


class LaneQueue:
    """What waits in one lane: a band per priority, and ``spare`` for requests that run only when nothing else can.

    ``spare`` holds requests past their target (Deadline) or past a queue timeout with action Delay, by (priority, limit).
    """

    __slots__ = ("bands", "bytes", "requests", "rows", "spare")

    def __init__(self) -> None:
        self.bands: dict[int, Ranked] = {}
        self.spare = Ranked()
        self.requests = 0
        self.rows = 0
        self.bytes = 0

    def push(self, entry: Entry) -> None:
        """Add an arrival."""
        band = self.bands.get(entry.priority)
        if band is None:
            # Few levels (nine at most): an ordered copy is cheaper than ordering at every read.
            self.bands[entry.priority] = band = Ranked()
            self.bands = dict(sorted(self.bands.items()))
        band.add(entry, entry.priority, entry.key)
        self.requests += 1
        self.rows += entry.rows
        self.bytes += entry.bytes

    def remove(self, entry: Entry) -> None:
        """Take out wherever it waits."""
        home = entry.home
        if home is None:
            raise AssertionError(f"request {entry.id} does not wait")
        home.remove(entry)
        if not home.items and home is not self.spare:
            del self.bands[entry.priority]
        self.requests -= 1
        self.rows -= entry.rows
        self.bytes -= entry.bytes

    def demote(self, entry: Entry, priority: int) -> None:
        """Move from its band to ``spare``."""
        self.remove(entry)
        self.spare.add(entry, priority, entry.limit)
        self.requests += 1
        self.rows += entry.rows
        self.bytes += entry.bytes

    def reorder(self, key: Callable[[Entry], int]) -> None:
        """Put everything into the order of another policy."""
        entries = sorted(self.in_order(), key=lambda entry: entry.seq)
        for entry in entries:
            self.remove(entry)
        for entry in entries:
            entry.key = key(entry)
            self.push(entry)

    def first_band(self) -> Ranked | None:
        """The band of the highest priority, None when only ``spare`` waits."""
        return next(iter(self.bands.values()), None)

    def head(self) -> Entry:
        """First entry of all, bands before ``spare``. The queue must not be empty."""
        for band in self.bands.values():
            return band.items[0][3]
        return self.spare.items[0][3]

    def in_order(self) -> Iterator[Entry]:
        """All entries: bands by priority, then ``spare``."""
        for band in self.bands.values():
            yield from band
        yield from self.spare


class ExpiryHeap:
    """Times at which entries must leave, earliest first. Entries that left otherwise are dropped lazily.

    Rebuilt once the stale half outweighs the live one, so memory stays in proportion to the queue.
    """

    __slots__ = ("_heap", "_is_live")

    def __init__(self, is_live: Callable[[Entry], bool]) -> None:
        self._heap: list[tuple[int, int, Entry]] = []
        self._is_live = is_live

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, time_ns: int, entry: Entry, live: int) -> None:
        """Add; ``live`` is how many live entries the owner has, for compaction."""
        heap = self._heap
        if len(heap) > 2 * live + COMPACT_SLACK:
            heap[:] = [item for item in heap if self._is_live(item[2])]
            heapify(heap)
        heappush(heap, (time_ns, entry.seq, entry))

    def next_ns(self) -> int | None:
        """Earliest time of a live entry."""
        heap = self._heap
        while heap and not self._is_live(heap[0][2]):
            heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, before_ns: int) -> Entry | None:
        """The earliest live entry with a time < ``before_ns``, taken out of the heap."""
        time_ns = self.next_ns()
        if time_ns is None or time_ns >= before_ns:
            return None
        return heappop(self._heap)[2]
