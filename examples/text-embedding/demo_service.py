"""Runs ``harness run`` for the demo, and asks its replicas what they measured."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

READY_S = 240.0
STOP_S = 20.0
HTTP_S = 10.0
LOG_TAIL = 20


class ServiceError(Exception):
    """The service did not come up; the message ends with what it said last."""


class Service:
    """``harness run`` with its replicas, on free ports; a context manager that leaves no process behind."""

    def __init__(self, file: Path, *, threads: int, device: str, log: Path) -> None:
        self._command = [sys.executable, "-m", "harness_cli.main", "run", "-f", str(file), "--json"]
        self._command += ["--threads", str(threads), "--device", device]
        self._log = log
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self.addresses: list[str] = []
        self.metrics: list[str] = []

    def __enter__(self) -> Self:
        log = self._log.open("w", encoding="utf-8")
        with log:
            # A session of its own: Ctrl-C reaches the demo alone, which then ends the service in order.
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        self._reader = threading.Thread(target=self._follow, args=(self._process,), daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if self._reader is not None:
            self._reader.join(STOP_S)
        if process.stdout is not None:
            process.stdout.close()

    def wait_ready(self, tell: Callable[[str], None]) -> None:
        """Until every replica answers; ``tell`` hears of the events meanwhile. Raises ServiceError."""
        end = time.monotonic() + READY_S
        while True:
            try:
                event = self._events.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise ServiceError(f"The service was not ready after {READY_S:g} s.\n{self._tail()}") from None
            if event is None or event["event"] == "crashed":
                raise ServiceError(f"The service ended before it was ready.\n{self._tail()}")
            if event["event"] == "all_ready":
                self.addresses = list(event["addresses"])
                self.metrics = [replica["metrics"] for replica in event["replicas"]]
                return
            tell(f"{event.get('replica', 'service')}: {event['event']}")

    def totals(self) -> Totals:
        """Counters of all replicas together, at this moment."""
        totals = Totals()
        for address in self.metrics:
            totals.add(_get(f"http://{address}/metrics"))
        return totals

    def state(self) -> dict[str, Any]:
        """The page ``/state`` of the first replica."""
        state: dict[str, Any] = json.loads(_get(f"http://{self.metrics[0]}/state"))
        return state

    def _follow(self, process: subprocess.Popen[str]) -> None:
        if process.stdout is not None:
            for line in process.stdout:
                if line.startswith("{"):
                    self._events.put(json.loads(line))
        self._events.put(None)

    def _tail(self) -> str:
        lines = self._log.read_text(encoding="utf-8").splitlines()[-LOG_TAIL:]
        return "\n".join([*lines, f"(whole log: {self._log})"])


@dataclass(slots=True)
class Totals:
    """Counters that only grow; two of them subtracted tell what happened in between. Times in seconds."""

    batches: float = 0
    rows: float = 0
    busy_s: float = 0
    formation: dict[float, float] = field(default_factory=lambda: defaultdict(float))
    """Cumulative histogram of the time from arrival to start of execution: upper bound → count."""

    def add(self, exposition: str) -> None:
        """Add one replica's counters, given in Prometheus's text format."""
        from prometheus_client.parser import text_string_to_metric_families

        for family in text_string_to_metric_families(exposition):
            for sample in family.samples:
                if sample.name == "harness_batch_rows_count":
                    self.batches += sample.value
                elif sample.name == "harness_batch_rows_sum":
                    self.rows += sample.value
                elif sample.name == "harness_batch_execution_seconds_sum":
                    self.busy_s += sample.value
                elif sample.name == "harness_formation_delay_seconds_bucket":
                    self.formation[float(sample.labels["le"])] += sample.value

    def since(self, earlier: Totals) -> Totals:
        """What was counted after ``earlier``."""
        formation = {bound: count - earlier.formation.get(bound, 0.0) for bound, count in self.formation.items()}
        return Totals(self.batches - earlier.batches, self.rows - earlier.rows, self.busy_s - earlier.busy_s, formation)


def _get(url: str) -> str:
    # Straight to a process of our own on this machine: no proxy of the environment may come between.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=HTTP_S) as answer:
        text: str = answer.read().decode()
    return text
