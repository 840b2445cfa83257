"""Reading the file of a command that works on one InferenceService."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness_api.base import Finding, Notice
from harness_api.inferenceservice import InferenceService
from harness_api.latency_profile import LatencyProfileResource
from harness_api.load import load_file

from harness_cli.errors import CliError


@dataclass(frozen=True, slots=True)
class ServiceFile:
    """A file with exactly one InferenceService, and the LatencyProfiles beside it."""

    path: Path
    service: InferenceService
    profiles: list[LatencyProfileResource]
    notices: list[Notice]


def read_service(path: Path, *, trust_repository: bool) -> ServiceFile:
    """Read and validate. Raises CliError with every fault, or when there is not exactly one service."""
    result = load_file(path, trust_repository=trust_repository)
    if result.faults:
        raise CliError(listed(f"{path} has {len(result.faults)} fault(s)", path, result.faults))
    if len(result.services) != 1:
        raise CliError(f"{path} holds {len(result.services)} InferenceServices, exactly one is needed")
    return ServiceFile(path, result.services[0], result.profiles, result.notices)


def listed(head: str, path: Path, findings: Sequence[Finding]) -> str:
    """A headline and one line per finding, with its line in the file."""
    return "\n".join([f"{head}:", *(f"  {located(path, finding)}" for finding in findings)])


def located(path: Path, finding: Finding) -> str:
    """``file:line: field: message`` as far as they are known."""
    where = str(path) if finding.line is None else f"{path}:{finding.line}"
    return f"{where}: {finding}"
