"""The live table of ``harness run``: as many columns as the terminal has room for; who, where and how never go."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from harness_cli.run.replica import Replica, ReplicaState
from harness_cli.run.scrape import Figures

_STYLE = {
    ReplicaState.READY: "green",
    ReplicaState.CRASHED: "bold red",
    ReplicaState.DRAINING: "yellow",
    ReplicaState.STOPPED: "dim",
}
_COLUMNS: dict[str, Callable[[Figures], str]] = {
    "queue": lambda figures: str(figures.queue),
    "in\nflight": lambda figures: str(figures.in_flight),
    "batch\nrows": lambda figures: _number(figures.mean_batch_rows, "{:.1f}"),
    "on time": lambda figures: _number(figures.on_time_ratio, "{:.2%}"),
    "busy": lambda figures: _number(figures.busy, "{:.0%}"),
    "req/s": lambda figures: f"{figures.requests_per_scrape:.0f}",
    "p50 ms": lambda figures: _number(figures.p50_ms, "{:.1f}"),
    "p99 ms": lambda figures: _number(figures.p99_ms, "{:.1f}"),
}
_FIRST_TO_GO = ("in\nflight", "p50 ms", "batch\nrows", "queue", "busy", "p99 ms", "req/s", "on time")


def live_table(
    console: Console, title: str, replicas: Sequence[Replica], figures: Mapping[str, Figures | None]
) -> Table:
    """One line per replica, as wide as the console at most; figures cover the last ten seconds.

    Where room is short, addresses on this machine shrink to their ports, and then figures are left out.
    """
    local = all(is_loopback(replica.grpc) for replica in replicas)
    columns = list(_COLUMNS)
    for dropped in (None, *([""] if local else []), *_FIRST_TO_GO):
        columns = [column for column in columns if column != dropped]
        table = _table(title, replicas, figures, columns, ports_only=local and dropped is not None)
        if Measurement.get(console, console.options.update(max_width=10_000), table).maximum <= console.width:
            break
    return table


def is_loopback(address: str) -> bool:
    """Whether ``host:port`` is reached from this machine only; true of an address that is not known yet."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return not host or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _table(
    title: str,
    replicas: Sequence[Replica],
    figures: Mapping[str, Figures | None],
    columns: Sequence[str],
    *,
    ports_only: bool,
) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        caption="figures of the last 10 s; Ctrl-C drains and ends",
        caption_justify="left",
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
    )
    table.add_column("replica", overflow="fold")
    table.add_column("gRPC\nport" if ports_only else "gRPC address", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for replica in replicas:
        address = replica.grpc.rpartition(":")[2] if ports_only else replica.grpc
        found = figures.get(replica.name)
        cells = [_COLUMNS[column](found) if found is not None else "" for column in columns]
        table.add_row(replica.name, address, _state(replica), *cells)
    return table


def _state(replica: Replica) -> str:
    times = f", restarted {replica.restarts}x" if replica.restarts else ""
    return f"[{_STYLE.get(replica.state, 'cyan')}]{replica.state}[/]{times}"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
