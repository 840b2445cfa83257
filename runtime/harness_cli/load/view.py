"""A load test for people: a progress line while it runs, a table at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from harness_cli.load.engine import Progress as Moment
from harness_cli.load.report import LoadReport
from harness_cli.output import Output


@contextlib.contextmanager
def progress_line(output: Output, *, deadline: bool) -> Iterator[Callable[[Moment], None] | None]:
    """A hook that keeps a progress line; None without a terminal. Without a ``deadline`` nothing is on time, only answered."""
    word = "on time" if deadline else "answered"
    if not output.live:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[numbers]}"),
    )
    with Progress(*columns, console=output.console, transient=True) as bars:
        task = bars.add_task("sending", total=None, numbers="")

        def show(moment: Moment) -> None:
            share = f"{moment.on_time / moment.ended:.2%} {word}" if moment.ended else ""
            numbers = f"{moment.sent} sent, {moment.sent - moment.ended} open, {share}"
            bars.update(
                task, completed=min(moment.elapsed_s, moment.planned_s), total=moment.planned_s, numbers=numbers
            )

        yield show


def result_table(report: LoadReport) -> Table:
    """The figures of a report."""
    figures = report.summary()
    rates, deadline = figures["requests_per_second"], figures["deadline_ms"]
    table = Table(
        title=f"{figures['model']} version {figures['version'] or '?'}", show_header=False, title_justify="left"
    )
    table.add_row("load", _load_text(figures))
    table.add_row("sent", f"{figures['sent']} requests, {figures['rows']} rows, {rates['sent']:.1f} requests/s")
    if deadline is None:
        # Every answer counts then: a share of answers, and no word of time.
        name = "answered"
        table.add_row(
            name, f"{rates['answered']:.1f} requests/s, {figures['on_time_ratio']:.3%} of all; no deadline was set"
        )
    else:
        name = "on time"
        table.add_row("answered", f"{rates['answered']:.1f} requests/s, on time {rates['on_time']:.1f} requests/s")
        table.add_row(name, f"{figures['on_time_ratio']:.3%} (within {deadline:g} ms)")
    if figures["by_weight"]:
        levels = ", ".join(
            f"weight {weight}: {level['on_time_ratio']:.3%}" for weight, level in figures["by_weight"].items()
        )
        table.add_row(f"{name}, weighted", f"{figures['weighted_on_time_ratio']:.3%} ({levels})")
    table.add_row("outcomes", ", ".join(f"{name} {count}" for name, count in figures["outcomes"].items()) or "none")
    table.add_row("latency", _distribution(figures["latency_ms"]))
    table.add_row("own send lag", _distribution(figures["send_lag_ms"]))
    return table


def first_messages(report: LoadReport) -> list[str]:
    """One line per outcome that came with a message: the first one of them."""
    return [f"first {name}: {report.messages[name]}" for name in report.outcomes if name in report.messages]


def _load_text(figures: dict[str, Any]) -> str:
    if figures["loop"] == "closed":
        return f"closed loop, {figures['clients']} clients, {figures['duration_s']:g} s"
    rate = figures["requests_per_second"]["offered"]
    return f"{figures['arrivals']}, {rate:g} requests/s, {figures['duration_s']:g} s, seed {figures['seed']}"


def _distribution(values: dict[str, float | None]) -> str:
    shown = [f"{name} {value:.2f}" for name, value in values.items() if value is not None]
    return f"{', '.join(shown)} ms" if shown else "none"
