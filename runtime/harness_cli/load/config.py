"""What a load test is asked to do, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt
from harness_runtime.tensors import Datatype
from harness_sim.workloads import RateSchedule, Workload

Sample = Mapping[str, npt.NDArray[Any]]
"""The inputs of one request by name; rows on axis 0 for batched models."""


@dataclass(frozen=True, slots=True)
class TensorSignature:
    """One input or output; ``shape`` has no rows, -1 is variable."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """What a server says of a model. ``max_rows`` None: the server does not tell."""

    model: str
    version: str
    batched: bool
    max_rows: int | None
    inputs: tuple[TensorSignature, ...]
    outputs: tuple[TensorSignature, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadConfig:
    """One load test.

    Open loop: ``schedule`` and ``workload`` say when requests are sent, whatever becomes of earlier ones. Closed loop:
    ``closed`` clients each send the next request when the last was answered, for ``duration_s`` seconds.

    Attributes:
        urls: ``host:port`` of the servers, used in turn.
        schedule: rates over time (requests per second); None in a closed loop.
        deadline_ns: parameter ``timeout`` and gRPC deadline of each request, and the bound of "on time", counted from the
            intended send time. None: neither is sent, and every answer counts as on time.
        seed: of arrival times, weights and random inputs.
        weights: weight of a request → its share; empty: no ``weight`` parameter is sent.
        priority: parameter ``priority``; 0: not sent.
        samples: the requests' inputs, used in turn from the first.
        input_path: a file of inputs instead (``inputs.read_samples``). Neither: random inputs of the model's signature.
        rows: rows of a request → share of such requests; for random inputs and those cut from a file.
        dims: size of the variable dimensions of random inputs by input name; "" for all others.
        connections: TCP connections per server.
        keep_answers: keep the answers of all requests in memory (``LoadReport.tensors``).
        in_flight_max: most unanswered requests; at the bound sending waits, which shows as send lag.
        message_bytes_max: largest answer accepted.
    """

    urls: Sequence[str]
    model: str
    version: str = ""
    schedule: RateSchedule | None = None
    workload: Workload = field(default_factory=Workload)
    closed: int = 0
    duration_s: float = 0.0
    deadline_ns: int | None = None
    seed: int = 0
    weights: Mapping[float, float] = field(default_factory=dict)
    priority: int = 0
    samples: Sequence[Sample] | None = None
    input_path: Path | None = None
    rows: Mapping[int, float] = field(default_factory=lambda: {1: 1.0})
    dims: Mapping[str, int] = field(default_factory=dict)
    connections: int = 1
    keep_answers: bool = False
    in_flight_max: int = 20_000
    message_bytes_max: int = 64 << 20

    def __post_init__(self) -> None:
        if not self.urls:
            raise ValueError("at least one url is needed")
        if (self.schedule is None) == (self.closed == 0):
            raise ValueError(
                "exactly one of a rate schedule (open loop) and a number of clients (closed loop) is needed"
            )
        if self.closed and not self.duration_s > 0:
            raise ValueError(f"a closed loop needs a positive duration, got {self.duration_s:g} s")
        if self.deadline_ns is not None and self.deadline_ns < 1000:
            raise ValueError(f"a deadline must be at least 1 µs, got {self.deadline_ns} ns")
        if self.samples is not None and self.input_path is not None:
            raise ValueError("give samples or input_path, not both")
        if self.connections < 1 or self.in_flight_max < 1:
            raise ValueError("connections and in_flight_max must be at least 1")

    @property
    def planned_s(self) -> float:
        """Seconds during which requests are sent."""
        return self.schedule.duration_s if self.schedule is not None else self.duration_s
