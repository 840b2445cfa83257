"""Builders and a recording listener for tests of the executor."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from harness_runtime.executor.process import ProcessExecutor
from harness_runtime.executor.settings import ExecutorSettings
from harness_runtime.model import Emulation, ModelFormat, ModelSpec
from harness_runtime.ports import Job, JobInput, JobResult
from harness_runtime.tensors import Datatype, TensorSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    import numpy as np
    from harness_runtime.ports import Runs

_BATCHES = itertools.count(1)
WAIT_S = 60.0
"""Bound of every wait of these tests: processes start slowly on a loaded machine."""


def make_spec(
    name: str = "echo",
    *,
    datatype: Datatype = Datatype.FP32,
    shape: tuple[int, ...] = (4,),
    out_datatype: Datatype | None = None,
    out_shape: tuple[int, ...] | None = None,
    max_batch_size: int = 8,
    format: ModelFormat = ModelFormat.PROFILED,
    path: Path | None = None,
    emulation: Emulation | None = None,
    **changes: Any,
) -> ModelSpec:
    """A model of one input ``x`` and one output ``y``."""
    if emulation is None and format is ModelFormat.PROFILED:
        emulation = Emulation(setup_us=1000, compute_us_per_row=0)
    spec = ModelSpec(
        name=name,
        version="1",
        digest=f"digest-{name}",
        format=format,
        path=path,
        max_batch_size=max_batch_size,
        execution_sizes=(),
        inputs=(TensorSpec("x", datatype, shape),),
        outputs=(TensorSpec("y", out_datatype or datatype, shape if out_shape is None else out_shape),),
        objective_ns=100_000_000,
        max_latency_ns=None,
        weight=1.0,
        max_weight=1.0,
        priority=0,
        emulation=emulation,
    )
    return replace(spec, **changes)


def make_job(spec: ModelSpec, *parts: np.ndarray[Any, Any], size: int | None = None, **changes: Any) -> Job:
    """A batch of the members ``parts`` for a model of one input."""
    rows = sum(len(part) for part in parts) if spec.max_batch_size else 1
    size = size or rows
    trailing = tuple(max(part.shape[i] for part in parts) for i in range(1, parts[0].ndim))
    shape = (size, *trailing) if spec.max_batch_size else parts[0].shape
    source = JobInput(spec.inputs[0].name, spec.inputs[0].datatype, shape, list(parts))
    return replace(Job(next(_BATCHES), spec.digest, rows, size, [source], expected_ns=1_000_000), **changes)


@dataclass
class Recorder:
    """A listener that remembers events in order, copies outputs and releases."""

    events: list[tuple[str, Any]] = field(default_factory=list)
    results: dict[int, JobResult] = field(default_factory=dict)
    outputs: dict[int, dict[str, Any]] = field(default_factory=dict)
    release: bool = True
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def on_started(self, batch_id: int) -> None:
        self._note("started", batch_id)

    def on_result(self, result: JobResult) -> None:
        self.results[result.batch_id] = result
        self.outputs[result.batch_id] = {each.name: each.array.copy() for each in result.outputs}
        if self.release:
            result.release()
        self._note("result", result.batch_id)

    def on_lost(self, reason: str) -> None:
        self._note("lost", reason)

    def on_restored(self) -> None:
        self._note("restored", None)

    def _note(self, kind: str, value: Any) -> None:
        self.events.append((kind, value))
        self._changed.set()

    def count(self, kind: str) -> int:
        return sum(1 for event, _ in self.events if event == kind)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for events until ``condition`` holds."""
        try:
            async with asyncio.timeout(WAIT_S):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"{what} did not happen; events: {self.events}") from None


@dataclass
class Rig:
    """A running executor and its listener."""

    executor: ProcessExecutor
    listener: Recorder

    async def ask(self, job: Job) -> tuple[JobResult, dict[str, Any]]:
        """Submit and wait for the answer."""
        self.executor.submit(job)
        return await self.answer(job)

    async def answer(self, job: Job) -> tuple[JobResult, dict[str, Any]]:
        """Wait for the answer of a submitted batch."""
        await self.listener.until(lambda: job.batch_id in self.listener.results, f"answer of batch {job.batch_id}")
        return self.listener.results[job.batch_id], self.listener.outputs[job.batch_id]


@asynccontextmanager
async def running(
    *specs: ModelSpec, warm_up: Callable[[Runs, ModelSpec], Awaitable[None]] | None = None, **settings: Any
) -> AsyncIterator[Rig]:
    """An executor with models loaded; stopped at the end."""
    settings = {"device": "cpu", "threads": 1, "allow_python_models": True, "slot_bytes_max": 16 << 20} | settings
    rig = Rig(ProcessExecutor(ExecutorSettings(**settings), warm_up), Recorder())
    await rig.executor.start(rig.listener)
    try:
        for spec in specs:
            await rig.executor.load(spec)
        yield rig
    finally:
        await rig.executor.stop()


def python_model(folder: Path, body: str, *, name: str = "model", **changes: Any) -> ModelSpec:
    """A Python model whose ``predict`` has ``body`` (input ``x``, must return a dict)."""
    path = folder / f"{name}.py"
    indented = "\n".join(f"        {line}" for line in body.splitlines())
    path.write_text(
        "import os, sys, time\nimport numpy as np\n\n\nclass Model:\n    def __init__(self, config):\n        self.config = config\n\n"
        f"    def predict(self, inputs):\n        x = inputs['x']\n{indented}\n"
    )
    return make_spec(name, format=ModelFormat.PYTHON, path=path, **changes)
