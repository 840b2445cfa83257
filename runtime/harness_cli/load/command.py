"""``harness load``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from harness_sim.workloads import Arrivals
from rich.markup import escape

from harness_cli.errors import FAILED, INVALID_RESULT, CliError
from harness_cli.load.config import LoadConfig
from harness_cli.output import Output, warn, write_json

STDOUT = Path("-")


def load(
    url: Annotated[
        list[str],
        typer.Option(metavar="HOST:PORT", help="Server (its gRPC port). The option repeats: servers take turns."),
    ],
    model: Annotated[str, typer.Option(help="Name of the model.")],
    rate: Annotated[
        float | None, typer.Option(help="Requests per second, sent whatever becomes of earlier ones.")
    ] = None,
    duration: Annotated[float | None, typer.Option(help="Seconds of sending (10; with a trace: its length).")] = None,
    deadline_ms: Annotated[
        float | None,
        typer.Option(
            help="Parameter `timeout` and gRPC deadline; on time = answered OK within it of the intended send time."
        ),
    ] = None,
    arrivals: Annotated[Arrivals | None, typer.Option(help="Arrival process (poisson).")] = None,
    shape: Annotated[float | None, typer.Option(help="Shape k of gamma arrivals: below 1 bursty.")] = None,
    trace: Annotated[Path | None, typer.Option(help="CSV or .csv.gz with a column t_ms of arrival times.")] = None,
    speed: Annotated[
        float | None, typer.Option(help="Replay the trace this many times as fast, instead of at --rate.")
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(metavar="R:S,R:S,R-R:S", help="Rates over time: R requests/s for S seconds; R-R is a ramp."),
    ] = None,
    closed: Annotated[int | None, typer.Option(min=1, help="Closed loop: N clients that wait for each answer.")] = None,
    weight: Annotated[
        str | None, typer.Option(metavar="W:SHARE,…", help="Weights of requests and their shares.")
    ] = None,
    priority: Annotated[int, typer.Option(min=0, help="Parameter `priority`: 1 highest, 0 not sent.")] = 0,
    input: Annotated[  # noqa: A002  # the option's name
        Path | None,
        typer.Option(help="Real inputs: .npz, .json or .txt (default: random ones of the model's signature)."),
    ] = None,
    rows: Annotated[str | None, typer.Option(metavar="N or N:SHARE,…", help="Rows per request (1).")] = None,
    dim: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=N", help="Size of the variable dimensions of a random input; N: of all others."),
    ] = None,
    connections: Annotated[int, typer.Option(min=1, help="TCP connections per server.")] = 1,
    version: Annotated[str, typer.Option(help="Version of the model (default: the server's choice).")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Seed of arrivals, weights and random inputs.")] = 0,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE or -", help="Write the figures as JSON; - is stdout.")
    ] = None,
) -> None:
    """Send requests with deadlines to a server, and say how many were answered on time.

    Latency counts from the time at which a request was meant to be sent, so a slow server cannot hide behind its own
    slowness. If the generator itself was late (p99 send lag above 5 ms or a tenth of the deadline) the result is not
    valid and the exit code is 3. If not one request was served (invalid, unavailable, failed …) it is 1.
    """
    from harness_cli.load.options import LoadOptions

    options = LoadOptions(
        url=url, model=model, version=version, rate=rate, duration=duration, deadline_ms=deadline_ms, arrivals=arrivals,
        shape=shape, trace=trace, speed=speed, schedule=schedule, closed=closed, weight=weight, priority=priority,
        input=input, rows=rows, dim=dim or [], connections=connections, seed=seed,
    )  # fmt: skip
    _run(options.config(), json)


def _run(config: LoadConfig, json: Path | None) -> None:
    from harness_cli.load.engine import run_load
    from harness_cli.load.view import first_messages, progress_line, result_table

    output = Output(json=json == STDOUT)
    with progress_line(output, deadline=config.deadline_ns is not None) as show:
        try:
            report = run_load(config, show)
        except ValueError as error:
            raise CliError(str(error)) from None
    output.say(result_table(report))
    for line in first_messages(report):
        output.say(escape(line))
    output.emit(report.summary())
    if json is not None and json != STDOUT:
        try:
            write_json(json, report.summary())
        except OSError as error:
            raise CliError(f"--json {json}: {error.strerror or error}", exit_code=FAILED) from None
    if not report.valid:
        warn(f"NOT VALID: {'; '.join(report.faults)}")
    if report.nothing_served:
        warn(f"NOTHING WAS SERVED: all {len(report.records)} requests ended as {', '.join(report.outcomes)}")
        raise typer.Exit(FAILED)
    if report.nothing_answered:
        warn(f"NOTHING WAS ANSWERED: all {len(report.records)} requests ended as {', '.join(report.outcomes)}")
    if not report.valid:
        raise typer.Exit(INVALID_RESULT)
