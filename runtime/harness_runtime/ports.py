"""Seams of the runtime: what the batcher asks of an executor, what an edge asks of the data plane.

Each port has a production adapter and a simulated twin in the tests.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt
    from harness_core.outcome import Outcome

    from harness_runtime.model import ModelSpec
    from harness_runtime.tensors import Datatype, Tensor


@dataclass(slots=True)
class JobInput:
    """One input of a batch: ``shape`` is the executed shape, rows first (for unbatched models: the tensor's own).

    ``parts`` are the members' arrays in row order; each may be smaller than ``shape`` beyond axis 0 and is written to the
    low corner, the rest filled with ``pad_value``. Rows beyond the last part repeat nothing and are filled with ``pad_value`` too.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    parts: Sequence[npt.NDArray[Any]]
    pad_value: float = 0


@dataclass(slots=True)
class Job:
    """A batch for the executor. ``rows`` real rows, ``execution_size`` rows executed, ``expected_ns`` feeds the watchdog."""

    batch_id: int
    digest: str
    rows: int
    execution_size: int
    inputs: list[JobInput]
    expected_ns: int = 0


@dataclass(slots=True)
class JobOutput:
    """One output of a batch. ``array`` is a view of the executor's slot: read it before ``JobResult.release``."""

    name: str
    datatype: Datatype
    array: npt.NDArray[Any]


@dataclass(slots=True)
class JobResult:
    """Answer of the executor.

    ``error`` set: the model raised (the process lives); outputs are then empty. ``withdrawn``: the batch was taken back
    before it started, nothing ran.
    """

    batch_id: int
    execution_ns: int
    outputs: list[JobOutput] = field(default_factory=list)
    error: str | None = None
    out_of_memory: bool = False
    withdrawn: bool = False
    release: Callable[[], None] = lambda: None


class ExecutorListener(Protocol):
    """Called by an executor on the event loop's thread; must not block."""

    def on_started(self, batch_id: int) -> None:
        """The run of a batch began."""

    def on_result(self, result: JobResult) -> None:
        """A batch ended. The listener calls ``result.release()`` once it has read the outputs."""

    def on_lost(self, reason: str) -> None:
        """The executor process is gone, and with it every batch submitted and every model loaded."""

    def on_restored(self) -> None:
        """A new process runs and has loaded every model again."""


class LoadError(Exception):
    """A model could not be loaded; the message says why in a user's words, and leaves it to the teller to name the model."""


class Runs(Protocol):
    """What warm-up and measurement need of an executor: one batch, outside its listener."""

    async def run(self, job: Job) -> JobResult:
        """Run a batch and return its result, which the caller releases. Raises RuntimeError when the process ends, ValueError when the job is wrong."""


class Executor(Protocol):
    """One accelerator. At most ``slots`` batches are submitted and unreleased at a time (running + staged)."""

    slots: int

    async def start(self, listener: ExecutorListener) -> None:
        """Start the process. Raises LoadError when it does not come up."""

    async def load(self, spec: ModelSpec) -> None:
        """Load a model. Raises LoadError; other models are not disturbed."""

    def submit(self, job: Job) -> None:
        """Hand over a batch. Raises RuntimeError without a free slot (a driver's mistake), ValueError when the job is larger than a slot."""

    def withdraw(self, batch_id: int) -> None:
        """Take back a batch that has not started. Its result says whether that was in time (``withdrawn``); no effect on others."""

    def restart_expected_ns(self) -> int:
        """How long a restart with reload takes, as measured at the last start: the retry hint while the executor is away."""

    async def stop(self) -> None:
        """End the process; running work is given up."""


@dataclass(slots=True)
class InferRequest:
    """One inference call, free of wire types.

    ``deadline_ns``: the transport's own deadline on the monotonic clock, or None. ``outputs``: names wanted, empty for all.
    """

    model: str
    version: str
    id: str
    inputs: list[Tensor]
    outputs: tuple[str, ...]
    parameters: dict[str, bool | int | float | str]
    arrival_ns: int
    deadline_ns: int | None
    tenant: str = ""


@dataclass(slots=True)
class InferResponse:
    """Answer to an :class:`InferRequest`; ``outcome`` is COMPLETED or LATE."""

    model: str
    version: str
    id: str
    outputs: list[Tensor]
    parameters: dict[str, bool | int | float | str]
    outcome: Outcome


@dataclass(slots=True)
class Work:
    """A validated request on its way to the batcher.

    Arrays are unpadded; ``bucket`` names the lane, ``padded`` its shapes (per input, without rows). ``bytes`` is what its rows take in a
    batch, padded.
    """

    spec: ModelSpec
    bucket: str
    rows: int
    bytes: int
    inputs: list[Tensor]
    padded: list[tuple[int, ...]]
    arrival_ns: int
    target_ns: int
    limit_ns: int
    weight: float
    priority: int
    tenant: str = ""


@dataclass(slots=True)
class WorkResult:
    """Every declared output of one request, in the model's order: its own part, without rows or padding of others."""

    outputs: list[Tensor]
    outcome: Outcome


class BatcherPort(Protocol):
    """What the data plane asks of the batcher."""

    async def infer(self, work: Work) -> WorkResult:
        """Queue, run, answer. Raises RequestEnded; cancelling the awaiting task withdraws the request."""
