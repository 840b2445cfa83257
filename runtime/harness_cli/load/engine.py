"""Sends the requests. ``run_load`` is the library function behind ``harness load``."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from harness_sim.workloads import choose

from harness_cli.errors import CliError
from harness_cli.load.grpc.client import Client
from harness_cli.load.grpc.converters import request_body, request_tail
from harness_cli.load.inputs import check_samples, random_samples, read_samples
from harness_cli.load.pacer import make_pacer
from harness_cli.load.recorder import Recorder
from harness_cli.load.report import LoadReport

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from harness_cli.load.config import LoadConfig, Sample, Signature

LEAD_NS = 100_000_000
"""Pause before the first request, so that what the start-up left to do does not delay it."""
SAFETY_S = 60.0
"""gRPC deadline of requests without one: a server that never answers must not hold the test for ever."""
PROGRESS_S = 0.25
WEIGHT_CYCLE = 1 << 16
"""Weights are drawn once for this many requests and then repeat."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A moment of a running test."""

    elapsed_s: float
    planned_s: float
    planned_requests: int | None
    sent: int
    ended: int
    on_time: int


def run_load(config: LoadConfig, progress: Callable[[Progress], None] | None = None) -> LoadReport:
    """Run a load test to its end and report. ``progress`` is called a few times a second, on this thread.

    Interrupt (SIGINT, main thread only) ends the sending early; the report then says ``interrupted``.

    Raises:
        CliError: the servers cannot be reached, do not serve the model, or the inputs contradict its signature.
        ValueError: more arrivals than fit.
    """
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(load(config, progress))


async def load(config: LoadConfig, progress: Callable[[Progress], None] | None = None) -> LoadReport:
    """Like :func:`run_load`, inside a running event loop (which the test then shares: it should have little else to do)."""
    client = Client(config.urls, config.connections, config.message_bytes_max)
    try:
        await client.reach()
        known = [await client.signature(url, config.model, config.version) for url in config.urls]
        if any(other.inputs != known[0].inputs for other in known[1:]):
            raise CliError(f"the servers {', '.join(config.urls)} disagree on the inputs of model {config.model!r}")
        samples = _samples(config, known[0])
        await client.connect()
        return await _Run(config, known[0], samples, client).run(progress)
    finally:
        await client.close()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _samples(config: LoadConfig, known: Signature) -> Sequence[Sample]:
    if config.samples is not None:
        check_samples(config.samples, known)
        return config.samples
    rng = np.random.default_rng((config.seed, 1))
    if config.input_path is not None:
        return read_samples(config.input_path, known, config.rows, rng)
    return random_samples(known, config.rows, config.dims, rng)


