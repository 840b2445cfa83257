"""From the words on the command line to a LoadConfig; every contradiction is one plain line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TypeVar

from harness_sim.traces import read_trace
from harness_sim.workloads import Arrivals, RateSchedule, Workload, trace_rate

from harness_cli.errors import CliError
from harness_cli.load.config import LoadConfig

DEADLINE_MS_MIN = 0.001
"""The parameter `timeout` counts whole microseconds."""
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%a-z0-9]+\]")
Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """The options as typed; None or empty: not given."""

    url: list[str]
    model: str
    version: str
    rate: float | None
    duration: float | None
    deadline_ms: float | None
    arrivals: Arrivals | None
    shape: float | None
    trace: Path | None
    speed: float | None
    schedule: str | None
    closed: int | None
    weight: str | None
    priority: int
    input: Path | None
    rows: str | None
    dim: list[str]
    connections: int
    seed: int

    def config(self) -> LoadConfig:
        """Check and convert. Raises CliError."""
        for url in self.url:
            _check_address(url)
        self._check_numbers()
        arrivals = self._arrivals()
        self._refuse_inapplicable(arrivals)
        workload = None if self.closed else self._workload(arrivals)
        try:
            return LoadConfig(
                urls=tuple(self.url),
                model=self.model,
                version=self.version,
                schedule=None if workload is None else self._schedule(workload),
                workload=workload or Workload(),
                closed=self.closed or 0,
                duration_s=(10.0 if self.duration is None else self.duration) if self.closed else 0.0,
                deadline_ns=None if self.deadline_ms is None else round(self.deadline_ms * 1e6),
                seed=self.seed,
                weights=shares("--weight", self.weight, float, above=0) if self.weight else {},
                priority=self.priority,
                input_path=self.input,
                rows=shares("--rows", self.rows, int, above=0) if self.rows else {1: 1.0},
                dims=dims(self.dim),
                connections=self.connections,
            )
        except ValueError as error:
            raise CliError(str(error)) from None

    def _check_numbers(self) -> None:
        """Raises CliError naming the option, the value as typed and the limit, with its unit."""
        limits = (
            ("--rate", self.rate, 0.0, "requests/s"),
            ("--duration", self.duration, 0.0, "s"),
            ("--shape", self.shape, 0.0, ""),
            ("--speed", self.speed, 0.0, ""),
        )
        for option, value, least, unit in limits:
            if value is not None and not least < value < inf:
                raise CliError(f"{option} {value:g}: must be a number above {least:g} {unit}".rstrip())
        if self.deadline_ms is not None and not DEADLINE_MS_MIN <= self.deadline_ms < inf:
            raise CliError(f"--deadline-ms {self.deadline_ms:g}: must be at least {DEADLINE_MS_MIN:g} ms")

    def _arrivals(self) -> Arrivals:
        if self.arrivals is not None:
            return self.arrivals
        return Arrivals.TRACE if self.trace is not None else Arrivals.POISSON

    def _refuse_inapplicable(self, arrivals: Arrivals) -> None:
        """A setting that does not apply is an error, never silence."""
        closed, trace = bool(self.closed), arrivals is Arrivals.TRACE
        rules = (
            (
                closed and self.rate is not None,
                "--rate does not apply to --closed: clients send as fast as they are answered",
            ),
            (closed and self.schedule is not None, "--schedule does not apply to --closed"),
            (closed and (self.arrivals or self.trace) is not None, "--arrivals and --trace do not apply to --closed"),
            (self.shape is not None and arrivals is not Arrivals.GAMMA, "--shape applies to --arrivals gamma only"),
            (self.trace is not None and not trace, f"--trace does not apply to --arrivals {arrivals}"),
            (trace and self.trace is None and not closed, "--arrivals trace needs --trace FILE"),
            (self.speed is not None and not trace, "--speed applies to a trace only"),
            (self.speed is not None and self.rate is not None, "give --speed or --rate, not both"),
            (self.schedule is not None and self.rate is not None, "give --schedule or --rate, not both"),
            (self.schedule is not None and self.speed is not None, "give --schedule or --speed, not both"),
            (
                self.schedule is not None and self.duration is not None,
                "--schedule has durations of its own: leave out --duration",
            ),
            (bool(self.dim) and self.input is not None, "--dim applies to random inputs only, not to --input"),
        )
        for broken, message in rules:
            if broken:
                raise CliError(message)

    def _workload(self, arrivals: Arrivals) -> Workload:
        try:
            trace_ns = None if self.trace is None else read_trace(self.trace)
            return Workload(arrivals, shape=1.0 if self.shape is None else self.shape, trace_ns=trace_ns)
        except OSError as error:
            raise CliError(f"--trace {self.trace}: {error.strerror or error}") from None
        except ValueError as error:
            raise CliError(str(error)) from None

    def _schedule(self, workload: Workload) -> RateSchedule:
        if self.schedule is not None:
            try:
                return RateSchedule.parse(self.schedule)
            except ValueError as error:
                raise CliError(f"--schedule: {error}") from None
        rate, duration = self.rate, self.duration
        if rate is None and workload.trace_ns is not None:
            speed = 1.0 if self.speed is None else self.speed
            rate = trace_rate(workload.trace_ns) * speed
            if duration is None and speed > 0:
                duration = len(workload.trace_ns) / rate
        if rate is None:
            raise CliError("--rate, --schedule, --trace or --closed must say how much to send")
        return RateSchedule.constant(rate, 10.0 if duration is None else duration)


def shares(option: str, text: str, number: Callable[[str], Number], *, above: float) -> Mapping[Number, float]:
    """Read ``VALUE`` or ``VALUE:SHARE,VALUE:SHARE,…``. Raises CliError naming the part at fault."""
    found: dict[Number, float] = {}
    for part in text.split(","):
        value, colon, share = part.strip().partition(":")
        try:
            key, part_share = number(value), float(share) if colon else 1.0
        except ValueError:
            raise CliError(f"{option}: {part.strip()!r} is not VALUE or VALUE:SHARE") from None
        if not above < key < float("inf") or not 0 < part_share < float("inf"):
            raise CliError(f"{option}: {part.strip()!r}: the value must be above {above:g} and the share positive")
        found[key] = part_share
    return found


def dims(texts: list[str]) -> dict[str, int]:
    """Read ``NAME=SIZE`` (one input) and ``SIZE`` (all others). Raises CliError."""
    found = {}
    for text in texts:
        name, equals, size = text.rpartition("=")
        if not size.isdecimal() or int(size) < 1 or (equals and not name):
            raise CliError(f"--dim: {text!r} is not NAME=SIZE or SIZE with a size of at least 1")
        found[name] = int(size)
    return found


def _check_address(url: str) -> None:
    if "," in url:
        each = " ".join(f"--url {part.strip()}" for part in url.split(",") if part.strip())
        raise CliError(f"--url: {url!r} holds a comma: the option takes one server and repeats ({each})")
    host, _, port = url.rpartition(":")
    if not _HOST.fullmatch(host) or not port.isdecimal() or not 0 < int(port) < 65536:
        raise CliError(f"--url: {url!r} is not HOST:PORT with a port of 1 to 65535 (an IPv6 host in brackets)")
