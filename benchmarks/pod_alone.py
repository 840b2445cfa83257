"""One pod with an emulated accelerator, and the load generator on the same cores.

l(b) = 5 + 1·b ms, at most 32 rows a batch, 50 ms deadlines, Poisson arrivals. The ideal (docs/concepts.md, "one accelerator alone"):
no schedule answers more than 812-817 requests/s on time; policies simulated without any overhead reach 712-728.

    python -m benchmarks.pod_alone [--quick] [--seeds 1,2,3]

Phases: CPU at rest · the agreed rate of 550 requests/s · search for the largest rate with 99 % on time · 1.5 times that rate for 30 s and
back. Writes results/pod_alone.json and .md; exit code 1 when something that must hold does not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from harness_cli.load.config import LoadConfig
from harness_cli.load.engine import run_load
from harness_sim.workloads import RateSchedule

from benchmarks.common import Check, CpuMeter, Runtime, machine, markdown, runtime, say, write_results

if TYPE_CHECKING:
    from harness_cli.load.report import LoadReport

DEADLINE_NS = 50_000_000
AGREED_RATE = 550
GOOD = 0.99
BOUND_RATE = 812
"""Smallest of the three seeds' upper bounds: the search needs to look no higher."""
RATE_STEP = 10
WINDOW_S = 0.5
RECOVERY_STEP_S = 0.01
REFUSALS = ("expired", "rejected_infeasible", "rejected_capacity", "shed")
BACK_TO = 0.7
"""Load after the overload, as a share of the good rate."""
SERVICE = """\
apiVersion: serving.harness.dev/v1alpha1
kind: InferenceService
metadata: {name: pod-alone}
spec:
  models:
    - name: emulated
      format: Profiled
      maxBatchSize: 32
      inputs: [{name: X, datatype: FP32, shape: [384]}]
      outputs: [{name: Y, datatype: FP32, shape: [384]}]
      objective: {latencyMilliseconds: 50}
      emulation: {setupMicroseconds: 5000, computeMicrosecondsPerRow: 1000}
  workerGroups: [{name: emulated, replicas: 1}]
"""


@dataclass(frozen=True)
class Plan:
    """Seconds of each phase."""

    seeds: tuple[int, ...]
    agreed_s: float = 25.0
    search_s: float = 12.0
    overload_s: float = 30.0
    around_s: float = 8.0
    idle_s: float = 5.0

    @classmethod
    def quick(cls) -> Plan:
        """A look in about a minute; too short for figures to publish."""
        return cls(seeds=(1,), agreed_s=8.0, search_s=4.0, overload_s=8.0, around_s=4.0)


def send(pod: Runtime, schedule: RateSchedule, seed: int) -> LoadReport:
    """Poisson arrivals with 50 ms deadlines."""
    urls = (pod.grpc,)
    return run_load(LoadConfig(urls=urls, model="emulated", schedule=schedule, deadline_ns=DEADLINE_NS, seed=seed))


def measure(pod: Runtime, rate: float, seconds: float, seed: int) -> dict[str, Any]:
    """One run at one rate: on-time share, batches, CPU."""
    before, meter = pod.scrape(), CpuMeter(pod)
    meter.start()
    report = send(pod, RateSchedule.constant(rate, seconds), seed)
    cpu, after = meter.shares(), pod.scrape()
    batches = after.batches - before.batches
    figures = report.summary()
    found = {
        "rate": rate,
        "seed": seed,
        "sent": figures["sent"],
        "on_time_ratio": figures["on_time_ratio"],
        "outcomes": figures["outcomes"],
        "latency_ms": figures["latency_ms"],
        "send_lag_ms": figures["send_lag_ms"],
        "valid": figures["valid"],
        "mean_batch_rows": (after.batch_rows - before.batch_rows) / batches if batches else None,
        "cpu_cores": cpu,
    }
    say(
        f"  {rate:g}/s seed {seed}: {found['on_time_ratio']:.3%} on time, batch rows {found['mean_batch_rows'] or 0:.1f}, "
        f"p99 {found['latency_ms']['p99'] or 0:.1f} ms, lag p99 {found['send_lag_ms']['p99']:.2f} ms"
        + ("" if found["valid"] else "  NOT VALID")
    )
    return found


def idle_cpu(pod: Runtime, seconds: float) -> float:
    """Share of one core that the runtime uses with nothing to do."""
    meter = CpuMeter(pod)
    meter.start()
    time.sleep(seconds)
    shares = meter.shares()
    return shares["server"] + shares["executor"]