class _Run:
    """One test under way."""

    def __init__(self, config: LoadConfig, known: Signature, samples: Sequence[Sample], client: Client) -> None:
        self._config = config
        self._known = known
        self._client = client
        self._rows = [_rows(sample, known) for sample in samples]
        self._bodies = [request_body(config.model, config.version, known, sample) for sample in samples]
        self._weights = self._drawn_weights()
        self._tails = self._drawn_tails()
        self._timeout_s = SAFETY_S if config.deadline_ns is None else config.deadline_ns / 1e9
        self._recorder = Recorder(config.deadline_ns)
        self._answers: list[bytes | None] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._due = asyncio.Event()
        self._interrupted = False
        self._failure: BaseException | None = None
        self._base_ns = 0

    def _drawn_weights(self) -> list[float]:
        if not self._config.weights:
            return [1.0]
        rng = np.random.default_rng((self._config.seed, 2))
        drawn: list[float] = choose(dict(self._config.weights), WEIGHT_CYCLE, rng).tolist()
        return drawn

    def _drawn_tails(self) -> dict[float, bytes]:
        config = self._config
        timeout_us = None if config.deadline_ns is None else config.deadline_ns // 1000
        if not config.weights:
            return {1.0: request_tail(timeout_us, None, config.priority)}
        return {weight: request_tail(timeout_us, weight, config.priority) for weight in config.weights}

    async def run(self, progress: Callable[[Progress], None] | None) -> LoadReport:
        config = self._config
        arrivals: list[int] = []
        if config.schedule is not None:
            rng = np.random.default_rng((config.seed, 0))
            arrivals = config.workload.times_ns(config.schedule, rng).tolist()
        self._base_ns = time.monotonic_ns() + LEAD_NS
        planned = len(arrivals) if config.schedule is not None else None
        with _quiet_gc(), self._interruptible():
            reporter = asyncio.create_task(self._progress(progress, planned)) if progress is not None else None
            if config.schedule is not None:
                await self._open_loop(arrivals)
            else:
                await self._closed_loop()
            while self._tasks:
                await asyncio.wait(self._tasks)
            if self._failure is not None:
                raise self._failure
            elapsed_s = (time.monotonic_ns() - self._base_ns) / 1e9
            if reporter is not None:
                reporter.cancel()
        sent = self._recorder.sent
        return LoadReport(
            config=config,
            signature=self._known,
            records=self._recorder.records(),
            samples=len(self._bodies),
            rows=sum(self._rows) * (sent // len(self._rows)) + sum(self._rows[: sent % len(self._rows)]),
            elapsed_s=elapsed_s,
            interrupted=self._interrupted,
            answers=self._answers,
            messages=self._recorder.messages,
        )

    async def _open_loop(self, arrivals: list[int]) -> None:
        """Each request at its time, whatever became of the others."""
        due = self._due
        pacer = make_pacer(asyncio.get_running_loop(), due.set)
        recorder, base_ns = self._recorder, self._base_ns
        try:
            for at_ns in arrivals:
                while time.monotonic_ns() - base_ns < at_ns and not self._interrupted:
                    due.clear()
                    pacer.arm(base_ns + at_ns)
                    await due.wait()
                while recorder.in_flight >= self._config.in_flight_max and not self._interrupted:
                    self._room.clear()
                    await self._room.wait()
                if self._interrupted:
                    break
                self._spawn(self._request(self._begin(at_ns)))
            await self._pause_until_end(pacer.arm)
        finally:
            pacer.close()

    async def _pause_until_end(self, arm: Callable[[int], None]) -> None:
        """A schedule that ends in silence still lasts its time."""
        end_ns = self._base_ns + round(self._config.planned_s * 1e9)
        while time.monotonic_ns() < end_ns and not self._interrupted:
            self._due.clear()
            arm(end_ns)
            await self._due.wait()

    async def _closed_loop(self) -> None:
        """Each client sends again when it was answered."""
        await asyncio.sleep(LEAD_NS / 1e9)
        end_ns = round(self._config.planned_s * 1e9)

        async def client() -> None:
            while not self._interrupted and (now := time.monotonic_ns() - self._base_ns) < end_ns:
                await self._request(self._begin(now))

        for _ in range(self._config.closed):
            self._spawn(client())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = self._failure or task.exception()
            self._stop_sending()

    def _stop_sending(self) -> None:
        """End the sending now, whatever it waits for."""
        self._interrupted = True
        self._due.set()
        self._room.set()

    def _begin(self, intended_ns: int) -> int:
        weight = self._weights[self._recorder.sent % len(self._weights)]
        if self._config.keep_answers:
            self._answers.append(None)
        return self._recorder.start(intended_ns, time.monotonic_ns() - self._base_ns, weight)

    async def _request(self, index: int) -> None:
        body = self._bodies[index % len(self._bodies)]
        tail = self._tails[self._weights[index % len(self._weights)]]
        outcome, answer, message = await self._client.infer(index, body + tail, self._timeout_s)
        done_ns = time.monotonic_ns() - self._base_ns
        self._recorder.end(index, done_ns, outcome, answered=answer is not None, message=message)
        if answer is not None and self._config.keep_answers:
            self._answers[index] = answer
        self._room.set()

    async def _progress(self, hook: Callable[[Progress], None], planned: int | None) -> None:
        while True:
            await asyncio.sleep(PROGRESS_S)
            elapsed_s = max(0.0, (time.monotonic_ns() - self._base_ns) / 1e9)
            recorder = self._recorder
            hook(Progress(elapsed_s, self._config.planned_s, planned, recorder.sent, recorder.ended, recorder.on_time))

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """The first SIGINT stops the sending; a second one meets the usual handler."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()

        def stop() -> None:
            self._stop_sending()
            loop.remove_signal_handler(signal.SIGINT)

        loop.add_signal_handler(signal.SIGINT, stop)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)


def _rows(sample: Sample, known: Signature) -> int:
    return len(next(iter(sample.values()))) if known.batched else 1


@contextlib.contextmanager
def _quiet_gc() -> Iterator[None]:
    """No collector pauses while the clock runs: what a load test allocates is freed by reference counts."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
