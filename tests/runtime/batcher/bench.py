"""A batcher with a simulated executor on a virtual loop, and requests for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import looptime
import numpy as np
from harness_core.outcome import Outcome
from harness_core.pod.machine import PodMachine
from harness_core.pod.settings import ModelLimits, PodLimits, PolicyName
from harness_core.profile import LatencyProfile
from harness_runtime.batcher import Batcher
from harness_runtime.errors import RequestEnded
from harness_runtime.model import ModelFormat, ModelSpec
from harness_runtime.ports import Work
from harness_runtime.tensors import Datatype, Tensor, TensorSpec

from tests.runtime.batcher.sim_executor import MS, SimExecutor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from harness_runtime.ports import Job, WorkResult

SETUP_MS = 5
PER_ROW_MS = 1


def virtually(scenario: Callable[[], Awaitable[Any]]) -> Any:
    """Run on a loop whose time passes only when nothing is left to do."""
    with asyncio.Runner(loop_factory=looptime.new_event_loop) as runner:
        return runner.run(scenario())


def now_ns() -> int:
    """The virtual clock."""
    return round(asyncio.get_running_loop().time() * 1e9)


def make_spec(name: str = "m", max_batch_size: int = 8) -> ModelSpec:
    """A model with one FP32 input X and output Y of four values."""
    return ModelSpec(
        name=name,
        version="1",
        digest=f"digest-{name}",
        format=ModelFormat.PROFILED,
        path=None,
        max_batch_size=max_batch_size,
        execution_sizes=(),
        inputs=(TensorSpec("X", Datatype.FP32, (4,)),),
        outputs=(TensorSpec("Y", Datatype.FP32, (4,)),),
        objective_ns=100 * MS,
        max_latency_ns=None,
        weight=1.0,
        max_weight=1.0,
        priority=0,
    )


def linear(job: Job) -> int:
    """l(b) = 5 + 1 * b ms."""
    return (SETUP_MS + PER_ROW_MS * job.execution_size) * MS


@dataclass
class Seen:
    """Observer that writes down what it is told."""

    outcomes: list[Outcome] = field(default_factory=list)
    batches: list[tuple[str, int]] = field(default_factory=list)
    formation_ns: list[int] = field(default_factory=list)
    ended: list[tuple[int, bool]] = field(default_factory=list)
    lost: int = 0
    fault: Exception | None = None

    def batch_started(self, now_ns, spec, plan, formation_ns) -> None:
        self._fail()
        self.batches.append((plan.reason.value, plan.rows))
        self.formation_ns += formation_ns

    def batch_ended(self, now_ns, spec, plan, execution_ns, *, failed) -> None:
        self._fail()
        self.ended.append((plan.rows, failed))

    def request_ended(self, spec, outcome, weight, latency_ns) -> None:
        self._fail()
        self.outcomes.append(outcome)

    def executor_lost(self, now_ns) -> None:
        self.lost += 1

    def _fail(self) -> None:
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault


@dataclass
class Bench:
    """One model behind a batcher. Fields before ``batcher`` are options."""

    policy: PolicyName = PolicyName.IMMEDIATE
    max_batch_rows: int = 8
    limits: dict[str, Any] = field(default_factory=dict)
    pod: PodLimits = field(default_factory=PodLimits)
    executor: SimExecutor = field(default_factory=lambda: SimExecutor(linear))
    seen: Seen = field(default_factory=Seen)
    broken: list[BaseException] = field(default_factory=list)
    changes: list[tuple[bool, str]] = field(default_factory=list)
    journal: Any = None

    async def __aenter__(self) -> Self:
        self.spec = make_spec(max_batch_size=self.max_batch_rows)
        self.machine = PodMachine(self.pod, self.journal)
        self.batcher = Batcher(
            self.machine,
            self.executor,
            now_ns,
            observer=self.seen,
            on_executor=lambda up, reason: self.changes.append((up, reason)),
            on_broken=self.broken.append,
            timer_grain_ns=1000,  # the virtual loop's own
        )
        await self.executor.start(self.batcher)
        self.batcher.add_model(self.model_limits())
        self.batcher.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.batcher.close()
        await self.executor.stop()

    def model_limits(self) -> ModelLimits:
        """What the machine knows of the model."""
        return ModelLimits(
            model=self.spec.digest,
            default_profile=LatencyProfile.linear(SETUP_MS * MS, PER_ROW_MS * MS, self.max_batch_rows),
            policy=self.policy,
            max_batch_rows=self.max_batch_rows,
            **self.limits,
        )

    def work(
        self, value: float = 1.0, rows: int = 1, *, within_ms: float = 1000, limit_ms: float | None = None
    ) -> Work:
        """A request whose target is ``within_ms`` from now."""
        x = np.full((rows, 4), value, np.float32)
        arrival = now_ns()
        target = arrival + round(within_ms * MS)
        return Work(
            spec=self.spec,
            bucket="",
            rows=rows,
            bytes=x.nbytes,
            inputs=[Tensor("X", Datatype.FP32, x)],
            padded=[(4,)],
            arrival_ns=arrival,
            target_ns=target,
            limit_ns=target if limit_ms is None else arrival + round(limit_ms * MS),
            weight=1.0,
            priority=9,
        )

    def send(self, value: float = 1.0, rows: int = 1, **times: float | None) -> asyncio.Task[WorkResult]:
        """A request on its way."""
        return asyncio.create_task(self.batcher.infer(self.work(value, rows, **times)))


async def outcome_of(task: asyncio.Task[WorkResult]) -> Outcome:
    """How it ended."""
    try:
        return (await task).outcome
    except RequestEnded as end:
        return end.outcome
    except asyncio.CancelledError:
        return Outcome.CANCELLED
