"""One runtime pod: puts the parts together, keeps them running, takes them down in order.

Life: listening (not ready) → models load → ready → drain at SIGTERM → stopped. Exit codes: 0 drained, 1 failed, 2 user's mistake.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from harness_core.pod.machine import PodMachine

from harness_runtime.batcher import Batcher
from harness_runtime.dataplane import DataPlane
from harness_runtime.edge.grpc.server import GrpcEdge
from harness_runtime.edge.port import EdgeSettings
from harness_runtime.executor.process import ProcessExecutor
from harness_runtime.executor.settings import ExecutorSettings
from harness_runtime.http.app import Pages, build_app
from harness_runtime.http.server import HttpServer
from harness_runtime.loading import Loader
from harness_runtime.metrics import PodMetrics, PodNow, models_now
from harness_runtime.model import ModelState
from harness_runtime.ports import LoadError
from harness_runtime.profiler import warm_up
from harness_runtime.registry import Registry
from harness_runtime.state import describe_model, jsonable

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness_core.profile import LatencyProfile

    from harness_runtime.model import ModelEntry, ModelSpec
    from harness_runtime.settings import RuntimeSettings

log = logging.getLogger(__name__)

NS_PER_S = 1_000_000_000
LINGER_S = 0.25
"""From the last answer to the end of listening. A call that arrives while gRPC shuts down ends as CANCELLED, which no client repeats;
those under way when the end was announced still arrive in this time and are told UNAVAILABLE."""
ANSWERS_GRACE_S = 2.0
"""From the last answer to the end of its connection: what is in socket buffers still goes out."""
UVLOOP_GRAIN_NS = 1_000_000
DRAINED, FAILED = 0, 1


class Server:
    """The assembled pod. ``announce(event, **fields)`` tells whoever started us of its life."""

    def __init__(self, settings: RuntimeSettings, announce: Callable[..., None]) -> None:
        self._settings = settings
        self._announce = announce
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._broken = False
        self._draining = False
        self._stopping = False
        self._registry = Registry()
        for entry in settings.models:
            self._registry.add(entry)
        self._metrics = PodMetrics(
            {"service": settings.service_name, "group": settings.group},
            [entry.spec for entry in settings.models],
            time.monotonic_ns(),
            version=package_version(),
            profile_of=self._profile_of,
        )
        executor_settings = ExecutorSettings(
            device=settings.device, threads=settings.threads, allow_python_models=settings.allow_python_models
        )
        self._executor = ProcessExecutor(executor_settings, warm_up)
        self._batcher = Batcher(
            PodMachine(replace(settings.pod, timer_grain_ns=_timer_grain_ns())),
            self._executor,
            time.monotonic_ns,
            observer=self._metrics,
            on_executor=self._executor_changed,
            on_broken=self._batcher_broke,
            timer_grain_ns=_timer_grain_ns(),
        )
        self._plane = DataPlane(
            self._registry,
            self._batcher,
            time.monotonic_ns,
            max_hold_ns=settings.max_hold_ns,
            version=package_version(),
            healthy=self._healthy,
            on_refused=self._metrics.refused,
            on_unsent=self._metrics.unsent,
            slot_bytes=executor_settings.slot_bytes_max,
        )
        self._edge = GrpcEdge(
            self._plane,
            EdgeSettings(settings.bind, settings.grpc_port, settings.max_message_bytes),
        )
        pages = Pages(self._metrics.exposition, self._live, self._not_ready, self._state)
        self._http = HttpServer(build_app(pages), settings.bind, settings.metrics_port)
        self._loader = Loader(self._registry, self._executor, self._batcher, self._model_ready, self._model_failed)
        self._metrics.watch(self._now)

    async def run(self) -> int:
        """Serve until a signal; the exit code.

        Raises:
            BindError: an address cannot be bound.
        """
        with self._signals():
            loading: asyncio.Task[None] | None = None
            try:
                await self._listen()
                loading = asyncio.create_task(self._load(), name="loading")
                await self._stop.wait()
                if not self._broken:
                    await self._drain()
            finally:
                if loading is not None:
                    loading.cancel()
                    await asyncio.gather(loading, return_exceptions=True)
                await self._take_down()
        self._announce("stopped")
        return FAILED if self._broken else DRAINED

    # -- life ---------------------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        metrics_port = await self._http.start()
        grpc_port = await self._edge.start()
        bind = self._settings.bind
        for notice in self._settings.notices:
            log.warning("%s", notice)
        log.info("%s (all settings: /state)", self._settings.summary())
        self._announce(
            "listening", grpc=_address(bind, grpc_port), metrics=_address(bind, metrics_port), pid=os.getpid()
        )

    async def _load(self) -> None:
        try:
            await self._executor.start(self._batcher)
        except LoadError as error:
            self._fail(f"the executor does not start: {error}")
            return
        except Exception as error:
            log.exception("the executor does not start")
            self._fail(f"the executor does not start: {error}")
            return
        self._batcher.open()
        try:
            await self._loader.load_all()
        except Exception as error:
            log.exception("loading failed")
            self._fail(f"loading failed: {error}")
            return
        if self._registry.ready():
            self._announce_ready()

    async def _drain(self) -> None:
        """Take nothing new, let what is queued and running end, for at most the drain's grace or until a second signal."""
        self._draining = True
        self._announce("draining")
        await self._edge.drain()
        self._plane.drain()
        self._batcher.drain()
        empty = asyncio.create_task(self._batcher.wait_empty())
        hurry = asyncio.create_task(self._hurry.wait())
        await asyncio.wait(
            {empty, hurry}, timeout=self._settings.drain_ns / NS_PER_S, return_when=asyncio.FIRST_COMPLETED
        )
        for task in (empty, hurry):
            task.cancel()

    async def _take_down(self) -> None:
        self._stopping = True
        self._batcher.close()
        if not self._hurry.is_set():
            await asyncio.sleep(LINGER_S)
        await self._edge.stop(0.0 if self._hurry.is_set() else ANSWERS_GRACE_S)
        await self._http.stop()
        await self._executor.stop()

    @contextlib.contextmanager
    def _signals(self) -> Any:
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGTERM, signal.SIGINT)
        for number in numbers:
            loop.add_signal_handler(number, self._signalled)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _signalled(self) -> None:
        if self._stop.is_set():
            self._hurry.set()
        self._stop.set()

    def _fail(self, message: str) -> None:
        log.error("%s", message)
        self._announce("failed", reason=message)
        self._broken = True
        self._stop.set()

    # -- what the parts report ----------------------------------------------------------------------------------------------

    def _batcher_broke(self, error: BaseException) -> None:
        self._fail(f"the batcher failed: {error!r}")

    def _executor_changed(self, up: bool, reason: str) -> None:
        if up:
            self._loader.executor_restored()
            self._announce("executor_restored")
            if self._registry.ready() and not self._draining:
                self._announce_ready()
        else:
            self._loader.executor_lost(reason)
            self._announce("executor_lost", reason=reason)

    def _model_ready(self, entry: ModelEntry) -> None:
        self._metrics.profiles_changed()
        self._announce("model_ready", model=entry.spec.name, version=entry.spec.version)

    def _model_failed(self, entry: ModelEntry) -> None:
        log.error("model cannot be served model=%s version=%s: %s", entry.spec.name, entry.spec.version, entry.reason)
        self._announce("model_failed", model=entry.spec.name, version=entry.spec.version, reason=entry.reason)

    def _announce_ready(self) -> None:
        models = [f"{entry.spec.name}/{entry.spec.version}" for entry in self._registry.entries()]
        self._announce("ready", models=models, device=self._executor.device)

    def _profile_of(self, spec: ModelSpec, bucket: str) -> LatencyProfile | None:
        limits = self._registry.lookup(spec.name, spec.version).limits
        return limits.profiles.get(bucket, limits.default_profile)

    # -- what the pages and the metrics show -----------------------------------------------------------------------------------

    def _live(self) -> bool:
        """A server that stops as it was told to is not dead, though its batcher takes nothing any more."""
        return self._batcher.alive() or (self._stopping and not self._broken)

    def _healthy(self) -> bool:
        return self._batcher.alive() and self._executor.up

    def _not_ready(self) -> str:
        if self._plane.server_ready():
            return ""
        if self._draining:
            return "draining"
        if not self._batcher.alive():
            return "the batcher is dead"
        away = [
            f"model {entry.spec.name} version {entry.spec.version} is {entry.state.value}"
            + (f": {entry.reason}" if entry.reason else "")
            for entry in self._registry.entries()
            if entry.state is not ModelState.READY
        ]
        return "; ".join(away) or "the executor is down"

    def _now(self) -> PodNow:
        now_ns = time.monotonic_ns()
        snapshot = self._batcher.snapshot()
        return PodNow(
            models=models_now(self._registry.entries(), snapshot, now_ns),
            busy=self._metrics.busy.busy(now_ns),
            utilisation=self._metrics.busy.utilisation(now_ns),
            executor_up=self._executor.up,
            ready=self._plane.server_ready(),
            dispatch_delay_ns=self._batcher.dispatch_delay_ns,
        )

    def _state(self) -> dict[str, Any]:
        executor = self._executor
        return {
            "service": self._settings.service_name,
            "version": package_version(),
            "pid": os.getpid(),
            "ready": self._plane.server_ready(),
            "not_ready_reason": self._not_ready(),
            "draining": self._draining,
            "settings": self._settings.effective(),
            "models": [describe_model(entry) for entry in self._registry.entries()],
            "queue": jsonable(self._batcher.snapshot()),
            "dispatch_delay_ns": self._batcher.dispatch_delay_ns,
            "executor": {
                "up": executor.up,
                "pid": executor.pid,
                "device": executor.device,
                "incarnation": executor.restarts + 1,
                "restart_expected_ns": executor.restart_expected_ns(),
                "failed_models": dict(executor.failed_models),
            },
        }


async def serve(settings: RuntimeSettings, announce: Callable[..., None]) -> int:
    """Serve until a signal; the exit code. ``announce(event, **fields)`` hears of every life event.

    Raises:
        BindError: an address cannot be bound.
    """
    return await Server(settings, announce).run()


def package_version() -> str:
    """Version of this distribution."""
    return version("harness-serving")


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _timer_grain_ns() -> int:
    """Timers of uvloop are whole milliseconds."""
    return UVLOOP_GRAIN_NS if type(asyncio.get_running_loop()).__module__.startswith("uvloop") else 1