def search(pod: Runtime, plan: Plan) -> tuple[float, list[dict[str, Any]]]:
    """Largest rate (in steps) at which all seeds together have 99 % on time, by bisection; 0 when not even half the agreed rate has."""
    runs: list[dict[str, Any]] = []

    def good(rate: float) -> bool:
        mine = [measure(pod, rate, plan.search_s, seed) for seed in plan.seeds]
        runs.extend(mine)
        return bool(sum(run["on_time_ratio"] * run["sent"] for run in mine) >= GOOD * sum(run["sent"] for run in mine))

    low, high = 0, BOUND_RATE // RATE_STEP + 1
    first = AGREED_RATE // RATE_STEP
    while high - low > 1:
        middle = first if low == 0 and high > first else (low + high) // 2
        low, high = (middle, high) if good(middle * RATE_STEP) else (low, middle)
    return low * RATE_STEP, runs


def overload(pod: Runtime, good_rate: float, plan: Plan, seed: int) -> dict[str, Any]:
    """1.5 times the good rate between two calm stretches: refusals, memory, recovery."""
    calm, heavy = BACK_TO * good_rate, 1.5 * good_rate
    schedule = RateSchedule.parse(f"{calm}:{plan.around_s},{heavy}:{plan.overload_s},{calm}:{plan.around_s}")
    before = pod.scrape()
    with _MemoryWatch(pod) as memory:
        report = send(pod, schedule, seed)
    after = pod.scrape()
    records = report.records
    ended = records.done_ns >= 0
    refused = ~records.answered
    # Named by the server in a trailer; a status code's own name means that the client's deadline came first.
    named = np.isin(records.outcome, [i for i, name in enumerate(records.outcomes) if name.islower()])
    by_server = sum(after.outcomes.get(name, 0) - before.outcomes.get(name, 0) for name in REFUSALS)
    refusal_ms = (records.done_ns - records.sent_ns)[refused & named] / 1e6
    fall_s = plan.around_s + plan.overload_s
    during = (records.intended_ns >= plan.around_s * 1e9) & (records.intended_ns < fall_s * 1e9)
    return {
        "schedule": f"{calm:g}/s {plan.around_s:g} s, {heavy:g}/s {plan.overload_s:g} s, {calm:g}/s {plan.around_s:g} s",
        "seed": seed,
        "sent": len(records),
        "without_end": int((~ended).sum()),
        "valid": report.valid,
        "send_lag_ms": report.summary()["send_lag_ms"],
        "outcomes": report.outcomes,
        "on_time_per_second_in_overload": float(report.on_time[during].sum() / plan.overload_s),
        "on_time_ratio_in_overload": float(report.on_time[during].mean()),
        "refused": int((refused & named).sum()),
        "refused_unheard": round(by_server) - int((refused & named).sum()),
        "cut_off_by_client": int((refused & ~named).sum()),
        "refusal_ms_max": float(refusal_ms.max()) if len(refusal_ms) else None,
        "refused_after_deadline": int((refusal_ms > DEADLINE_NS / 1e6).sum()),
        "recovery_s": recovery_s(report, fall_s),
        "rss_mib": memory.figures(),
        "windows": report.windows(WINDOW_S),
    }


def recovery_s(report: LoadReport, fall_s: float) -> float | None:
    """Seconds after the load fell until the next WINDOW_S have 99 % on time (scheduling study's measure); None: never."""
    times_s = report.records.intended_ns / 1e9
    on_time = report.on_time
    for start_s in np.arange(fall_s, report.config.planned_s - WINDOW_S, RECOVERY_STEP_S):
        first, last = np.searchsorted(times_s, (start_s, start_s + WINDOW_S))
        if last > first and on_time[first:last].mean() >= GOOD:
            return round(float(start_s - fall_s), 2)
    return None


class _MemoryWatch:
    """Resident memory once a second."""

    def __init__(self, pod: Runtime) -> None:
        self._pod = pod
        self._seen: list[int] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._seen.append(self._pod.rss_bytes())

    def _watch(self) -> None:
        while not self._end.is_set():
            self._seen.append(self._pod.rss_bytes())
            self._end.wait(1.0)

    def figures(self) -> dict[str, float]:
        """Before, highest and after, in MiB."""
        mib = [seen / 2**20 for seen in self._seen]
        return {"before": mib[0], "max": max(mib), "after": mib[-1]}


