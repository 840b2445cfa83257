"""The live table of harness run at the widths that terminals have."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from harness_cli.run.replica import Replica, ReplicaState
from harness_cli.run.scrape import Figures
from harness_cli.run.view import is_loopback, live_table
from rich.console import Console

FIGURES = Figures(
    queue=4096,
    in_flight=2,
    busy=1.0,
    mean_batch_rows=31.9,
    on_time_ratio=1.0,
    requests_per_scrape=12345,
    p50_ms=1234.5,
    p99_ms=2345.6,
)


def replicas(host: str, names=("cpu-0", "cpu-1")) -> list[Replica]:
    states = (ReplicaState.READY, ReplicaState.LISTENING)
    return [
        Replica(
            name=name,
            group="cpu",
            command=lambda *_: [],
            grpc=f"{host}:{12701 + 2 * k}",
            state=states[k],
            restarts=k * 2,
        )
        for k, name in enumerate(names)
    ]


def render(width: int, shown: list[Replica], figures: Figures | None = FIGURES) -> list[str]:
    console = Console(file=io.StringIO(), width=width, soft_wrap=True)
    console.print(live_table(console, "text-embedding (service.yaml)", shown, {each.name: figures for each in shown}))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    return lines


def line_of(lines: list[str], name: str) -> list[str]:
    return next(line for line in lines if line.startswith(name)).split()


def test_at_120_columns_everything_is_there():
    """Whole addresses and every figure."""
    lines = render(120, replicas("127.0.0.1"))
    assert line_of(lines, "cpu-0") == [
        *("cpu-0", "127.0.0.1:12701", "ready", "4096", "2", "31.9", "100.00%", "100%", "12345", "1234.5", "2345.6")
    ]
    assert line_of(lines, "cpu-1")[:5] == ["cpu-1", "127.0.0.1:12703", "listening,", "restarted", "2x"]


def test_at_80_columns_replica_port_and_state_are_whole():
    """On this machine the port says it all; what is most worth knowing stays."""
    lines = render(80, replicas("127.0.0.1"))
    assert line_of(lines, "cpu-0")[:3] == ["cpu-0", "12701", "ready"]
    assert line_of(lines, "cpu-1")[:5] == ["cpu-1", "12703", "listening,", "restarted", "2x"]
    head = " ".join(" ".join(lines[:3]).split())
    for column in ("gRPC port", "on time", "req/s", "p99 ms", "busy"):
        assert all(word in head for word in column.split())


def test_at_80_columns_an_address_elsewhere_is_whole():
    """A port alone would not say where."""
    lines = render(80, replicas("192.168.100.200"))
    assert line_of(lines, "cpu-0")[:3] == ["cpu-0", "192.168.100.200:12701", "ready"]


@pytest.mark.parametrize("width", [50, 60, 100, 200])
def test_no_width_cuts_what_matters(width):
    """Columns go one by one; with nothing measured yet the cells are empty."""
    lines = render(width, replicas("127.0.0.1"), None)
    assert line_of(lines, "cpu-0")[-1] == "ready"
    assert any("12701" in line for line in lines)


def test_before_replicas_listen_they_have_no_address():
    """The table is there from the start."""
    waiting = [replace(each, grpc="", state=ReplicaState.STARTING, restarts=0) for each in replicas("127.0.0.1")]
    assert line_of(render(80, waiting, None), "cpu-0") == ["cpu-0", "starting"]


def test_loopback():
    """Names and both families."""
    assert all(map(is_loopback, ("127.0.0.1:1", "127.3.2.1:1", "[::1]:1", "localhost:1", "")))
    assert not any(map(is_loopback, ("0.0.0.0:1", "10.0.0.1:1", "[::]:1", "gpu-host:1")))
