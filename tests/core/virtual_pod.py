"""One pod in virtual time: an event heap, the machine, and an emulated accelerator. Pure; seeds decide everything.

Run as a script it prints the figures of docs/decisions/0002-pod-policy.md: ``python -m tests.core.virtual_pod``.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness_core.decision import BatchResult
from harness_core.descriptor import LaneKey, RequestDescriptor
from harness_core.outcome import Outcome
from harness_core.pod.machine import PodMachine
from harness_core.pod.settings import ModelLimits, PodLimits, PolicyName
from harness_core.profile import LatencyProfile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MS = 1_000_000
SECOND = 1_000_000_000
PROFILE = LatencyProfile.linear(5 * MS, 1 * MS, 32)
"""The accelerator of scheduling.md §2, "A pod alone": l = 5 + b ms, max batch 32, D 50 ms."""


@dataclass(frozen=True)
class Case:
    """What is simulated. ``hold_ms``: limit after arrival where it differs from the target."""

    rates: tuple[tuple[float, float], ...]
    """Requests a second, from this second on; the last entry's rate is 0."""
    shape: float = 1.0
    """Gamma shape of the gaps: 1 is Poisson, 0.3 bursty."""
    policy: PolicyName = PolicyName.DEADLINE
    deadline_ms: int = 50
    hold_ms: int | None = None
    delay_ms: float = 0.0
    """To the start and back together, half each."""
    cv: float = 0.0
    """Lognormal noise of each batch's run."""
    slow: float = 1.0
    """Runs that begin in the first half second of every two take so many times as long: a busy host."""
    staging: bool = True
    models: int = 1
    weights: tuple[tuple[float, float], ...] = ((1.0, 1.0),)
    """(weight, share of the requests)."""
    max_queue_delay_ms: int = 10


@dataclass
class Run:
    """What came of it: per request arrival, end, outcome and weight; rows of the batches."""

    arrivals: list[int]
    weights: list[float]
    ends: list[int] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    refused_late: int = 0

    def on_time(self, begin_s: float = 0.0, end_s: float = 1e9) -> float:
        """Share on time of the requests that arrived in this window."""
        chosen = [o for a, o in zip(self.arrivals, self.outcomes, strict=True) if begin_s <= a / SECOND < end_s]
        return sum(outcome is Outcome.COMPLETED for outcome in chosen) / max(1, len(chosen))

    def value(self) -> float:
        """Weight on time as a share of the weight offered."""
        won = sum(w for w, o in zip(self.weights, self.outcomes, strict=True) if o is Outcome.COMPLETED)
        return won / sum(self.weights)

    @property
    def mean_rows(self) -> float:
        """Mean batch."""
        return sum(self.rows) / max(1, len(self.rows))


def arrivals_of(case: Case, rng: random.Random) -> list[int]:
    """Arrival times in nanoseconds."""
    times: list[int] = []
    for (begin, rate), (end, _) in zip(case.rates, case.rates[1:], strict=False):
        at = begin
        while True:
            at += rng.gammavariate(case.shape, 1 / (rate * case.shape))
            if at >= end:
                break
            times.append(round(at * SECOND))
    return times


