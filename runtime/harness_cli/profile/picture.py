"""A picture of latency profiles: l(b) with its linear fit, speedup S(n) and utilisation U(n) (scheduling theory: docs/concepts.md)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness_core.profile import LatencyProfile

from harness_cli.errors import CliError

DPI = 120
_MS = 1e6


def draw(path: Path, title: str, profiles: Mapping[str, LatencyProfile]) -> None:
    """Write a picture in the format of the suffix (``targets.SUFFIXES``) with one colour per bucket. Raises OSError when the file cannot be written."""
    # The object interface, not pyplot: no global state and no window system.
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise CliError("--picture needs matplotlib: install harness-serving with its extra [sim]") from None

    figure = Figure(figsize=(13, 4.2), layout="constrained")
    latency, speedup, utilisation = figure.subplots(1, 3)
    for k, (bucket, profile) in enumerate(profiles.items()):
        _draw_one(latency, speedup, utilisation, bucket or "all shapes", profile, f"C{k % 10}")
    _label(latency, "l(b): latency of a batch (o p50, - p99, line: fit)", "batch size b", "ms")
    _label(speedup, "S(n) = n·l(1)/l(n): speedup", "batch size n", "times")
    _label(utilisation, "U(n): utilisation", "batch size n", "share")
    utilisation.set_ylim(0, 1.05)
    latency.legend(fontsize="small")
    figure.suptitle(title)
    figure.savefig(path, dpi=DPI)


def _draw_one(latency: Any, speedup: Any, utilisation: Any, name: str, profile: LatencyProfile, colour: str) -> None:
    sizes = [point.size for point in profile.points]
    fit = profile.fit()
    latency.plot(sizes, [point.p50_ns / _MS for point in profile.points], "o", color=colour)
    tails = [(point.size, point.p99_ns / _MS) for point in profile.points if point.p99_ns is not None]
    if tails:
        latency.plot(*zip(*tails, strict=True), "_", color=colour)
    ends = (0, sizes[-1])
    line = [(fit.beta_ns + fit.alpha_ns * size) / _MS for size in ends]
    latency.plot(
        ends,
        line,
        "-",
        color=colour,
        alpha=0.5,
        label=f"{name}: {fit.beta_ns / _MS:.2f} + {fit.alpha_ns / _MS:.3f}·b ms",
    )
    every = list(range(1, sizes[-1] + 1))
    speedup.plot(every, [profile.speedup(size) for size in every], color=colour, label=name)
    utilisation.plot(every, [profile.utilisation(size) for size in every], color=colour, label=name)


def _label(axes: Any, title: str, across: str, up: str) -> None:
    axes.set_title(title, fontsize="medium")
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
