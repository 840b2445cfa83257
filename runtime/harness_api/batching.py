"""How one model's requests are gathered: objective, batching, emulated latency."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from harness_api.base import ApiModel, Broken, Options, ascending
from harness_api.fields import TIB

MAX_DELAY_DEFAULT_MICROSECONDS: Final = 5000
HOUR_MILLISECONDS: Final = 3_600_000
TEN_MINUTES_MICROSECONDS: Final = 600_000_000


class BatchPolicy(StrEnum):
    """When a batch leaves its queue."""

    DEADLINE = "Deadline"
    MAX_DELAY = "MaxDelay"
    IMMEDIATE = "Immediate"
    STATIC = "Static"


class TimeoutAction(StrEnum):
    """What happens to a request that waited `queueTimeoutMilliseconds`."""

    REJECT = "Reject"
    DELAY = "Delay"


class Objective(ApiModel):
    """The latency promised to callers who do not say otherwise."""

    latency_milliseconds: Annotated[int, Field(ge=1, le=HOUR_MILLISECONDS)] = 100
    """Target of a request without a `timeout` parameter, from its arrival."""
    on_time_permille: Annotated[int, Field(ge=1, le=1000)] = 990
    """Share of requests that autoscaling keeps on time."""


class Batching(ApiModel):
    """Bounds of a model's queue and the policy that empties it."""

    policy: Annotated[BatchPolicy, Field(strict=False)] = BatchPolicy.DEADLINE
    """`Deadline` meets deadlines with the largest batches they allow; `MaxDelay` waits for a full batch or a delay; `Immediate` never waits; `Static` waits for a full batch."""
    max_queue_size: Annotated[int, Field(ge=1, le=1 << 20)] = 4096
    """Most requests that wait; one more is refused."""
    max_queue_bytes: Annotated[int, Field(ge=1, le=TIB)] = 256 << 20
    """Most bytes of inputs that wait, padded to their bucket."""
    max_queue_delay_microseconds: Annotated[int, Field(ge=0, le=TEN_MINUTES_MICROSECONDS)] | None = None
    """Longest wait for a batch to fill; with policy `MaxDelay` only, 5000 there when absent."""
    queue_timeout_milliseconds: Annotated[int, Field(ge=0, le=HOUR_MILLISECONDS)] = 0
    """Longest wait in the queue before `timeoutAction` is taken; 0: no such limit."""
    timeout_action: Annotated[TimeoutAction, Field(strict=False)] = TimeoutAction.REJECT
    """`Reject` ends the request; `Delay` lets it run after all others. Applies with `queueTimeoutMilliseconds`."""

    def rules(self, options: Options | None) -> Iterator[Broken]:
        """Settings that the policy does not use are refused."""
        del options
        if self.max_queue_delay_microseconds is not None and self.policy is not BatchPolicy.MAX_DELAY:
            yield ("maxQueueDelayMicroseconds",), f"applies to policy MaxDelay only, not to {self.policy}"
        if self.timeout_action is TimeoutAction.DELAY and self.queue_timeout_milliseconds == 0:
            yield ("timeoutAction",), "Delay needs queueTimeoutMilliseconds of at least 1"

    @property
    def effective_queue_delay_microseconds(self) -> int:
        """The delay in force: 0 unless the policy is MaxDelay."""
        if self.policy is not BatchPolicy.MAX_DELAY:
            return 0
        if self.max_queue_delay_microseconds is None:
            return MAX_DELAY_DEFAULT_MICROSECONDS
        return self.max_queue_delay_microseconds


Microseconds = Annotated[int, Field(ge=0, le=TEN_MINUTES_MICROSECONDS)]


class EmulationPoint(ApiModel):
    """Latency of one batch size."""

    batch_size: Annotated[int, Field(ge=1, le=65536)]
    """Rows in the batch."""
    microseconds: Annotated[int, Field(ge=1, le=TEN_MINUTES_MICROSECONDS)]
    """Time that the batch takes."""


class Emulation(ApiModel):
    """Latency of an emulated accelerator: a line, or points joined by straight lines."""

    setup_microseconds: Microseconds | None = None
    """Part of a batch's time that does not depend on its size; 0 when only the other part is given."""
    compute_microseconds_per_row: Microseconds | None = None
    """Time added by each row; 0 when only the other part is given."""
    points: Annotated[list[EmulationPoint], Field(min_length=1, max_length=64)] | None = None
    """Measured latencies instead of a line; batch sizes rise."""

    def rules(self, options: Options | None) -> Iterator[Broken]:
        """Exactly one form, sizes rising, some time at all."""
        del options
        linear = [
            name for name in ("setup_microseconds", "compute_microseconds_per_row") if getattr(self, name) is not None
        ]
        if self.points is not None:
            if linear:
                yield ("points",), "exclude setupMicroseconds and computeMicrosecondsPerRow: give one form"
            for (_, index), sentence in ascending([point.batch_size for point in self.points], ("points",)):
                yield ("points", index, "batchSize"), sentence
        elif not linear:
            yield (), "needs setupMicroseconds and computeMicrosecondsPerRow, or points"
        elif not (self.setup_microseconds or self.compute_microseconds_per_row):
            yield (), "setupMicroseconds and computeMicrosecondsPerRow are both 0: a batch must take some time"
