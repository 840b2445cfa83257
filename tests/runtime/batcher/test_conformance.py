"""One decision code, several drivers (design.md §2.1): the asyncio driver and a plain event loop write the same journal."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from harness_core.decision import BatchResult
from harness_core.descriptor import LaneKey, RequestDescriptor
from harness_core.journal import Journal, replay
from harness_core.pod.machine import PodMachine
from harness_core.pod.settings import PodLimits, PolicyName
from harness_runtime.batcher.assembly import reply_ns

from tests.runtime.batcher.bench import Bench, linear, make_spec, outcome_of, virtually
from tests.runtime.batcher.sim_executor import MS, SimExecutor

US = 1_000
POLICIES = list(PolicyName)


@dataclass(frozen=True)
class Arrival:
    """One request of the script; times in whole microseconds, the virtual loop's resolution."""

    at_ns: int
    rows: int
    within_ns: int
    limit_ns: int
    cancel_after_ns: int | None


def script(seed: int, count: int = 150) -> list[Arrival]:
    """A load near the limit of the accelerator with some cancels; no two events at the same instant as any other's."""
    rng = random.Random(seed)
    at, arrivals = 0, []
    for _ in range(count):
        at += rng.randrange(1, 4000) * US
        within = rng.randrange(10_000, 60_000) * US
        cancel = rng.randrange(500, 30_000) * US if rng.random() < 0.1 else None
        arrivals.append(Arrival(at, rng.choice((1, 1, 1, 2, 3)), within, within + rng.choice((0, 50_000)) * US, cancel))
    return arrivals


def through_the_driver(policy: PolicyName, arrivals: list[Arrival]) -> list[list[Any]]:
    """The script through the batcher on a virtual loop."""
    journal = Journal()

    async def scenario():
        bench = Bench(policy=policy, journal=journal, limits={"max_queue_delay_ns": 7 * MS})
        async with bench:
            tasks = []
            for arrival in arrivals:
                loop = asyncio.get_running_loop()
                await asyncio.sleep(arrival.at_ns / 1e9 - loop.time())
                task = bench.send(1, arrival.rows, within_ms=arrival.within_ns / MS, limit_ms=arrival.limit_ns / MS)
                tasks.append(task)
                if arrival.cancel_after_ns is not None:
                    loop.call_later(arrival.cancel_after_ns / 1e9, task.cancel)
            await asyncio.gather(*(outcome_of(task) for task in tasks))

    virtually(scenario)
    return journal.entries


