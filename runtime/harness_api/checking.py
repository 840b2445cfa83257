"""Validates one document's value and finds everything that is wrong with it.

Two passes: pydantic checks every field; then the rules over several fields run for every object whose own fields are right, so
that a fault in one place hides as little as possible of what is wrong elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from harness_api.base import API_VERSION, FIELDS_ONLY, ApiModel, Broken, Location, Options
from harness_api.inferenceservice import InferenceService, InferenceServiceSpec, service_rules
from harness_api.latency_profile import LatencyProfileResource
from harness_api.messages import broken_by, models_in, shown
from harness_api.models import Model
from harness_api.scheduling import Limits
from harness_api.worker_groups import WorkerGroup

_T = TypeVar("_T", bound=ApiModel)

Resource = InferenceService | LatencyProfileResource
KINDS: Final[dict[str, type[InferenceService | LatencyProfileResource]]] = {
    "InferenceService": InferenceService,
    "LatencyProfile": LatencyProfileResource,
}
ENTRIES_MAX: Final = 64
"""Entries of a list that are looked into when something else is wrong; a longer list is a fault by itself."""


def check_value(value: Any, options: Options) -> tuple[Resource | None, list[Broken]]:
    """Validate one document: the object, or None with every fault found. Never raises."""
    if not isinstance(value, dict):
        return None, [((), f"must be a mapping with apiVersion, kind, metadata and spec, got {shown(value)}")]
    broken = list(_head_faults(value))
    kind = KINDS.get(value["kind"]) if isinstance(value.get("kind"), str) else None
    if kind is None:
        return None, broken
    told = {where for where, _ in broken}
    broken += [each for each in _field_faults(kind, value) if each[0] not in told]
    broken += _rule_faults(kind, value, options, ())
    if broken:
        return None, broken
    return kind.model_validate(value, by_alias=True, by_name=False, context=options), []


def _head_faults(value: dict[Any, Any]) -> Iterator[Broken]:
    version, kind = value.get("apiVersion"), value.get("kind")
    if version is None:
        yield ("apiVersion",), f"required: {API_VERSION}"
    elif version != API_VERSION:
        yield ("apiVersion",), f"must be {API_VERSION}, got {shown(version)}"
    if kind is None:
        yield ("kind",), f"required: {' or '.join(KINDS)}"
    elif not isinstance(kind, str) or kind not in KINDS:
        yield ("kind",), f"must be {' or '.join(KINDS)}, got {shown(kind)}"


def _field_faults(kind: type[ApiModel], value: Any) -> list[Broken]:
    try:
        kind.model_validate(value, by_alias=True, by_name=False, context=FIELDS_ONLY)
    except ValidationError as error:
        return list(broken_by(error, kind))
    return []


def _fields_right(kind: type[_T], value: Any) -> _T | None:
    """The object without its rules checked, or None when a field of it is wrong."""
    try:
        return kind.model_validate(value, by_alias=True, by_name=False, context=FIELDS_ONLY)
    except ValidationError:
        return None


def _rule_faults(kind: type[ApiModel], value: Any, options: Options, at: Location) -> Iterator[Broken]:
    """Broken rules of ``value`` and of everything in it; of the parts that are right where the whole is not."""
    typed = _fields_right(kind, value)
    if typed is not None:
        yield from _rules_within(typed, options, at)
        return
    if not isinstance(value, dict):
        return
    if kind is InferenceServiceSpec:
        yield from _rules_of_parts(value, at)
    for name, field in kind.model_fields.items():
        alias = field.alias or name
        for child in models_in(field.annotation):
            part = value.get(alias)
            if isinstance(part, list):
                for index, entry in enumerate(part[:ENTRIES_MAX]):
                    yield from _rule_faults(child, entry, options, (*at, alias, index))
            elif part is not None:
                yield from _rule_faults(child, part, options, (*at, alias))


def _rules_within(typed: ApiModel, options: Options, at: Location) -> Iterator[Broken]:
    for where, sentence in typed.rules(options):
        yield (*at, *where), sentence
    for name, field in type(typed).model_fields.items():
        value = getattr(typed, name)
        alias = field.alias or name
        if isinstance(value, ApiModel):
            yield from _rules_within(value, options, (*at, alias))
        elif isinstance(value, list):
            for index, entry in enumerate(value):
                if isinstance(entry, ApiModel):
                    yield from _rules_within(entry, options, (*at, alias, index))


def _rules_of_parts(spec: dict[Any, Any], at: Location) -> Iterator[Broken]:
    """Rules over several models and groups of a spec that has faults elsewhere."""

    def parts(name: str, kind: type[_T]) -> list[_T | None]:
        entries = spec.get(name)
        return [_fields_right(kind, entry) for entry in entries[:ENTRIES_MAX]] if isinstance(entries, list) else []

    limits = _fields_right(Limits, spec.get("limits", {}))
    for where, sentence in service_rules(parts("models", Model), parts("workerGroups", WorkerGroup), limits):
        yield (*at, *where), sentence
