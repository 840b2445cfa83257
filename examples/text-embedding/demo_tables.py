"""The demo's tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from demo_figures import Step
    from harness_core.profile import LatencyProfile

SIZE = 8
"""A batch size for which S and U are shown beside the largest."""
NO_SETUP = "–"  # noqa: RUF001 - a dash, not the sign of a number
"""In place of a fitted set-up below 0, which no accelerator has."""
_MS = 1e6


def profile_table(profiles: Mapping[int, LatencyProfile], max_batch: int) -> Table:
    """l(n) = set-up + n · per row, S(n) and U(n) of every bucket."""
    title = "Measured by a replica: a batch of n rows takes l(n) ms"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0, pad_edge=False)
    for name in ("tokens", "set-up", "per row", "l(1)", f"l({max_batch})"):
        table.add_column(name, justify="right")
    for n in (SIZE, max_batch):
        table.add_column(f"S({n})", justify="right")
        table.add_column(f"U({n})", justify="right")
    for bucket, profile in sorted(profiles.items()):
        fit = profile.fit()
        numbers = (fit.alpha_ns, profile.latency_ns(1), profile.latency_ns(max_batch))
        cells = [
            NO_SETUP if fit.beta_ns < 0 else f"{fit.beta_ns / _MS:.1f}",
            *(f"{value / _MS:.1f}" for value in numbers),
        ]
        for n in (SIZE, max_batch):
            cells += [f"{profile.speedup(n):.2f}", f"{profile.utilisation(n):.2f}"]
        table.add_row(str(bucket), *cells)
    table.caption = _profile_notes(profiles, max_batch)
    table.caption_justify = "left"
    return table


def _profile_notes(profiles: Mapping[int, LatencyProfile], max_batch: int) -> str | None:
    """What a reader would stumble over; None: nothing."""
    notes = []
    if any(profile.fit().beta_ns < 0 for profile in profiles.values()):
        notes.append(f"{NO_SETUP}: no set-up to be seen, l(n) grows faster than a straight line through 0")
    worse = [
        str(bucket) for bucket, found in sorted(profiles.items()) if found.speedup(max_batch) < found.speedup(SIZE)
    ]
    if worse:
        notes.append(f"On this CPU larger batches do not pay at {', '.join(worse)} tokens: S({max_batch}) < S({SIZE})")
    return "\n".join(notes) or None


def steps_table(steps: Sequence[Step], bucket: int) -> Table:
    """One row per rate; fits 80 columns."""
    table = Table(title="Rising rate", title_justify="left", box=SIMPLE_HEAD, padding=0, pad_edge=False)
    heads = ("load", "req/s", "sent", "on time", "refused", "rows", "delay", "p50", "p99", "S(n)", "U(n)")
    for name in heads:
        table.add_column(name, justify="right")
    for step in steps:
        table.add_row(
            *(f"{step.load:.0%}", f"{step.rate:.0f}", str(step.sent), f"{step.on_time_ratio:.2%}", str(step.refused)),
            *(f"{step.batch_rows:.1f}", shown(step.formation_p50_ms), shown(step.latency_p50_ms)),
            *(shown(step.latency_p99_ms), f"{step.speedup:.2f}", f"{step.utilisation:.2f}"),
        )
    table.caption = (
        f"rows: mean rows of a batch; delay: arrival to start of execution, p50, ms; p50, p99: latency, ms;"
        f" S(n), U(n): speed-up and utilisation at the mean batch, {bucket} tokens"
    )
    table.caption_justify = "left"
    return table


def overload_line(step: Step) -> str:
    """What became of the requests that were too many."""
    if not step.refused:
        return "Overload: nothing was refused."
    given_up = f", {step.given_up} given up by the client" if step.given_up else ""
    return (
        f"Overload: {step.refused} of {step.sent} refused, {step.refused_early} of them before their deadline"
        f" (half within {shown(step.refusal_p50_ms)} ms){given_up}; {step.answered} answered."
    )


def shown(milliseconds: float | None) -> str:
    """Whole milliseconds; - where nothing happened."""
    return "-" if milliseconds is None else f"{milliseconds:.0f}"
