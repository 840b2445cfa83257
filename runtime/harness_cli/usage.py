"""What Typer makes of a wrong value, in plain words: the option, the value as typed, and the limit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from harness_cli.errors import CliError

NamedFile = Annotated[Path | None, typer.Argument(metavar="FILE", help="The same as -f FILE.")]
FileOption = Annotated[
    list[Path] | None,
    typer.Option("--file", "-f", metavar="FILE", help="InferenceService YAML: the file that kubectl apply takes."),
]
"""One file; a list only so that a second one is not silently dropped (:func:`choose_file`)."""

_WORDS = {
    "float_parsing": "is not a number",
    "int_parsing": "is not a whole number",
    "int_from_float": "is not a whole number",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "value_error": "{error}",
}
"""Of pydantic's error types, with which Typer checks values."""


class PlainGroup(TyperGroup):
    """A command group whose commands name a wrong value in one line."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Raises CliError for a value that an option does not take."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            message = _plain(error)
            if message is None:
                raise
            raise CliError(message) from None


def _plain(error: typer.BadParameter) -> str | None:
    """One line for a value that pydantic refused; None for every other mistake."""
    findings = getattr(error.__cause__, "errors", None)
    if error.param is None or findings is None:
        return None
    [finding, *_] = findings()
    words = _WORDS.get(finding["type"])
    if words is None:
        return None
    option = max(error.param.opts, key=len)
    return f"{option} {finding['input']}: {words.format(**finding.get('ctx', {}))}"


def choose_file(command: str, named: Path | None, options: list[Path]) -> Path:
    """The one file of a command that takes it as an argument or after ``-f``. Raises CliError."""
    given = [*options] if named is None else [named, *options]
    if len(given) != 1:
        wrong = "no file is given" if not given else f"one file is taken, {len(given)} are given"
        raise CliError(f"{wrong}: harness {command} FILE, or harness {command} -f FILE")
    return given[0]


def check_device(device: str) -> None:
    """Raises CliError for what is no ``--device``."""
    from harness_runtime.executor.settings import DEVICES

    if device not in DEVICES:
        raise CliError(f"--device: {device!r} is not one of {', '.join(DEVICES)}")
