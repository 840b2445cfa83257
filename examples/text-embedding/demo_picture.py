"""The demo's picture: four panels over the rate of requests and the batch size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from demo_figures import Step
    from harness_core.profile import LatencyProfile

DPI = 110


def draw(
    path: Path, steps: Sequence[Step], profiles: Mapping[int, LatencyProfile], capacity: float, deadline_ms: float
) -> None:
    """Write a PNG. Raises OSError."""
    # The object interface, not pyplot: no global state and no window system.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7.5), layout="constrained")
    (on_time, batches), (latency, profile) = figure.subplots(2, 2)
    rates = [step.rate for step in steps]
    on_time.plot(rates, [100 * step.on_time_ratio for step in steps], "o-", label="on time")
    on_time.plot(rates, [100 * step.refused / max(1, step.sent) for step in steps], "x--", color="C3", label="refused")
    _label(on_time, "Requests on time and refused", "requests/s", "% of requests")
    batches.plot(rates, [step.batch_rows for step in steps], "o-", label="mean rows of a batch")
    _label(batches, "Batches form as the rate rises", "requests/s", "rows")
    latency.plot(rates, [step.latency_p99_ms for step in steps], "o-", color="C1", label="p99")
    latency.plot(rates, [step.latency_p50_ms for step in steps], "o-", color="C0", label="p50")
    latency.plot(rates, [step.formation_p50_ms for step in steps], "x--", color="C2", label="formation delay p50")
    latency.axhline(deadline_ms, color="C3", linestyle=":", label=f"deadline {deadline_ms:g} ms")
    _label(latency, "Latency of answered requests", "requests/s", "ms")
    for axes in (on_time, batches, latency):
        axes.axvline(capacity, color="grey", linestyle=":", label="measured capacity")
        axes.legend(fontsize="small")
    _draw_profiles(profile, profiles)
    figure.suptitle("all-MiniLM-L6-v2 behind Harness Serving, two replicas")
    figure.savefig(path, dpi=DPI)


def _draw_profiles(axes: Any, profiles: Mapping[int, LatencyProfile]) -> None:
    shares = axes.twinx()
    for k, (bucket, profile) in enumerate(sorted(profiles.items())):
        sizes = list(range(1, profile.points[-1].size + 1))
        axes.plot(sizes, [profile.speedup(n) for n in sizes], color=f"C{k}", label=f"S(n), {bucket} tokens")
        shares.plot(sizes, [profile.utilisation(n) for n in sizes], ":", color=f"C{k}")
    _label(axes, "Speed-up S(n), lines; utilisation U(n), dots", "rows of a batch", "times")
    shares.set_ylim(0, 1.05)
    shares.set_ylabel("share")
    axes.legend(fontsize="small")


def _label(axes: Any, title: str, across: str, up: str) -> None:
    axes.set_title(title, fontsize="medium")
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
