"""Entry point of the command ``harness``."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from harness_cli.errors import CliError
from harness_cli.load.command import load
from harness_cli.output import fail
from harness_cli.profile.command import profile
from harness_cli.run.command import run
from harness_cli.usage import PlainGroup
from harness_cli.validate_command import validate

app = typer.Typer(
    name="harness",
    cls=PlainGroup,
    help="Deadline-aware batched inference for one-shot models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command(short_help="Serve a file's models on this machine.")(run)
app.command(short_help="Send requests with deadlines; say how many were on time.")(load)
app.command(short_help="Measure the latency of a model by batch size.")(profile)
app.command(short_help="Report every fault of configuration files.")(validate)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("harness-serving"))
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Serve models on this machine, send load, measure latency profiles, check configuration files."""


def main() -> None:
    """Run the command line; a user's mistake ends with one line and an exit code, not with a traceback."""
    try:
        app(standalone_mode=True)
    except CliError as error:
        fail(error.message)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
