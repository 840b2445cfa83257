"""The process executor: adapter of ``ports.Executor`` over one child process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from harness_runtime.executor import wire
from harness_runtime.executor.capacity import check_fits
from harness_runtime.executor.flights import Flight, Flights, read_result
from harness_runtime.executor.layout import write_inputs
from harness_runtime.executor.link import ChildLink
from harness_runtime.executor.memory import WITHDRAWN, Side, SlotMemory
from harness_runtime.executor.watchdog import Watchdog
from harness_runtime.ports import JobResult, LoadError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from harness_runtime.executor.settings import ExecutorSettings
    from harness_runtime.model import ModelSpec
    from harness_runtime.ports import ExecutorListener, Job, Runs

_KILLED_S = 10.0

log = logging.getLogger(__name__)


class ExecutorLostError(RuntimeError):
    """The process ended while a batch of :meth:`ProcessExecutor.run` was with it."""


class ProcessExecutor:
    """Runs batches in a child process; starts it again, with all models, when it ends.

    Life: ``start`` → up ⇄ down (``on_lost`` … ``on_restored``) → ``stop``. All methods belong to the event loop's thread. A load
    occupies the child like a batch does: batches of other models wait behind it. ``warm_up`` runs each model after a restart, before
    ``on_restored``: the first load is measured by the caller, which warms it up.
    """

    def __init__(
        self, settings: ExecutorSettings, warm_up: Callable[[Runs, ModelSpec], Awaitable[None]] | None = None
    ) -> None:
        self.slots = settings.slots
        self.settings = settings
        self.failed_models: dict[str, str] = {}
        """Digest → reason, for models that did not come back after the last restart. Look at it in ``on_restored``."""
        self.device = ""
        """Where the last loaded model runs, for people."""
        self.restarts = 0
        self._listener: ExecutorListener | None = None
        self._memory: SlotMemory | None = None
        self._link: ChildLink | None = None
        self._flights = Flights(settings.slots)
        self._watchdog = Watchdog(settings, self._on_late)
        self._warm_up = warm_up
        self._specs: dict[str, ModelSpec] = {}
        self._replies: dict[str, asyncio.Future[list[Any]]] = {}
        self._up = asyncio.Event()
        self._loading = asyncio.Lock()
        self._measuring = asyncio.Lock()
        self._restart: asyncio.Task[None] | None = None
        self._stopped = False
        self._up_since_ns = 0
        self._failures = 0
        self._start_ns = 0
        self._load_ns: dict[str, int] = {}

    @property
    def pid(self) -> int | None:
        """Process id of the child; None while there is none."""
        return self._link.pid if self._link is not None else None

    @property
    def up(self) -> bool:
        """True while batches can be submitted."""
        return self._up.is_set() and not self._stopped

    async def start(self, listener: ExecutorListener) -> None:
        """Start the process.

        Raises:
            LoadError: it gave no sign of life in time.
        """
        self._listener = listener
        # One slot more than the batcher uses: measurements run beside traffic.
        self._memory = SlotMemory.create(self.slots + 1, self.settings.slot_bytes_max)
        try:
            await self._start_child()
            self._set_up()
        except LoadError:
            await self.stop()
            raise

    async def load(self, spec: ModelSpec) -> None:
        """Load a model, or load it again. Waits while the process is being restarted.

        Raises:
            LoadError: why it cannot be used. A model that ends or hangs the process costs a restart; the others come back.
        """
        check_fits(spec, self.settings.slot_bytes_max)
        async with self._loading:
            await self._wait_up()
            await self._load_now(spec)
            self._specs[spec.digest] = spec
            self.failed_models.pop(spec.digest, None)

    async def unload(self, digest: str) -> None:
        """Forget a model and return its memory. Batches of it that were already submitted still run."""
        async with self._loading:
            self.failed_models.pop(digest, None)
            self._load_ns.pop(digest, None)
            if self._specs.pop(digest, None) is not None and self.up:
                # A process that ends meanwhile has unloaded it too.
                with contextlib.suppress(LoadError):
                    await self._ask(["unload", digest], digest, self.settings.load_timeout_ns, "unloading a model")

    def submit(self, job: Job) -> None:
        """Hand over a batch; its answer goes to the listener.

        Raises:
            RuntimeError: no free slot, or the process is down.
            ValueError: unknown model, larger than a slot, or parts that do not fit their input.
        """
        if not self.up:
            raise RuntimeError("the executor process is down")
        slot = self._flights.free_slot()
        if slot is None:
            raise RuntimeError(f"all {self.slots} slots are taken")
        self._submit(job, slot, None)

    def withdraw(self, batch_id: int) -> None:
        """Take a batch back unless it has started; its result says which. An unknown batch is one that ended meanwhile."""
        flight = self._flights.of_batch(batch_id)
        if flight is not None and self._memory is not None:
            self._memory.set_generation(flight.slot, Side.INPUTS, WITHDRAWN)

    async def run(self, job: Job) -> JobResult:
        """Run a batch outside the listener, in a slot of its own; for warm-up and measurement. The caller releases the result.

        Raises:
            ExecutorLostError: the process ended meanwhile.
            ValueError: as ``submit``.
        """
        async with self._measuring:
            await self._wait_up()
            return await self._run_now(job)

    async def _run_now(self, job: Job) -> JobResult:
        if self._link is None or not self._link.alive:
            raise ExecutorLostError("the executor process is down")
        answer: asyncio.Future[JobResult] = asyncio.get_running_loop().create_future()
        self._submit(job, self._flights.private_slot, answer)
        return await answer

    def restart_expected_ns(self) -> int:
        """Start and loads as last measured, and the wait before them that failures in a row have earned."""
        return self._start_ns + sum(self._load_ns.values()) + self._backoff_ns()

    async def stop(self) -> None:
        """End the process; running work is given up, nobody is told. Returns within seconds."""
        self._stopped = True
        self._up.set()  # who waits for it learns that it is stopped
        self._watchdog.stop()
        if self._restart is not None:
            self._restart.cancel()
            await asyncio.gather(self._restart, return_exceptions=True)
        self._fail_replies("the executor is stopping")
        busy = bool(self._flights)
        self._end_flights("the executor is stopping")
        if self._link is not None:
            await self._end_child(self._link, busy=busy)
            self._link = None
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    async def _end_child(self, link: ChildLink, *, busy: bool) -> None:
        if busy:
            link.kill("stopping")
        else:
            link.send(["stop"])
        try:
            await asyncio.wait_for(link.wait(), self.settings.stop_grace_ns / 1e9)
        except TimeoutError:
            link.kill("did not stop when asked")
            with contextlib.suppress(TimeoutError):  # a driver may hold a killed process for longer than anybody waits
                await asyncio.wait_for(link.wait(), _KILLED_S)
        link.close()

    # -- starting, loading ------------------------------------------------------------------------------------------------

    async def _start_child(self) -> None:
        assert self._memory is not None  # noqa: S101 - start() made it
        settings = self.settings
        config = {
            "slots": self._memory.slots,
            "region_bytes": self._memory.region_bytes,
            "device": settings.device,
            "threads": settings.threads,
            "allow_python_models": settings.allow_python_models,
            "log_level": log.getEffectiveLevel(),
        }
        began = time.monotonic_ns()
        self._link = ChildLink(self._memory, config, on_message=self._on_message, on_exit=self._on_exit)
        await self._ask(None, "ready", settings.start_timeout_ns, "starting the executor process")
        self._start_ns = time.monotonic_ns() - began

    async def _load_now(self, spec: ModelSpec) -> None:
        began = time.monotonic_ns()
        what = f"loading model '{spec.name}' version {spec.version}"
        message = ["load", wire.spec_to_json(spec)]
        device, reason = await self._ask(message, spec.digest, self.settings.load_timeout_ns, what)
        if reason is not None:
            raise LoadError(reason)
        self.device = device
        self._load_ns[spec.digest] = time.monotonic_ns() - began

    async def _ask(self, message: list[Any] | None, key: str, timeout_ns: int, what: str) -> list[Any]:
        """Send and wait for the reply under ``key``; a child that does not reply in time is killed."""
        link = self._link
        if link is None or not link.alive:
            await self._gone(link)
            raise LoadError(f"the executor process ended before {what}")
        reply: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._replies[key] = reply
        try:
            if message is not None:
                link.send(message)
            return await asyncio.wait_for(reply, timeout_ns / 1e9)
        except TimeoutError:
            late = f"{what} took longer than {timeout_ns / 1e9:.0f} s"
            link.kill(late)
            await self._gone(link)
            raise LoadError(late) from None
        except ExecutorLostError as error:
            raise LoadError(f"{error} while {what}") from None
        except ValueError as error:
            raise LoadError(f"{what}: {error}") from None
        finally:
            self._replies.pop(key, None)
            self._watch_head()

    async def _gone(self, link: ChildLink | None) -> None:
        """Wait for the end of a child that was killed: who is told of it must find the executor down, not still up."""
        if link is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(link.wait(), _KILLED_S)

    async def _wait_up(self) -> None:
        try:
            await asyncio.wait_for(self._up.wait(), self.settings.load_timeout_ns / 1e9)
        except TimeoutError:
            raise LoadError("the executor process is down and does not come back") from None
        if self._stopped:
            raise LoadError("the executor is stopped")

    # -- messages of the child --------------------------------------------------------------------------------------------

    def _on_message(self, message: list[Any]) -> None:
        kind, *rest = message
        try:
            if kind == "done":
                self._on_done(*rest)
            elif kind == "started":
                self._on_started(*rest)
            elif kind == "withdrawn":
                self._on_withdrawn(*rest)
            elif kind == "ready":
                self._reply("ready", rest)
            elif kind == "failing" and self._link is not None:
                self._link.kill(rest[0])
            elif kind in {"loaded", "unloaded"}:
                self._reply(rest[0], rest[1:])
        except (ValueError, TypeError, LookupError) as error:
            if self._link is not None:
                self._link.kill(f"the executor process sent a '{kind}' that makes no sense ({error})")

    def _reply(self, key: str, values: list[Any]) -> None:
        reply = self._replies.get(key)
        if reply is not None and not reply.done():
            reply.set_result(values)
        elif values and self._link is not None and key not in self._specs:
            # Nobody waits for this load any more.
            self._link.send(["unload", key])

    def _on_started(self, generation: int) -> None:
        flight = self._flights.get(generation)
        if flight is None:
            raise ValueError(f"no batch of generation {generation}")
        self._watchdog.started(generation, flight.job.expected_ns)
        if flight.answer is None:
            self._tell(lambda listener: listener.on_started(flight.job.batch_id))

    def _on_done(
        self, generation: int, execution_ns: int, placed: list[Any], reason: str | None, out_of_memory: bool
    ) -> None:
        flight = self._flights.get(generation)
        if flight is None or self._memory is None:
            raise ValueError(f"no batch of generation {generation}")
        if reason is not None:
            self._flights.remove(generation)
            result = JobResult(flight.job.batch_id, execution_ns, error=reason, out_of_memory=out_of_memory)
        else:
            result = read_result(self._memory, flight, execution_ns, placed, lambda: None)
            result.release = self._flights.hold(generation)
        self._watchdog.ended()
        self._watch_head()
        self._deliver(flight, result)

    def _on_withdrawn(self, generation: int) -> None:
        flight = self._flights.get(generation)
        if flight is None:
            raise ValueError(f"no batch of generation {generation}")
        self._flights.remove(generation)
        self._watchdog.ended()
        self._watch_head()
        self._deliver(flight, JobResult(flight.job.batch_id, 0, withdrawn=True))

    def _deliver(self, flight: Flight, result: JobResult) -> None:
        if flight.answer is not None:
            if flight.answer.done():
                result.release()
            else:
                flight.answer.set_result(result)
        elif not self._tell(lambda listener: listener.on_result(result)):
            # The slot must come back whatever happens: a lost slot would stop the accelerator for good (B004).
            result.release()

    def _tell(self, call: Callable[[ExecutorListener], None]) -> bool:
        """Call the listener; its faults are its own and must not end the reading of messages. False: it failed."""
        if self._listener is None:
            return False
        try:
            call(self._listener)
        except Exception:
            log.exception("the executor's listener failed")
            return False
        return True

    # -- jobs -------------------------------------------------------------------------------------------------------------

    def _submit(self, job: Job, slot: int, answer: asyncio.Future[JobResult] | None) -> None:
        assert self._link is not None  # noqa: S101 - there is a process
        assert self._memory is not None  # noqa: S101 - and its memory
        spec = self._specs.get(job.digest)
        if spec is None:
            raise ValueError(f"no model of digest {job.digest} is loaded")
        placed = write_inputs(self._memory.region(slot, Side.INPUTS), job.inputs)
        generation = self._flights.next_generation()
        self._memory.set_generation(slot, Side.INPUTS, generation)
        metas = [each.to_json() for each in placed]
        self._link.send(["job", generation, slot, job.digest, job.execution_size, metas])
        self._flights.add(Flight(job, slot, generation, spec.max_batch_size > 0, answer))
        self._watch_head()

    def _watch_head(self) -> None:
        """Watch the first batch from now, unless one is watched already or a load, which has its own limit, is before it."""
        head = self._flights.head()
        if head is not None and not self._replies and not self._watchdog.watching:
            self._watchdog.started(head.generation, head.job.expected_ns)

    def _on_late(self, generation: int, allowed_s: float) -> None:
        flight = self._flights.get(generation)
        if self._link is not None and flight is not None:
            self._link.kill(f"watchdog: batch {flight.job.batch_id} ran for more than {allowed_s:.1f} s")

    # -- end and restart --------------------------------------------------------------------------------------------------

    def _on_exit(self, reason: str) -> None:
        self._fail_replies(reason)
        if not self.up:
            # A start or restart is under way and learns of it by its reply, or by the end of its warm-up run.
            self._watchdog.stop()
            self._end_flights(reason)
            return
        self._up.clear()
        self._watchdog.stop()
        lasted_ns = time.monotonic_ns() - self._up_since_ns
        self._failures = 1 if lasted_ns >= self.settings.steady_ns else self._failures + 1
        self._end_flights(reason)
        log.error("executor lost: %s", reason)
        self._restart = asyncio.get_running_loop().create_task(self._bring_back(), name="executor-restart")
        self._tell(lambda listener: listener.on_lost(reason))

    def _end_flights(self, reason: str) -> None:
        for flight in self._flights.drop_all():
            if flight.answer is not None and not flight.answer.done():
                flight.answer.set_exception(ExecutorLostError(reason))

    def _fail_replies(self, reason: str) -> None:
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(ExecutorLostError(reason))

    def _backoff_ns(self) -> int:
        if self._failures <= 1:
            return 0
        doubled = self.settings.restart_backoff_ns << min(self._failures - 2, 32)
        return min(doubled, self.settings.restart_backoff_max_ns)

    async def _bring_back(self) -> None:
        """Start the process and load every model again, for as long as it takes."""
        killers: Counter[str] = Counter()
        while True:
            assert self._link is not None  # noqa: S101 - it is the one that was lost, or the one of the last try
            self._link.kill("the restart was given up")
            await self._link.wait()
            self._link.close()
            await asyncio.sleep(self._backoff_ns() / 1e9)
            self.restarts += 1
            try:
                await self._start_child()
                await self._reload(killers)
                self._set_up()
                break
            except (LoadError, OSError) as error:
                self._failures += 1
                log.warning("executor restart failed, next try in %.1f s: %s", self._backoff_ns() / 1e9, error)
            except Exception:
                # Whatever it is: without another try nobody would ever hear of this executor again.
                self._failures += 1
                log.exception("executor restart failed, next try in %.1f s", self._backoff_ns() / 1e9)
        log.info("executor restored, process %s", self.pid)
        self._tell(lambda listener: listener.on_restored())

    async def _reload(self, killers: Counter[str]) -> None:
        """Load all models and warm them up. One that cannot be loaded, or ends the process twice, is left out; the others go on.

        Raises:
            LoadError: the process ended, or was killed since it hung.
        """
        assert self._link is not None  # noqa: S101 - just started
        for digest, spec in list(self._specs.items()):
            if killers[digest] > 1:
                continue
            try:
                await self._load_now(spec)
                await self._warm(spec)
                self.failed_models.pop(digest, None)
            except LoadError as error:
                alive = self._link.alive
                killers[digest] += not alive
                if not alive and killers[digest] == 1:
                    raise
                log.error("model %s version %s is lost: %s", spec.name, spec.version, error)  # noqa: TRY400 - no traceback of ours
                self.failed_models[digest] = str(error)
                if not alive:
                    raise

    async def _warm(self, spec: ModelSpec) -> None:
        """First runs are slow; callers shall not pay for them. A run that fails is for the log, unless the process went with it."""
        if self._warm_up is None:
            return
        assert self._link is not None  # noqa: S101 - just started
        began = time.monotonic_ns()
        try:
            await self._warm_up(_Reloaded(self), spec)
        except LoadError as error:
            if not self._link.alive:
                await self._gone(self._link)
                raise
            log.warning("after the restart model %s version %s: %s", spec.name, spec.version, error)
        self._load_ns[spec.digest] += time.monotonic_ns() - began

    def _set_up(self) -> None:
        if self._link is None or not self._link.alive:
            raise LoadError("the executor process ended right after its start")
        self._up_since_ns = time.monotonic_ns()
        self._up.set()


class _Reloaded:
    """Runs batches in a process that is not up yet."""

    def __init__(self, executor: ProcessExecutor) -> None:
        self._executor = executor

    async def run(self, job: Job) -> JobResult:
        """As :meth:`ProcessExecutor.run`, without waiting for the restart that it belongs to."""
        return await self._executor._run_now(job)  # noqa: SLF001 - a part of it
