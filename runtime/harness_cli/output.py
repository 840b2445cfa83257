"""Where output goes: with ``--json`` stdout carries machine-readable lines only and everything for people goes to stderr."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def _console(*, stderr: bool) -> Console:
    return Console(stderr=stderr, highlight=False, soft_wrap=True)


@dataclass(slots=True)
class Output:
    """The two channels of a command."""

    json: bool = False
    console: Console = field(init=False)

    def __post_init__(self) -> None:
        self.console = _console(stderr=self.json)

    @property
    def live(self) -> bool:
        """Whether moving output (progress, live tables) makes sense: a terminal is there to show it."""
        return self.console.is_terminal

    def say(self, text: Any) -> None:
        """Print text or a rich object for a person."""
        self.console.print(text)

    def emit(self, value: Mapping[str, Any]) -> None:
        """Print one JSON object as one line on stdout; only with ``--json``."""
        if self.json:
            sys.stdout.write(json.dumps(value) + "\n")
            sys.stdout.flush()


def warn(text: str) -> None:
    """Print a warning to stderr, in colour where there is a terminal."""
    _console(stderr=True).print(text, style="bold yellow", markup=False)


def fail(text: str) -> None:
    """Print an error to stderr."""
    console = _console(stderr=True)
    console.print("error: ", style="bold red", end="", markup=False)
    console.print(text, markup=False)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write one indented JSON document. Raises OSError."""
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
