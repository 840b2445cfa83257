"""What serving costs a real model: the exported MiniLM encoder behind a runtime, against the same program in a tight loop.

Both run on the same number of threads (by default half of the cores, so that server and client have the rest). Rounds of bare and
served alternate within one run and ratios are taken inside a round, so a machine that drifts cancels out.

A lone request is one that finds the system idle: bare and served get one request every 50 ms, so that both start from the same
rest. The pair "closed" sends them back to back; the bare loop is then hot in every cache, which no request from outside ever meets.

    python -m benchmarks.minilm [--quick] [--threads N] [--tokens 32]

Needs the exported model (``python examples/text-embedding/export.py``); makes it when it is missing. Writes results/minilm.json and
.md; exit code 1 when something that must hold does not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from harness_cli.load.config import LoadConfig
from harness_cli.load.engine import run_load
from harness_sim.workloads import Arrivals, RateSchedule, Workload

from benchmarks.common import Check, CpuMeter, Runtime, machine, markdown, runtime, say, write_results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "text-embedding"
MODEL = EXAMPLE / "build" / "repository" / "minilm"
BATCH = 32
SINGLE_CLIENTS = 4 * BATCH
"""Enough one-row requests in flight that a full batch runs, one is staged and one gathers, with one more on its way."""
BATCH_CLIENTS = 3
THROUGHPUT_RATIO = 0.9
ADDED_MS = 2.5
LONE_EVERY_S = 0.05
SERVICE = """\
apiVersion: serving.harness.dev/v1alpha1
kind: InferenceService
metadata: {{name: minilm-bench}}
spec:
  models:
    - name: minilm
      version: "1"
      format: TorchExport
      storageUri: {uri}
      maxBatchSize: 32
      executionSizes: [1, 2, 4, 8, 16, 32]
      inputs:
        - {{name: input_ids, datatype: INT64, shape: [-1], buckets: {{dim: 0, sizes: [{tokens}], padValue: 0}}}}
        - {{name: attention_mask, datatype: INT64, shape: [-1], buckets: {{dim: 0, sizes: [{tokens}], padValue: 0}}}}
      outputs: [{{name: embedding, datatype: FP32, shape: [384]}}]
      objective: {{latencyMilliseconds: 5000}}
  workerGroups: [{{name: cpu, replicas: 1}}]
"""


class Bare:
    """The tight loop in its own process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._answer()

    def measure(self, rows: int, tokens: int, seconds: float, every_s: float = 0.0) -> dict[str, float]:
        """One measurement (see benchmarks/bare_model.py)."""
        if self._process.stdin is None:
            raise RuntimeError("the bare model has no stdin")
        self._process.stdin.write(
            json.dumps({"rows": rows, "tokens": tokens, "seconds": seconds, "every_s": every_s}) + "\n"
        )
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, float]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise RuntimeError(f"the bare model ended with exit code {self._process.wait()}")
        found: dict[str, float] = json.loads(line)
        return found