def checks_of(result: dict[str, Any]) -> list[Check]:
    """What the project promises of this setting."""
    agreed = min(run["on_time_ratio"] for run in result["agreed"])
    first, second = result["overload"]
    recovery = max((run["recovery_s"] if run["recovery_s"] is not None else float("inf")) for run in (first, second))
    late = sum(
        run["refused_after_deadline"] + max(0, run["refused_unheard"]) + run["without_end"] for run in (first, second)
    )
    growth = second["rss_mib"]["after"] - first["rss_mib"]["after"]
    share = (
        min(run["on_time_per_second_in_overload"] for run in (first, second)) / result["good_rate"]
        if result["good_rate"]
        else 0
    )
    all_valid = all(run["valid"] for run in [*result["agreed"], first, second])
    return [
        Check("on time at 550 requests/s, worst seed", f"{agreed:.3%}", ">= 99 %", agreed >= GOOD),
        Check("CPU at rest", f"{result['idle_cpu_cores']:.3%} of a core", "< 1 %", result["idle_cpu_cores"] < 0.01),
        Check("on time per second in overload / good rate", f"{share:.2f}", ">= 0.8 (no collapse)", share >= 0.8),
        Check("refusals after their deadline or never", str(late), "0", late == 0),
        Check("99 % on time again after the overload", f"{recovery:g} s", "<= 2 s", recovery <= 2),
        Check(
            "memory after a second overload", f"{growth:+.1f} MiB", "<= 5 MiB more than after the first", growth <= 5
        ),
        Check("load generator on time itself", "yes" if all_valid else "no", "yes", all_valid),
    ]


def tables_of(result: dict[str, Any]) -> list[str]:
    """The figures as Markdown."""
    where = result["machine"]
    head = (
        f"Pod alone: l(b) = 5 + 1·b ms, max batch 32, 50 ms deadlines, Poisson, load generator on the same {where['cores']} cores.\n"
        f"{where['processor']}, {where['system']}, Python {where['python']}, {result['date']}{', quick' if result['quick'] else ''}.\n"
        "Baseline: upper bound of any schedule 812-817 requests/s; simulated policies without overhead 712-728."
    )
    rows = [
        (
            run["rate"], run["seed"], f"{run['on_time_ratio']:.3%}", f"{run['mean_batch_rows'] or 0:.1f}",
            *(f"{run['latency_ms'][p] or 0:.1f}" for p in ("p50", "p99")), f"{run['send_lag_ms']['p99']:.2f}",
            *(f"{run['cpu_cores'][name]:.2f}" for name in ("server", "executor", "client")),
        )
        for run in [*result["agreed"], *result["search"]]
    ]  # fmt: skip
    columns = (
        "requests/s", "seed", "on time", "batch rows", "p50 ms", "p99 ms", "lag p99 ms", "server cores", "executor cores", "client cores",
    )  # fmt: skip
    over = [
        (
            run["schedule"], f"{run['on_time_per_second_in_overload']:.0f}", f"{run['on_time_ratio_in_overload']:.1%}", run["refused"],
            f"{run['refusal_ms_max'] or 0:.1f}", run["recovery_s"], " / ".join(f"{v:.0f}" for v in run["rss_mib"].values()),
        )
        for run in result["overload"]
    ]  # fmt: skip
    over_columns = (
        "load",
        "on time/s in overload",
        "share",
        "refused",
        "slowest refusal ms",
        "recovery s",
        "MiB before / max / after",
    )
    good = f"Largest rate with 99 % on time: **{result['good_rate']:g} requests/s** (steps of {RATE_STEP})."
    return [head, markdown(columns, rows), good, markdown(over_columns, over)]


def main() -> int:
    """Run all phases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="about a minute, one seed")
    parser.add_argument("--seeds", default="1,2,3")
    arguments, _ = parser.parse_known_args()  # `make bench` gives both benchmarks the same words.
    plan = Plan.quick() if arguments.quick else Plan(seeds=tuple(int(seed) for seed in arguments.seeds.split(",")))
    result: dict[str, Any] = {
        "quick": arguments.quick,
        "seeds": plan.seeds,
        "machine": machine(),
        "date": time.strftime("%Y-%m-%d"),
    }
    with tempfile.TemporaryDirectory() as folder:
        service = Path(folder) / "service.yaml"
        service.write_text(SERVICE)
        with runtime(service) as pod:
            measure(pod, 100, 2, 0)  # What happens only once (imports, first batches) is not part of a figure.
            result["idle_cpu_cores"] = idle_cpu(pod, plan.idle_s)
            say(f"CPU at rest: {result['idle_cpu_cores']:.3%} of a core")
            result["agreed"] = [measure(pod, AGREED_RATE, plan.agreed_s, seed) for seed in plan.seeds]
            result["good_rate"], result["search"] = search(pod, plan)
            # Twice: the second shows whether memory is flat once buffers have their size.
            result["overload"] = [overload(pod, max(result["good_rate"], 100), plan, seed) for seed in (11, 12)]
    return write_results("pod_alone", result, tables_of(result), checks_of(result))


if __name__ == "__main__":
    sys.exit(main())
