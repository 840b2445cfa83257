"""A load test for people: a progress line while it runs, a table at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

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


class Parts:
    """Parts of a cell, joined by commas; a line is broken between parts only, so that no number loses its unit."""

    def __init__(self, *parts: str) -> None:
        self._parts = [*(f"{part}," for part in parts[:-1]), *parts[-1:]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Lines as wide as there is room for."""
        lines: list[str] = []
        for part in self._parts:
            if lines and cell_len(lines[-1]) + 1 + cell_len(part) <= options.max_width:
                lines[-1] += f" {part}"
            else:
                lines.append(part)
        yield Text("\n".join(lines))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """From the longest part to all in one line."""
        longest = max(map(cell_len, self._parts), default=0)
        return Measurement(longest, sum(map(cell_len, self._parts)) + max(0, len(self._parts) - 1))


def result_table(report: LoadReport) -> Table:
    """The figures of a report."""
    figures = report.summary()
    rates, deadline = figures["requests_per_second"], figures["deadline_ms"]
    table = Table(
        title=f"{figures['model']} version {figures['version'] or '?'}", show_header=False, title_justify="left"
    )
    table.add_row("load", _load_text(figures))
    table.add_row(
        "sent", Parts(f"{figures['sent']} requests", f"{figures['rows']} rows", f"{rates['sent']:.1f} requests/s")
    )
    if deadline is None:
        # Every answer counts then: a share of answers, and no word of time.
        name = "answered"
        table.add_row(
            name,
            Parts(f"{rates['answered']:.1f} requests/s", f"{figures['on_time_ratio']:.3%} of all; no deadline was set"),
        )
    else:
        name = "on time"
        table.add_row(
            "answered", Parts(f"{rates['answered']:.1f} requests/s", f"on time {rates['on_time']:.1f} requests/s")
        )
        table.add_row(name, f"{figures['on_time_ratio']:.3%} (within {deadline:g} ms)")
    if figures["by_weight"]:
        levels = [f"weight {weight}: {level['on_time_ratio']:.3%}" for weight, level in figures["by_weight"].items()]
        table.add_row(f"{name}, weighted", Parts(f"{figures['weighted_on_time_ratio']:.3%} in all", *levels))
    outcomes = [f"{name} {count}" for name, count in figures["outcomes"].items()]
    table.add_row("outcomes", Parts(*outcomes or ["none"]))
    table.add_row("latency", _distribution(figures["latency_ms"]))
    table.add_row("own send lag", _distribution(figures["send_lag_ms"]))
    return table


def first_messages(report: LoadReport) -> list[str]:
    """One line per outcome that came with a message: the first one of them."""
    return [f"first {name}: {report.messages[name]}" for name in report.outcomes if name in report.messages]


def _load_text(figures: dict[str, Any]) -> Parts:
    if figures["loop"] == "closed":
        return Parts("closed loop", f"{figures['clients']} clients", f"{figures['duration_s']:g} s")
    rate = figures["requests_per_second"]["offered"]
    return Parts(figures["arrivals"], f"{rate:g} requests/s", f"{figures['duration_s']:g} s", f"seed {figures['seed']}")


def _distribution(values: dict[str, float | None]) -> Parts:
    shown = [f"{name} {value:.2f}" for name, value in values.items() if value is not None]
    return Parts(*shown[:-1], f"{shown[-1]} ms") if shown else Parts("none")
