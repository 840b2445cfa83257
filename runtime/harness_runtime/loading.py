"""Brings models to READY: load, warm up and measure, tell the batcher, open for requests."""

from __future__ import annotations

import gc
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from harness_runtime.lanes import declared_buckets
from harness_runtime.model import ModelState
from harness_runtime.ports import LoadError
from harness_runtime.profiler import measure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness_core.pod.settings import ModelLimits
    from harness_core.profile import LatencyProfile

    from harness_runtime.batcher import Batcher
    from harness_runtime.model import ModelEntry, ModelSpec
    from harness_runtime.ports import Job, JobResult
    from harness_runtime.registry import Registry

log = logging.getLogger(__name__)

ATTEMPTS = 2
"""Loads and warm-ups of a model. The second is for one that was hit by the loss of the executor, perhaps by another's fault."""


class LoadingExecutor(Protocol):
    """What loading needs of an executor."""

    restarts: int
    failed_models: dict[str, str]

    @property
    def up(self) -> bool:
        """The process runs with its models."""

    async def load(self, spec: ModelSpec) -> None:
        """As ``ports.Executor.load``."""

    async def run(self, job: Job) -> JobResult:
        """A run outside the listener."""

    def restart_expected_ns(self) -> int:
        """As ``ports.Executor.restart_expected_ns``."""


class Loader:
    """Loads the configured models one after the other and follows the executor's losses and returns.

    ``on_ready`` is called when a model begins to answer, ``on_failed`` with its entry when it cannot be used.
    """

    def __init__(
        self,
        registry: Registry,
        executor: LoadingExecutor,
        batcher: Batcher,
        on_ready: Callable[[ModelEntry], None],
        on_failed: Callable[[ModelEntry], None],
    ) -> None:
        self._registry = registry
        self._executor = executor
        self._batcher = batcher
        self._on_ready = on_ready
        self._on_failed = on_failed
        self._served: list[str] = []

    async def load_all(self) -> None:
        """Bring every model to READY or, with its reason, to UNAVAILABLE; one's failure does not hold up the others."""
        for entry in self._registry.entries():
            await self._load(entry)
        # What is alive now stays: the collector need not look at it again at every pass.
        gc.collect()
        gc.freeze()

    def executor_lost(self, reason: str) -> None:
        """Every model that was served is unavailable until the executor is back."""
        retry_ms = max(1, self._executor.restart_expected_ns() // 1_000_000)
        why = f"the executor was lost ({reason}) and is being started again"
        for digest in self._served:
            self._registry.set_state(digest, ModelState.UNAVAILABLE, why, retry_after_ms=retry_ms)

    def executor_restored(self) -> None:
        """Models that came back are served again."""
        for digest in self._served:
            reason = self._executor.failed_models.get(digest)
            state = ModelState.READY if reason is None else ModelState.UNAVAILABLE
            self._registry.set_state(digest, state, reason or "")

    async def _load(self, entry: ModelEntry) -> None:
        spec = entry.spec
        began = time.monotonic()
        try:
            profiles = await self._prepare(spec)
        except LoadError as error:
            self._registry.set_state(spec.digest, ModelState.UNAVAILABLE, str(error))
            self._on_failed(entry)
            return
        entry.profiles.update(profiles)
        entry.limits = with_profiles(entry.limits, profiles)
        self._batcher.add_model(entry.limits)
        self._served.append(spec.digest)
        self._registry.set_state(spec.digest, ModelState.READY)
        seconds = time.monotonic() - began
        log.info("model ready model=%s version=%s seconds=%.2f", spec.name, spec.version, seconds)
        self._on_ready(entry)

    async def _prepare(self, spec: ModelSpec) -> dict[str, LatencyProfile]:
        """Load and measure. Raises LoadError."""
        for attempt in range(1, ATTEMPTS + 1):
            restarts = self._executor.restarts
            try:
                await self._executor.load(spec)
                return await measure(self._executor, spec, declared_buckets(spec))
            except LoadError as error:
                lost = not self._executor.up or self._executor.restarts != restarts
                if attempt == ATTEMPTS or not lost:
                    raise
                log.warning("loading again model=%s version=%s error=%s", spec.name, spec.version, error)
        raise AssertionError("not reached")


def with_profiles(limits: ModelLimits, measured: Mapping[str, LatencyProfile]) -> ModelLimits:
    """Limits with what the warm-up measured, by bucket name.

    Profiles given beforehand (LatencyProfile objects) stand above it (design.md §3, Profile). A bucket that nobody knows
    counts as the slowest of those that were measured.
    """
    profiles = {**measured, **limits.profiles}
    slowest = max(profiles.values(), key=lambda profile: profile.latency_ns(limits.max_batch_rows))
    return replace(limits, profiles=profiles, default_profile=profiles.get("", slowest))
