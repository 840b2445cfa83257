"""What the benchmarks share: a runtime process under watch, the machine in words, results on disk."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from harness_cli.run.scrape import Scrape, fetch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RESULTS = Path(__file__).parent / "results"
READY_S = 300.0
"""Longest wait for a runtime to load and warm up."""


@dataclass
class Runtime:
    """A runtime process that is ready. ``grpc`` and ``metrics`` are host:port."""

    process: subprocess.Popen[str]
    grpc: str
    metrics: str

    @property
    def server(self) -> psutil.Process:
        """The process with the event loop."""
        return psutil.Process(self.process.pid)

    @property
    def executors(self) -> list[psutil.Process]:
        """Processes that run models (and their helpers)."""
        return self.server.children(recursive=True)

    def scrape(self) -> Scrape:
        """Metrics as they are now. Raises RuntimeError when the endpoint does not answer."""
        found = asyncio.run(fetch(self.metrics))
        if found is None:
            raise RuntimeError(f"no metrics at {self.metrics}")
        return found

    def rss_bytes(self) -> int:
        """Resident memory of all its processes, shared pages counted in each."""
        return self.server.memory_info().rss + sum(child.memory_info().rss for child in self.executors)


@contextmanager
def runtime(service: Path, *flags: str) -> Iterator[Runtime]:
    """Start ``harness-runtime`` on free ports, wait until it is ready, drain it at the end."""
    argv = [
        sys.executable,
        "-m",
        "harness_runtime.main",
        "--service",
        str(service),
        "--grpc-port",
        "0",
        "--metrics-port",
        "0",
    ]
    process = subprocess.Popen([*argv, *flags], stdout=subprocess.PIPE, text=True)
    try:
        announced = _until_ready(process)
        yield Runtime(process, announced["grpc"], announced["metrics"])
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(90)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until_ready(process: subprocess.Popen[str]) -> dict[str, str]:
    guard = threading.Timer(READY_S, process.kill)
    guard.start()
    addresses: dict[str, str] = {}
    for line in process.stdout or ():
        message = json.loads(line)
        if message["event"] == "listening":
            addresses = message
        if message["event"] == "ready":
            guard.cancel()
            return addresses
    guard.cancel()
    raise RuntimeError(f"the runtime ended with exit code {process.wait()} before it was ready")


@dataclass
class CpuMeter:
    """CPU seconds of client (this process), server and executors between ``start`` and ``shares``."""

    runtime: Runtime
    _start: dict[str, float] = field(default_factory=dict)
    _at: float = 0.0

    def start(self) -> None:
        """Begin."""
        self._start, self._at = self._seconds(), time.monotonic()

    def shares(self) -> dict[str, float]:
        """Share of one core used by each since ``start``."""
        wall = time.monotonic() - self._at
        return {name: (now - self._start[name]) / wall for name, now in self._seconds().items()}

    def _seconds(self) -> dict[str, float]:
        groups = {"client": [psutil.Process()], "server": [self.runtime.server], "executor": self.runtime.executors}
        return {name: sum(_cpu_seconds(process) for process in processes) for name, processes in groups.items()}


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def machine() -> dict[str, Any]:
    """Where a figure was measured."""
    packages = ("harness-serving", "grpcio", "numpy", "uvloop")
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
        "load_average_before": os.getloadavg(),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        if names:
            return names[0]
    return platform.processor() or platform.machine()


@dataclass(frozen=True)
class Check:
    """One figure that must hold."""

    name: str
    found: str
    wanted: str
    holds: bool


def write_results(name: str, result: dict[str, Any], tables: Sequence[str], checks: Sequence[Check]) -> int:
    """Write ``results/NAME.json`` and ``.md``, print the Markdown; exit code 1 when a check does not hold."""
    RESULTS.mkdir(exist_ok=True)
    rows = [(check.name, check.found, check.wanted, "yes" if check.holds else "**NO**") for check in checks]
    text = "\n\n".join([*tables, markdown(("must hold", "found", "wanted", "holds"), rows)]) + "\n"
    document = result | {"checks": [vars(check) for check in checks]}
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    (RESULTS / f"{name}.md").write_text(text)
    print(text)
    return 0 if all(check.holds for check in checks) else 1


def markdown(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)
