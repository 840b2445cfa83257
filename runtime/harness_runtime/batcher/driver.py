"""The batcher's driver: carries out what the core's pod machine decides (design.md §2.1, §2.6).

Single writer: every method runs on one event loop, which alone touches the machine. Events go in with the time of a
handed-in clock; one decision comes out per turn of the loop, so that requests that arrived together are decided together. The only
timer is the one that the decision asked for: an idle batcher has none.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import TYPE_CHECKING, Any

from harness_core.decision import BatchResult, Ending
from harness_core.outcome import ANSWERED, Outcome

from harness_runtime.batcher.assembly import assemble, describe, split
from harness_runtime.batcher.delay import DispatchDelay
from harness_runtime.batcher.flight import Flight
from harness_runtime.batcher.observer import NoObserver
from harness_runtime.batcher.waiters import Waiters
from harness_runtime.errors import RequestEnded

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness_core.decision import BatchPlan
    from harness_core.descriptor import RequestDescriptor
    from harness_core.pod.machine import PodMachine
    from harness_core.pod.settings import ModelLimits
    from harness_core.pod.snapshot import PodSnapshot

    from harness_runtime.batcher.observer import Observer
    from harness_runtime.ports import Executor, JobResult, Work, WorkResult

log = logging.getLogger(__name__)

NS_PER_S = 1_000_000_000
STALL_NS = 5 * NS_PER_S
"""A decision that is overdue by this much means that the driver no longer turns, whatever else the process answers."""
RETRY_MS = 1000
"""Retry hint of a batcher that takes nothing any more: another replica answers, or this one is started again."""
STOPPING = "stopping"
BROKEN = "batcher_broken"


class Batcher:
    """Adapter of ``ports.BatcherPort`` and ``ports.ExecutorListener`` around the pod machine.

    ``clock`` gives integer nanoseconds, monotonic. ``timer_grain_ns``: the loop's timers are multiples of this (uvloop: one
    millisecond). Delays are rounded up to it: one that is rounded down fires early, turns in vain, is armed for another grain, and is no
    sooner in the end. So timers are late by less than a grain, which ``PodLimits.timer_grain_ns`` tells the machine.
    ``on_executor(up, reason)`` hears of the executor's loss and return, after the machine; ``on_broken(error)`` once, when the machine
    raised: every request has then been ended and nothing more is taken.
    """

    def __init__(
        self,
        machine: PodMachine,
        executor: Executor,
        clock: Callable[[], int],
        *,
        observer: Observer | None = None,
        on_executor: Callable[[bool, str], None] = lambda _up, _reason: None,
        on_broken: Callable[[BaseException], None] = lambda _error: None,
        timer_grain_ns: int = 1,
    ) -> None:
        self._machine = machine
        self._executor = executor
        self._clock = clock
        self._observer: Observer = observer or NoObserver()
        self._on_executor = on_executor
        self._on_broken = on_broken
        self._grain_ns = timer_grain_ns
        self._ids = itertools.count(1)
        self._waiting = Waiters()
        self._flights: dict[int, Flight] = {}
        self._delay = DispatchDelay()
        self._timer: asyncio.TimerHandle | None = None
        self._wake_ns: int | None = None
        self._due_ns: int | None = None
        self._turning = False
        self._refusal: tuple[str, str] | None = None

    # -- for the data plane ---------------------------------------------------------------------------------------------

    async def infer(self, work: Work) -> WorkResult:
        """Queue, run, answer. Cancelling the awaiting task withdraws the request.

        Raises:
            RequestEnded: every end without an answer.
        """
        request_id = next(self._ids)
        descriptor = self._admit(request_id, work)
        waiting = self._waiting.add(request_id, work)
        self._feed(self._machine.on_arrival, descriptor)
        self._poke()
        try:
            result = await waiting.answer
        except asyncio.CancelledError:
            if request_id in self._waiting:
                self._feed(self._machine.on_cancel, request_id)
                self._poke()
            raise
        if isinstance(result, RequestEnded):
            raise result
        if waiting.first:
            self._delay.answered(self._clock() - waiting.done_ns)
        return result

    def _admit(self, request_id: int, work: Work) -> RequestDescriptor:
        try:
            if self._refusal is not None:
                reason, message = self._refusal
                raise RequestEnded(Outcome.UNAVAILABLE, reason, message, retry_after_ms=RETRY_MS)
            return describe(request_id, work)
        except RequestEnded as end:
            outcome = end.outcome
            self._watch(lambda observer: observer.request_ended(work.spec, outcome, work.weight, None))
            raise

    # -- for the server ---------------------------------------------------------------------------------------------------

    def add_model(self, limits: ModelLimits) -> None:
        """Let the machine know a model, before its first request."""
        self._feed(self._machine.add_model, limits)

    def update_model(self, limits: ModelLimits) -> None:
        """New limits or profiles of a known model."""
        self._feed(self._machine.update_model, limits)
        self._poke()

    def open(self) -> None:
        """The executor runs for the first time: batches may start."""
        self._feed(self._machine.on_executor_up)
        self._poke()

    def drain(self) -> None:
        """Take nothing new; what is queued runs without waiting for company."""
        self._feed(self._machine.on_drain)
        self._poke()

    async def wait_empty(self) -> None:
        """Return when no request is left."""
        await self._waiting.wait_empty()

    def close(self) -> None:
        """End whatever is left as unavailable, and take nothing any more."""
        if self._refusal is None:
            self._end_all(STOPPING, "the server is stopping")

    def alive(self) -> bool:
        """Sign of life: the machine is whole and no decision is overdue. Readiness hangs on it (B004)."""
        if self._refusal is not None:
            return False
        late_ns = self._clock() - STALL_NS
        return all(due is None or due > late_ns for due in (self._wake_ns, self._due_ns))

    def snapshot(self) -> PodSnapshot:
        """Queue and batches, now."""
        return self._machine.snapshot(self._clock())

    @property
    def dispatch_delay_ns(self) -> int:
        """Measured time a batch takes beyond its run, as the machine knows it."""
        return self._delay.told_ns

    # -- for the executor -------------------------------------------------------------------------------------------------

    def on_started(self, batch_id: int) -> None:
        """The run of a batch began."""
        flight = self._flights.get(batch_id)
        if flight is not None and not flight.started:
            now = self._clock()
            if flight.lone:
                self._delay.started(now - flight.launched_ns)
            self._started(now, flight)
            self._poke()

    def on_result(self, result: JobResult) -> None:
        """A batch ended. The slot is given back before this returns."""
        now = self._clock()
        flight = self._flights.pop(result.batch_id, None)
        try:
            if flight is None:
                return
            outcome = self._read(now, flight, result)
        finally:
            result.release()
        self._done(now, flight, outcome)
        # At once: until the decision is made the accelerator may stand idle.
        self._turn()

    def on_lost(self, reason: str) -> None:
        """The executor process is gone, and every batch with it."""
        now = self._clock()
        self._flights.clear()
        self._feed(self._machine.on_executor_lost, self._executor.restart_expected_ns())
        self._watch(lambda observer: observer.executor_lost(now))
        self._on_executor(False, reason)
        self._turn()

    def on_restored(self) -> None:
        """A new process runs and has loaded every model again."""
        self._on_executor(True, "")
        self._feed(self._machine.on_executor_up)
        self._turn()

    # -- one turn -----------------------------------------------------------------------------------------------------------

    def _poke(self) -> None:
        """Decide soon: after the events that this turn of the loop still brings."""
        if self._due_ns is None and self._refusal is None:
            self._due_ns = self._clock()
            asyncio.get_running_loop().call_soon(self._turn_if_due)

    def _turn_if_due(self) -> None:
        if self._due_ns is not None:
            self._turn()

    def _turn(self) -> None:
        if self._turning:
            self._poke()
            return
        self._turning = True
        self._due_ns = None
        try:
            self._decide()
        except Exception as error:  # noqa: BLE001 - the machine is the only thing here that is not guarded by itself
            self._break(error)
        finally:
            self._turning = False

    def _decide(self) -> None:
        if self._refusal is not None:
            return
        now = self._clock()
        delay_ns = self._delay.news()
        if delay_ns is not None:
            self._machine.set_dispatch_delay(now, delay_ns)
        decision = self._machine.decide(now)
        for plan in decision.launches:
            self._launch(now, plan)
        for ending in decision.endings:
            self._end(now, ending)
        self._arm(now, decision.wake_at_ns)

    def _arm(self, now: int, wake_ns: int | None) -> None:
        if wake_ns == self._wake_ns and (wake_ns is None) == (self._timer is None):
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake_ns = wake_ns
        if wake_ns is not None:
            delay_ns = -(-max(0, wake_ns - now) // self._grain_ns) * self._grain_ns
            self._timer = asyncio.get_running_loop().call_later(delay_ns / NS_PER_S, self._fired)

    def _fired(self) -> None:
        self._timer = None
        self._turn()

    def _launch(self, now: int, plan: BatchPlan) -> None:
        """Hand a batch to the executor. What goes wrong here is the batch's failure, which the machine takes apart."""
        works = self._waiting.works(plan.members)
        members = {member: work.rows for member, work in zip(plan.members, works, strict=True)}
        flight = Flight(plan, works[0].spec, now, lone=not self._flights, members=members)
        self._flights[plan.batch_id] = flight
        try:
            self._executor.submit(assemble(plan, works))
        except Exception as error:
            log.exception("batch could not be handed over batch=%d model=%s", plan.batch_id, flight.spec.name)
            self._flights.pop(plan.batch_id, None)
            self._done(self._clock(), flight, BatchResult(0, failure=f"the batch could not be handed over: {error}"))
            self._poke()

    def _read(self, now: int, flight: Flight, result: JobResult) -> BatchResult:
        """Take the members' rows out of the slot."""
        if result.withdrawn:
            return BatchResult(0)
        if result.error is not None:
            return BatchResult(result.execution_ns, failure=result.error, out_of_memory=result.out_of_memory)
        try:
            alive = self._waiting.alive(flight.members)
            parts, failures = split(result, flight.members, alive, batched=flight.spec.max_batch_size > 0)
        except Exception as error:
            log.exception("answer could not be split batch=%d model=%s", result.batch_id, flight.spec.name)
            return BatchResult(result.execution_ns, failure=f"the answer could not be split: {error}")
        self._waiting.keep(parts, now)
        return BatchResult(result.execution_ns, member_failures=failures)

    def _started(self, now: int, flight: Flight) -> None:
        flight.started = True
        self._feed(self._machine.on_started, flight.plan.batch_id)
        waits = self._waiting.begin(flight.members, now)
        self._watch(lambda observer: observer.batch_started(now, flight.spec, flight.plan, waits))

    def _done(self, now: int, flight: Flight, outcome: BatchResult) -> None:
        if not flight.started and outcome.execution_ns:
            self._started(now, flight)
        self._feed(self._machine.on_done, flight.plan.batch_id, outcome)
        failed = outcome.failure is not None
        spec, plan = flight.spec, flight.plan
        self._watch(lambda observer: observer.batch_ended(now, spec, plan, outcome.execution_ns, failed=failed))

    def _end(self, now: int, ending: Ending) -> None:
        work, latency_ns = self._waiting.end(now, ending)
        outcome = ending.outcome
        self._watch(lambda observer: observer.request_ended(work.spec, outcome, work.weight, latency_ns))
        if outcome not in ANSWERED:
            self._take_back(ending.request_id)

    def _take_back(self, request_id: int) -> None:
        """Withdraw the staged batch of a request that ended early, when nobody else is in it: it would run for nobody (B006)."""
        for batch_id, flight in self._flights.items():
            if request_id in flight.members and not flight.started:
                if not any(member in self._waiting for member in flight.members):
                    self._executor.withdraw(batch_id)
                return

    # -- guards -------------------------------------------------------------------------------------------------------------

    def _feed(self, event: Callable[..., None], *arguments: Any) -> None:
        """An event to the machine. One that raises has lost track of its requests: no decision of it can be trusted."""
        if self._refusal is not None:
            return
        try:
            event(self._clock(), *arguments)
        except Exception as error:  # noqa: BLE001
            self._break(error)

    def _watch(self, call: Callable[[Observer], None]) -> None:
        """Tell the observer; a fault of the bookkeeping must not end a request (B004)."""
        try:
            call(self._observer)
        except Exception:
            log.exception("the batcher's observer failed")

    def _break(self, error: BaseException) -> None:
        if self._refusal is not None:
            return
        log.critical("the pod machine failed, the server ends error=%r", error, exc_info=error)
        self._end_all(BROKEN, "the server has failed and is about to restart")
        self._on_broken(error)

    def _end_all(self, reason: str, message: str) -> None:
        self._refusal = (reason, message)
        self._arm(0, None)
        now = self._clock()
        for request_id in self._waiting:
            self._end(
                now,
                Ending(request_id, Outcome.UNAVAILABLE, reason, retry_after_ns=RETRY_MS * 1_000_000, message=message),
            )