@contextmanager
def bare_model(threads: int) -> Iterator[Bare]:
    """Start and end the tight loop's process."""
    argv = [sys.executable, "-m", "benchmarks.bare_model", str(MODEL / "1" / "model.pt2"), str(threads)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        yield Bare(process)
    finally:
        process.kill()
        process.wait()


def served(
    pod: Runtime, clients: int, rows: int, tokens: int, seconds: float, every_s: float = 0.0
) -> dict[str, float]:
    """Closed loop (or one request every ``every_s``); rows answered per second until the last answer, batch rows, CPU."""
    before, meter = pod.scrape(), CpuMeter(pod)
    meter.start()
    config = LoadConfig(
        urls=(pod.grpc,), model="minilm", closed=clients, duration_s=seconds, rows={rows: 1.0}, dims={"": tokens}
    )
    if every_s:
        paced = {"schedule": RateSchedule.constant(1 / every_s, seconds), "workload": Workload(Arrivals.CONSTANT)}
        config = replace(config, closed=0, duration_s=0.0, **paced)
    report = run_load(config)
    cpu, after = meter.shares(), pod.scrape()
    if set(report.outcomes) - {"completed", "late"}:
        raise RuntimeError(f"requests were not answered: {report.outcomes}")
    batches = after.batches - before.batches
    return {
        "rows_per_second": report.rows / (float(report.records.done_ns.max()) / 1e9),
        "p50_ms": float(report.summary()["latency_ms"]["p50"]),
        "mean_batch_rows": (after.batch_rows - before.batch_rows) / batches if batches else 0.0,
        **{f"{name}_cores": share for name, share in cpu.items()},
    }


def one_round(
    pod: Runtime, bare: Bare, tokens: int, seconds: float, *, bare_first: bool
) -> dict[str, dict[str, float]]:
    """Everything once, in an order that turns from round to round; of the lone requests the pair with the median difference."""
    steps: dict[str, Callable[[], dict[str, float]]] = {
        "bare_batch": lambda: bare.measure(BATCH, tokens, seconds),
        "served_singles": lambda: served(pod, SINGLE_CLIENTS, 1, tokens, seconds),
        "served_batches": lambda: served(pod, BATCH_CLIENTS, BATCH, tokens, seconds),
    }
    names = list(steps) if bare_first else list(reversed(steps))
    # Milliseconds are compared here, so bare and served take turns every second.
    found = {name: steps[name]() for name in names}
    for kind, every_s, length_s in (("lone", LONE_EVERY_S, 2.0), ("closed", 0.0, 1.0)):
        pairs = [
            (bare.measure(1, tokens, length_s, every_s), served(pod, 1, 1, tokens, length_s, every_s))
            for _ in range(max(2, round(seconds / 2)))
        ]
        middle = sorted(pairs, key=lambda pair: pair[1]["p50_ms"] - pair[0]["p50_ms"])[len(pairs) // 2]
        found |= {f"bare_{kind}": middle[0], f"served_{kind}": middle[1]}
    return found


def main() -> int:
    """Run all rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two short rounds")
    parser.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 1) // 2))
    parser.add_argument("--tokens", type=int, default=32)
    arguments, _ = parser.parse_known_args()  # `make bench` gives both benchmarks the same words.
    if not (MODEL / "1" / "model.pt2").exists():
        subprocess.run([sys.executable, str(EXAMPLE / "export.py")], check=True)
    rounds, seconds = (2, 3.0) if arguments.quick else (5, 8.0)
    where = machine()
    with tempfile.TemporaryDirectory() as folder:
        service = Path(folder) / "service.yaml"
        service.write_text(SERVICE.format(uri=MODEL.as_uri(), tokens=arguments.tokens))
        flags = ("--trust-repository", "--device", "cpu", "--threads", str(arguments.threads))
        with runtime(service, *flags) as pod, bare_model(arguments.threads) as bare:
            served(pod, 8, 1, arguments.tokens, 1.0)
            found = []
            for k in range(rounds):
                found.append(one_round(pod, bare, arguments.tokens, seconds, bare_first=k % 2 == 0))
                say(
                    f"round {k + 1}/{rounds}: "
                    + ", ".join(f"{n} {v['rows_per_second']:.0f} rows/s" for n, v in found[-1].items())
                )
    return report(found, where, vars(arguments))


def report(rounds: list[dict[str, dict[str, float]]], where: dict[str, Any], setting: dict[str, Any]) -> int:
    """Tables, checks, files."""
    singles = median(r["served_singles"]["rows_per_second"] / r["bare_batch"]["rows_per_second"] for r in rounds)
    batches = median(r["served_batches"]["rows_per_second"] / r["bare_batch"]["rows_per_second"] for r in rounds)
    added = median(r["served_lone"]["p50_ms"] - r["bare_lone"]["p50_ms"] for r in rounds)
    checks = [
        Check("served / bare throughput at batch 32, one-row requests", f"{singles:.3f}", f">= {THROUGHPUT_RATIO}", singles >= THROUGHPUT_RATIO),
        Check("served / bare throughput at batch 32, 32-row requests", f"{batches:.3f}", f">= {THROUGHPUT_RATIO}", batches >= THROUGHPUT_RATIO),
        Check("added latency of a lone request, p50", f"{added:.2f} ms", f"<= {ADDED_MS} ms", added <= ADDED_MS),
    ]  # fmt: skip
    rows = [
        (k + 1, name, f"{v['rows_per_second']:.1f}", f"{v['p50_ms']:.2f}", _cell(v, "mean_batch_rows"),
         *(_cell(v, f"{part}_cores") for part in ("server", "executor", "client")))
        for k, one in enumerate(rounds)
        for name, v in one.items()
    ]  # fmt: skip
    columns = ("round", "what", "rows/s", "p50 ms", "batch rows", "server cores", "executor cores", "client cores")
    head = (
        f"MiniLM ({setting['tokens']} tokens, {setting['threads']} thread(s)), served against a tight loop; medians over rounds of one run.\n"
        f"{where['processor']}, {where['cores']} cores, {where['system']}, Python {where['python']}."
    )
    result = {"setting": setting, "machine": where, "date": time.strftime("%Y-%m-%d"), "rounds": rounds}
    return write_results("minilm", result, [head, markdown(columns, rows)], checks)


def _cell(values: dict[str, float], name: str) -> str:
    return f"{values[name]:.2f}" if name in values else ""


if __name__ == "__main__":
    sys.exit(main())
