"""Whether a profile and its picture can be written, asked before minutes are spent on measuring."""

from __future__ import annotations

import os
from pathlib import Path

from harness_cli.errors import CliError

SUFFIXES = (".png", ".svg", ".pdf")
"""Formats of the picture."""


def check_targets(output: Path, picture: Path | None, *, force: bool) -> None:
    """Raises CliError for a suffix that is no picture, a file that is there (unless ``force``), and a place that cannot be written."""
    if picture is not None:
        if picture.suffix.lower() not in SUFFIXES:
            raise CliError(f"--picture {picture}: the name must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
        if picture.resolve() == output.resolve():
            raise CliError(f"--picture {picture}: is the file of --output too")
    for option, path in (("--output", output), ("--picture", picture)):
        if path is not None:
            _check(option, path, force=force)


def _check(option: str, path: Path, *, force: bool) -> None:
    if path.is_dir():
        raise CliError(f"{option} {path}: is a directory")
    if path.exists():
        if not force:
            raise CliError(f"{path} is there already: --force replaces it")
        writable = os.access(path, os.W_OK)
    elif not path.parent.is_dir():
        raise CliError(f"{option} {path}: there is no directory {path.parent}")
    else:
        writable = os.access(path.parent, os.W_OK | os.X_OK)
    if not writable:
        raise CliError(f"{option} {path}: cannot be written: permission denied")