@dataclass
class PlainDriver:
    """The smallest driver there can be: a heap of events and a serial accelerator."""

    machine: PodMachine
    heap: list[tuple[int, int, Any]] = field(default_factory=list)
    order: Any = field(default_factory=itertools.count)
    staged: list[Any] = field(default_factory=list)
    running: Any = None
    wake_ns: int | None = None
    open: set[int] = field(default_factory=set)

    def at(self, when_ns: int, event: Any) -> None:
        heapq.heappush(self.heap, (when_ns, next(self.order), event))

    def run(self) -> None:
        while self.heap:
            now, _, event = heapq.heappop(self.heap)
            if event() is not False:
                self.decide(now)

    def wake(self, when_ns: int) -> bool:
        return self.wake_ns == when_ns

    def decide(self, now: int) -> None:
        decision = self.machine.decide(now)
        for plan in decision.launches:
            self.staged.append(plan)
            self.begin_next(now)
        for ending in decision.endings:
            self.open.discard(ending.request_id)
        if decision.wake_at_ns != self.wake_ns:
            self.wake_ns = decision.wake_at_ns
            if self.wake_ns is not None:
                when = -(-self.wake_ns // US) * US
                self.at(when, lambda wanted=self.wake_ns: self.wake(wanted))

    def begin_next(self, now: int) -> None:
        if self.running is None and self.staged:
            self.running = self.staged.pop(0)
            self.at(now, lambda plan=self.running, now=now: self.begin(now, plan))

    def begin(self, now: int, plan: Any) -> None:
        self.machine.on_started(now, plan.batch_id)
        took = (5 + plan.execution_size) * MS
        self.at(now + took, lambda: self.finish(now + took, plan, took))

    def finish(self, now: int, plan: Any, took: int) -> None:
        self.running = None
        self.machine.on_done(now, plan.batch_id, BatchResult(took))
        self.decide(now)
        self.begin_next(now)

    def cancel(self, now: int, request_id: int) -> bool:
        if request_id not in self.open:
            return False
        self.machine.on_cancel(now, request_id)
        return True

    def arrive(self, request: RequestDescriptor) -> None:
        self.open.add(request.id)
        self.machine.on_arrival(request.arrival_ns, request)


def through_a_heap(policy: PolicyName, arrivals: list[Arrival]) -> list[list[Any]]:
    """The same script through :class:`PlainDriver`."""
    journal = Journal()
    driver = PlainDriver(PodMachine(PodLimits(), journal))
    bench = Bench(policy=policy, limits={"max_queue_delay_ns": 7 * MS})
    bench.spec = make_spec()
    driver.machine.add_model(0, bench.model_limits())
    driver.machine.on_executor_up(0)
    driver.decide(0)
    for number, arrival in enumerate(arrivals, 1):
        request = RequestDescriptor(
            id=number,
            lane=LaneKey(bench.spec.digest),
            rows=arrival.rows,
            bytes=16 * arrival.rows,
            arrival_ns=arrival.at_ns,
            target_ns=arrival.at_ns + arrival.within_ns,
            limit_ns=arrival.at_ns + arrival.limit_ns,
            reply_ns=reply_ns(arrival.within_ns),
        )
        driver.at(arrival.at_ns, lambda request=request: driver.arrive(request))
        if arrival.cancel_after_ns is not None:
            when = arrival.at_ns + arrival.cancel_after_ns
            driver.at(when, lambda when=when, number=number: driver.cancel(when, number))
    driver.run()
    return journal.entries


def telling(entries: list[list[Any]]) -> list[list[Any]]:
    """What happened and what was decided; decisions in which nothing happens depend on how often a driver asks."""
    return [
        entry if entry[0] != "decide" else [*entry[:2], {name: entry[2][name] for name in ("launches", "endings")}]
        for entry in entries
        if entry[0] != "decide" or entry[2]["launches"] or entry[2]["endings"]
    ]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_both_drivers_write_the_same_journal(policy, seed):
    """Events and decisions agree to the nanosecond, under load, with expiries and cancels."""
    arrivals = script(seed)
    ours, plain = (telling(run(policy, arrivals)) for run in (through_the_driver, through_a_heap))
    for index, (left, right) in enumerate(zip(ours, plain, strict=False)):
        assert left == right, f"entry {index}"
    assert len(ours) == len(plain)
    assert len(ours) > len(arrivals)


@pytest.mark.parametrize("policy", POLICIES)
def test_replay_of_a_journal_with_faults_decides_the_same(policy):
    """A journal written in production replays to the same decisions, losses and failed batches included."""
    journal = Journal()

    async def scenario():
        executor = SimExecutor(
            linear, error=lambda job: "bad" if any((p < 0).any() for p in job.inputs[0].parts) else None
        )
        bench = Bench(policy=policy, journal=journal, executor=executor, limits={"max_queue_delay_ns": 7 * MS})
        async with bench:
            tasks = []
            for number, arrival in enumerate(script(7)):
                await asyncio.sleep(arrival.at_ns / 1e9 - asyncio.get_running_loop().time())
                if number == 60:
                    executor.lose()
                if number == 70:
                    executor.restore()
                tasks.append(bench.send(-1 if number % 17 == 0 else 1, arrival.rows, within_ms=200))
            bench.batcher.drain()
            await asyncio.gather(*(outcome_of(task) for task in tasks))

    virtually(scenario)
    assert any(entry[0] == "on_executor_lost" for entry in journal.entries)
    assert replay(journal.entries, PodMachine) == []
