"""Reads files of custom resources and reports everything that is wrong with them, without raising."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness_api.base import Fault, Location, Notice, Options, format_path
from harness_api.checking import KINDS, check_value
from harness_api.inferenceservice import InferenceService
from harness_api.latency_profile import LatencyProfileResource
from harness_api.notices import local_notices
from harness_api.yaml_source import BYTES_MAX, Document, read_yaml


@dataclass(slots=True)
class LoadResult:
    """What a file holds. Objects with faults are left out; ``faults`` and ``notices`` are in the order of the file."""

    services: list[InferenceService] = field(default_factory=list)
    profiles: list[LatencyProfileResource] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)


def load_file(path: Path | str, *, local: bool = True, trust_repository: bool | None = None) -> LoadResult:
    """Read a YAML (or JSON) file of one or more documents.

    ``local``: for ``harness run`` and ``harness-runtime``, else for a cluster. ``trust_repository`` True: checksums are
    optional; None: not known yet, left to ``harness_runtime.settings``, which refuses what it may not load.
    A file that cannot be read is a fault like any other.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return LoadResult(faults=[Fault("", f"cannot be read: {reason}")])
    if len(content) > BYTES_MAX:
        return LoadResult(faults=[Fault("", f"is larger than {BYTES_MAX} bytes")])
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return LoadResult(faults=[Fault("", "is not a text in UTF-8", line=line)])
    return load_text(text, local=local, trust_repository=trust_repository)


def load_text(text: str, *, local: bool = True, trust_repository: bool | None = None) -> LoadResult:
    """As :func:`load_file`, for the content of a file."""
    source = read_yaml(text)
    result = LoadResult(faults=source.faults)
    if not source.documents and not source.faults:
        result.faults.append(Fault("", f"holds no document: expected {' or '.join(KINDS)}"))
    options = Options(local=local, trust_repository=trust_repository)
    spoilt = {fault.document for fault in source.faults}
    for document in source.documents:
        _take(document, options, result, keep=document.number not in spoilt)
    for findings in (result.faults, result.notices):
        findings.sort(key=lambda finding: (finding.document or 0, finding.line or 0))
    return result


def _take(document: Document, options: Options, result: LoadResult, *, keep: bool) -> None:
    typed, broken = check_value(document.value, options)
    at = _placer(document)
    result.faults += [Fault(*at(where, sentence)) for where, sentence in broken]
    if typed is None or not keep:
        return
    if isinstance(typed, LatencyProfileResource):
        _add(typed, result.profiles, at, result)
    elif _add(typed, result.services, at, result) and options.local:
        result.notices += [Notice(*at(where, sentence)) for where, sentence in local_notices(typed)]


def _add(
    typed: Any, others: list[Any], at: Callable[[Location, str], tuple[str, str, int, int | None]], result: LoadResult
) -> bool:
    """Add an object unless one of the same kind, namespace and name is there."""
    meta = typed.metadata
    if any((other.metadata.namespace, other.metadata.name) == (meta.namespace, meta.name) for other in others):
        sentence = f"'{meta.name}' is the name of an earlier {typed.kind} of this file"
        result.faults.append(Fault(*at(("metadata", "name"), sentence)))
        return False
    others.append(typed)
    return True


def _placer(document: Document) -> Callable[[Location, str], tuple[str, str, int, int | None]]:
    def place(where: Location, sentence: str) -> tuple[str, str, int, int | None]:
        return format_path(where), sentence, document.number, document.line_of(where)

    return place