class Simulation:
    """One run. Events of one instant are ordered by their sequence number."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case = case
        self.rng = random.Random(seed)
        arrivals = arrivals_of(case, self.rng)
        weights = self.rng.choices(*zip(*case.weights, strict=True), k=len(arrivals))
        self.run = Run(arrivals, weights, [0] * len(arrivals), [Outcome.FAILED] * len(arrivals))
        self.machine = PodMachine(PodLimits(dispatch_delay_ns=round(case.delay_ms * MS), staging=case.staging))
        for model in range(case.models):
            self.machine.add_model(0, self._limits(f"m{model}"))
        self.machine.on_executor_up(0)
        self.heap: list[tuple[int, int, str, object]] = []
        self.sequence = 0
        self.open = 0
        self.free_ns = 0
        self.wake_ns: int | None = None

    def _limits(self, name: str) -> ModelLimits:
        case = self.case
        return ModelLimits(
            model=name,
            default_profile=PROFILE,
            policy=case.policy,
            max_batch_rows=32,
            objective_ns=case.deadline_ms * MS,
            max_queue_delay_ns=case.max_queue_delay_ms * MS,
        )

    def go(self) -> Run:
        """Run to the end."""
        for index, at in enumerate(self.run.arrivals):
            self._push(at, "arrive", index)
        while self.heap:
            now, _, kind, payload = heapq.heappop(self.heap)
            if kind == "wake" and now != self.wake_ns:
                continue
            self._feed(now, kind, payload)
            self._decide(now)
        assert self.open == 0, f"{self.open} requests never ended"
        return self.run

    def _push(self, at: int, kind: str, payload: object = None) -> None:
        self.sequence += 1
        heapq.heappush(self.heap, (at, self.sequence, kind, payload))

    def _feed(self, now: int, kind: str, payload: object) -> None:
        if kind == "arrive":
            self.open += 1
            self.machine.on_arrival(now, self._request(now, payload))
        elif kind == "start":
            self.machine.on_started(now, payload)
        elif kind == "done":
            batch_id, took = payload
            self.machine.on_done(now, batch_id, BatchResult(took))

    def _request(self, now: int, index: int) -> RequestDescriptor:
        target = now + self.case.deadline_ms * MS
        limit = target if self.case.hold_ms is None else now + self.case.hold_ms * MS
        lane = LaneKey(f"m{index % self.case.models}")
        return RequestDescriptor(index, lane, 1, 1000, now, target, limit, self.run.weights[index])

    def _decide(self, now: int) -> None:
        decision = self.machine.decide(now)
        half_ns = round(self.case.delay_ms * MS / 2)
        for plan in decision.launches:
            self.run.rows.append(plan.rows)
            begin = max(now + half_ns, self.free_ns)
            noise = self.rng.lognormvariate(-(self.case.cv**2) / 2, self.case.cv) if self.case.cv else 1.0
            noise *= self.case.slow if begin % (2 * SECOND) < SECOND // 2 else 1.0
            took = round(PROFILE.latency_ns(plan.execution_size) * noise)
            self.free_ns = begin + took
            self._push(begin, "start", plan.batch_id)
            self._push(self.free_ns + half_ns, "done", (plan.batch_id, took))
        for ending in decision.endings:
            index = ending.request_id
            self.open -= 1
            self.run.outcomes[index], self.run.ends[index] = ending.outcome, now
            limit_ms = self.case.hold_ms or self.case.deadline_ms
            if ending.outcome is not Outcome.COMPLETED and now >= self.run.arrivals[index] + limit_ms * MS:
                self.run.refused_late += 1
        if decision.wake_at_ns is not None and decision.wake_at_ns != self.wake_ns:
            self._push(decision.wake_at_ns, "wake")
        self.wake_ns = decision.wake_at_ns


def simulate(case: Case, seed: int) -> Run:
    """One seed of a case."""
    return Simulation(case, seed).go()


def steady(rate: float, seconds: float = 10, **changes) -> Case:
    """A constant rate."""
    return Case(((0, rate), (seconds, 0)), **changes)


def share_on_time(case: Case, seeds: Iterable[int] = (1, 2, 3)) -> float:
    """On-time share of the requests of all seeds together."""
    runs = [simulate(case, seed) for seed in seeds]
    return sum(run.on_time() * len(run.arrivals) for run in runs) / sum(len(run.arrivals) for run in runs)


def goodput(rates: Sequence[float], **changes) -> float:
    """The largest of ``rates`` (ascending) with at least 99 % on time, three seeds together, by bisection; 0 when none."""
    low, high = 0, len(rates)
    while low < high:
        middle = (low + high) // 2
        if share_on_time(steady(rates[middle], **changes)) >= 0.99:
            low = middle + 1
        else:
            high = middle
    return rates[low - 1] if low else 0.0


def main() -> None:
    """Print the figures of the decision record."""
    grid = range(400, 800, 10)
    print("goodput at >= 99 % on time, requests/s (l = 5 + b ms, max batch 32, D 50 ms, 3 seeds of 10 s, grid 10)")
    for policy in (PolicyName.DEADLINE, PolicyName.IMMEDIATE, PolicyName.MAX_DELAY):
        for shape in (1.0, 0.3):
            print(
                f"  {policy.value:10} {'Poisson' if shape == 1 else 'gamma .3':8} {goodput(grid, policy=policy, shape=shape)}"
            )
    for delay, cv in ((0, 0.05), (1, 0.05), (2, 0.05), (2, 0.2)):
        for shape in (1.0, 0.3):
            figure = goodput(grid, delay_ms=delay, cv=cv, shape=shape)
            print(f"  Deadline   {'Poisson' if shape == 1 else 'gamma .3':8} delay {delay} ms, cv {cv}: {figure}")
    print(
        f"  Deadline   Poisson  without staging, delay 2 ms, cv 0.05: {goodput(grid, delay_ms=2, cv=0.05, staging=False)}"
    )
    print("on-time requests/s at 1.0, 1.5 and 2.0 x 720/s")
    for policy in (PolicyName.DEADLINE, PolicyName.IMMEDIATE, PolicyName.MAX_DELAY):
        figures = [round(720 * x * share_on_time(steady(720 * x, policy=policy))) for x in (1, 1.5, 2)]
        print(f"  {policy.value:10} {figures}")
    print(
        "Deadline: on-time requests/s at 0.75, 1.0, 1.5 and 2.0 x 720/s, delay 2 ms, noise and slow stretches (2 seeds of 6 s)"
    )
    for cv, slow in ((0.2, 1.0), (0.05, 1.5), (0.2, 2.0)):
        cases = [(720 * x, steady(720 * x, 6, delay_ms=2, cv=cv, slow=slow)) for x in (0.75, 1, 1.5, 2)]
        print(f"  cv {cv}, slow x {slow}: {[round(rate * share_on_time(case, (1, 2))) for rate, case in cases]}")
    print("weight on time as a share of that offered, 10 (20 %) and 1 (80 %), at 1.0, 1.5 and 2.0 x 720/s")
    for weights in (((1.0, 1.0),), ((10.0, 0.2), (1.0, 0.8))):
        runs = [simulate(steady(720 * x, weights=weights), 1) for x in (1, 1.5, 2)]
        print(f"  {weights}: {[round(run.value(), 3) for run in runs]}")
    print("four models on one accelerator, D 200 ms: goodput")
    print(f"  {goodput(range(200, 800, 10), models=4, deadline_ms=200)}")


if __name__ == "__main__":
    main()
