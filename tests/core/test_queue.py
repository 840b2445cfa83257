"""Queue order, sums and expiry heaps against plain lists."""

from __future__ import annotations

from harness_core.descriptor import LaneKey, RequestDescriptor
from harness_core.queue import Entry, ExpiryHeap, LaneQueue, Place
from hypothesis import given
from hypothesis import strategies as st


def entry(seq: int, key: int = 0, priority: int = 9, rows: int = 1) -> Entry:
    """An entry with this rank."""
    made = Entry(RequestDescriptor(seq, LaneKey("m"), rows, rows, 0, 10, 20, priority=priority), seq)
    made.key = key
    return made


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9), st.integers(1, 4)), max_size=40), st.randoms())
def test_order_and_sums_survive_any_removals(specs, rng):
    """(priority, key, sequence) order, demoted entries last by (priority, limit), sums exact."""
    queue, model, spare = LaneQueue(), [], []
    for seq, (priority, key, rows) in enumerate(specs):
        made = entry(seq, key, priority, rows)
        queue.push(made)
        model.append(made)
    for victim in rng.sample(model, len(model) // 2):
        model.remove(victim)
        if rng.random() < 0.5:
            queue.demote(victim, victim.priority)
            spare.append(victim)
        else:
            queue.remove(victim)
    want = sorted(model, key=lambda e: (e.priority, e.key, e.seq)) + sorted(
        spare, key=lambda e: (e.priority, e.limit, e.seq)
    )
    assert list(queue.in_order()) == want
    assert queue.requests == len(want)
    assert queue.rows == queue.bytes == sum(e.rows for e in want)
    assert not want or queue.head() is want[0]
    queue.reorder(lambda e: -e.seq)
    assert [e.seq for e in queue.in_order()] == [e.seq for e in sorted(want, key=lambda e: (e.priority, -e.seq))]


@given(st.lists(st.integers(0, 20), max_size=60), st.integers(0, 22))
def test_expiry_gives_what_is_due_in_order(times, now):
    """Live entries before ``now``, earliest first; those that left are never given."""
    heap = ExpiryHeap(lambda e: e.place is Place.QUEUED)
    entries = [entry(seq) for seq in range(len(times))]
    for time, made in zip(times, entries, strict=True):
        heap.push(time, made, len(times))
    for made in entries[::3]:
        made.place = Place.ENDED
    live = [(time, made.seq) for time, made in zip(times, entries, strict=True) if made.place is Place.QUEUED]
    assert heap.next_ns() == min((time for time, _ in live), default=None)
    given_out = []
    while (due := heap.pop_due(now)) is not None:
        given_out.append((times[due.seq], due.seq))
    assert given_out == sorted(item for item in live if item[0] < now)


def test_expiry_heap_does_not_grow_with_what_left():
    """Ten thousand requests with far limits that ended early leave no more than a few behind."""
    heap = ExpiryHeap(lambda e: e.place is Place.QUEUED)
    for seq in range(10_000):
        made = entry(seq)
        heap.push(10**12, made, 1)
        made.place = Place.ENDED
    assert len(heap) < 100
