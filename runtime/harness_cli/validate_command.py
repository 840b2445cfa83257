"""``harness validate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness_cli.errors import FAILED, CliError
from harness_cli.output import Output

if TYPE_CHECKING:
    from harness_api.base import Finding

    from harness_cli.validate import FileReport


def validate(
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE", help="YAML files; the same as -f.")] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", help="YAML file of InferenceServices and LatencyProfiles; the option repeats."),
    ] = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="As kubectl apply would read it, instead of harness run.")
    ] = False,
    trust_repository: Annotated[
        bool, typer.Option("--trust-repository", help="Do not ask for a sha256 of models.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout; text goes to stderr.")] = False,
) -> None:
    """Report every fault of configuration files with its line and field; exit code 1 when there is one.

    Model artefacts are not looked at.
    """
    from harness_cli.validate import validate_files

    given = [*(files or []), *(file or [])]
    if not given:
        raise CliError("no file is given: harness validate FILE, or harness validate -f FILE")
    output = Output(json=json)
    reports = validate_files(given, local=not cluster, trust_repository=trust_repository)
    for report in reports:
        _say(output, report)
    valid = all(report.ok for report in reports)
    output.emit({"valid": valid, "files": [_describe(report) for report in reports]})
    if not valid:
        raise typer.Exit(FAILED)


def _say(output: Output, report: FileReport) -> None:
    from rich.markup import escape

    from harness_cli.service_file import located

    result, path = report.result, report.path
    for fault in result.faults:
        output.say(f"[red]fault[/] {escape(located(path, fault))}")
    for notice in result.notices:
        output.say(f"[yellow]note[/] {escape(located(path, notice))}")
    if report.ok:
        held = f"{len(result.services)} InferenceService(s), {len(result.profiles)} LatencyProfile(s)"
        output.say(f"[green]valid[/] {escape(str(path))}: {held}")
    else:
        output.say(f"{escape(str(path))}: {len(result.faults)} fault(s)")


def _describe(report: FileReport) -> dict[str, Any]:
    return {
        "file": str(report.path),
        "valid": report.ok,
        "faults": [_finding(fault) for fault in report.result.faults],
        "notices": [_finding(notice) for notice in report.result.notices],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {"path": finding.path, "message": finding.message, "document": finding.document, "line": finding.line}
