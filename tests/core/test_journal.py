"""The journal: what JSON holds, and a replay that notices a different decision."""

from __future__ import annotations

import json

import pytest
from harness_core.journal import Journal, replay
from harness_core.pod.machine import PodMachine
from harness_core.pod.settings import PolicyName

from tests.core.builders import MS, Pod, make_limits


def recorded() -> Pod:
    """A short life with every kind of event."""
    pod = Pod(make_limits(execution_sizes=(1, 4, 8)))
    first, second = pod.arrive(0), pod.arrive(0)
    pod.decide(0)
    pod.machine.on_started(MS, pod.launched[0].batch_id)
    pod.machine.set_dispatch_delay(MS, 1000)
    pod.done(9, failure="boom")
    pod.machine.on_cancel(9 * MS, first)
    pod.done(16, execution_ns=6 * MS, member_failures={second: "bad part"})
    pod.machine.update_model(17 * MS, make_limits(policy=PolicyName.STATIC))
    pod.machine.on_executor_lost(18 * MS, 5)
    pod.machine.on_executor_up(19 * MS)
    pod.machine.remove_model(20 * MS, "m")
    pod.machine.on_drain(21 * MS)
    pod.decide(22)
    return pod


def test_a_journal_goes_through_json_and_replays_to_the_same_decisions():
    """A fresh machine fed with the written events decides the same."""
    entries = json.loads(json.dumps(recorded().journal.entries))
    assert {entry[0] for entry in entries} >= {"limits", "on_arrival", "on_done", "decide", "on_drain", "remove_model"}
    assert replay(entries, PodMachine) == []


def test_a_different_decision_is_found():
    """A recorded decision that was changed is named with its entry."""
    entries = json.loads(json.dumps(recorded().journal.entries))
    index = next(at for at, entry in enumerate(entries) if entry[0] == "decide")
    entries[index][2]["launches"][0]["rows"] = 7
    [difference] = replay(entries, PodMachine)
    assert difference.index == index
    assert (difference.recorded.launches[0].rows, difference.replayed.launches[0].rows) == (7, 2)


def test_a_sink_takes_the_entries_and_the_core_keeps_none():
    """A long-running driver bounds and writes by itself."""
    seen: list = []
    journal = Journal(seen.append)
    PodMachine(Pod().limits, journal).on_executor_up(5)
    assert [entry[:2] for entry in seen] == [["limits", 0], ["on_executor_up", 5]]
    assert journal.entries == []


@pytest.mark.parametrize(
    ("entries", "message"), [([["on_drain", 0, None]], "begins"), ([["limits", 0, {}], ["dance", 1, None]], "dance")]
)
def test_foreign_entries_are_refused(entries, message):
    """Not a journal of this machine."""
    with pytest.raises(ValueError, match=message):
        replay(entries, PodMachine)
