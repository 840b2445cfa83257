"""The live table of ``harness run``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from harness_cli.run.replica import Replica, ReplicaState
from harness_cli.run.scrape import Figures

_STYLE = {
    ReplicaState.READY: "green",
    ReplicaState.CRASHED: "bold red",
    ReplicaState.DRAINING: "yellow",
    ReplicaState.STOPPED: "dim",
}
_COLUMNS = ("queue", "in flight", "batch rows", "on time", "busy", "requests/s", "p50 ms", "p99 ms")


def live_table(title: str, replicas: Sequence[Replica], figures: Mapping[str, Figures | None]) -> Table:
    """One line per replica; figures cover the last ten seconds."""
    table = Table(
        title=title,
        title_justify="left",
        caption="figures of the last 10 s; Ctrl-C drains and ends",
        caption_justify="left",
    )
    for column in ("replica", "gRPC address", "state", "restarts"):
        table.add_column(column)
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    for replica in replicas:
        state = f"[{_STYLE.get(replica.state, 'cyan')}]{replica.state}[/]"
        table.add_row(replica.name, replica.grpc, state, str(replica.restarts), *_cells(figures.get(replica.name)))
    return table


def _cells(figures: Figures | None) -> list[str]:
    if figures is None:
        return [""] * len(_COLUMNS)
    return [
        str(figures.queue),
        str(figures.in_flight),
        _number(figures.mean_batch_rows, "{:.1f}"),
        _number(figures.on_time_ratio, "{:.2%}"),
        _number(figures.busy, "{:.0%}"),
        f"{figures.requests_per_scrape:.0f}",
        _number(figures.p50_ms, "{:.1f}"),
        _number(figures.p99_ms, "{:.1f}"),
    ]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
