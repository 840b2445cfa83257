"""Measures a model in an executor of its own, with a word on every run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness_core.profile import LatencyProfile
from harness_runtime.executor.process import ProcessExecutor
from harness_runtime.executor.settings import ExecutorSettings
from harness_runtime.lanes import Bucket, declared_buckets
from harness_runtime.model import ModelSpec
from harness_runtime.ports import Job, JobResult, LoadError
from harness_runtime.profiler import Budget, fallback_bucket, measure, measured_sizes

from harness_cli.errors import FAILED, CliError


@dataclass(frozen=True, slots=True)
class Measured:
    """Profiles by bucket name, and where the model ran."""

    profiles: dict[str, LatencyProfile]
    device: str


def planned_points(spec: ModelSpec) -> int:
    """How many (bucket, size) pairs will be measured."""
    return len(_buckets(spec)) * len(measured_sizes(spec))


async def measure_model(
    spec: ModelSpec, settings: ExecutorSettings, budget: Budget, on_run: Callable[[int, int], None]
) -> Measured:
    """Load and measure. ``on_run(points begun, size)`` is called before each run. Raises CliError when the model cannot be run."""
    executor = ProcessExecutor(settings)
    listener = _Listener()
    try:
        await executor.start(listener)
        await executor.load(spec)
        profiles = await measure(_Told(executor, on_run), spec, _buckets(spec), budget)
    except LoadError as error:
        raise CliError(f"model {spec.name!r}: {listener.lost or error}", exit_code=FAILED) from None
    finally:
        await executor.stop()
    return Measured(profiles, executor.device)


def _buckets(spec: ModelSpec) -> Sequence[Bucket]:
    return declared_buckets(spec) or [fallback_bucket(spec)]


class _Told:
    """Passes runs on, and tells of each."""

    def __init__(self, executor: ProcessExecutor, on_run: Callable[[int, int], None]) -> None:
        self._executor = executor
        self._on_run = on_run
        self._shape: tuple[tuple[int, ...], ...] = ()
        self._points = 0

    async def run(self, job: Job) -> JobResult:
        shape = tuple(tensor.shape for tensor in job.inputs)
        if shape != self._shape:
            self._shape, self._points = shape, self._points + 1
        self._on_run(self._points, job.execution_size)
        return await self._executor.run(job)


class _Listener:
    """Nobody submits batches here; only the loss of the process is news."""

    def __init__(self) -> None:
        self.lost = ""

    def on_started(self, batch_id: int) -> None:
        """Not used."""

    def on_result(self, result: JobResult) -> None:
        """Not used."""
        result.release()

    def on_lost(self, reason: str) -> None:
        """The process ended."""
        self.lost = reason

    def on_restored(self) -> None:
        """Not used."""
