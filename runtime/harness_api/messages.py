"""Pydantic's errors as sentences for people who write YAML."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from harness_api.base import RULES_BROKEN, ApiModel, Broken, Location, shorten
from harness_api.fields import PATTERN_SENTENCES

_KEY_MARK: Final = "[key]"


def broken_by(error: ValidationError, root: type[ApiModel]) -> Iterator[Broken]:
    """Every fault that a validation of ``root`` found, with its place in the document."""
    for details in error.errors(include_url=False):
        location = tuple(part for part in details["loc"] if part != _KEY_MARK)
        if details["type"] == RULES_BROKEN:
            for where, sentence in details["ctx"]["broken"]:
                yield (*location, *where), sentence
        elif details["type"] == "extra_forbidden":
            yield location, _unknown_field(location, root)
        else:
            yield location, _sentence(details)


def shown(value: Any) -> str:
    """``value`` as it would be written, in a few words."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, Enum):
        return shown(value.value)
    if isinstance(value, str):
        return f"the text '{shorten(value)}'" if value else "an empty text"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"the integer {value}" if abs(value) < 10**20 else "a very large integer"
    if isinstance(value, float):
        return f"the number {value}"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return "something that YAML does not have"


def _wants(what: str) -> Callable[[dict[str, Any], Any], str]:
    return lambda _, value: f"must be {what}, got {shown(value)}"


def _wants_text(_: dict[str, Any], value: Any) -> str:
    sentence = f"must be a text, got {shown(value)}"
    simple = isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 10**20)
    written = str(value).lower() if isinstance(value, bool) else value
    return f'{sentence}: write it in quotes, "{written}"' if simple else sentence


def _not_one_of(context: dict[str, Any], value: Any) -> str:
    expected = str(context.get("expected", "")).replace("'", "").replace(" or ", ", ")
    choices = expected.split(", ")
    sentence = f"must be {'' if len(choices) == 1 else 'one of '}{', '.join(choices)}, got {shown(value)}"
    return sentence + _did_you_mean(value, choices)


def _number(context: dict[str, Any], value: Any) -> str:
    text = "a very large integer" if abs(value) >= 10**20 else str(value)
    if "ge" in context:
        return f"{text} is less than the minimum {context['ge']}"
    return f"{text} is more than the maximum {context['le']}"


def _count(context: dict[str, Any], value: Any) -> str:
    entries = "1 entry" if len(value) == 1 else f"{len(value)} entries"
    if "min_length" in context:
        return f"has {entries}, at least {context['min_length']} needed"
    return f"has {entries}, at most {context['max_length']} allowed"


def _length(context: dict[str, Any], value: str) -> str:
    if "min_length" in context:
        return (
            "must not be empty"
            if not value
            else f"has {len(value)} characters, at least {context['min_length']} needed"
        )
    return f"has {len(value)} characters, at most {context['max_length']} allowed"


def _pattern(context: dict[str, Any], value: str) -> str:
    return f"'{shorten(value)}' {PATTERN_SENTENCES.get(context['pattern'], 'has not the form ' + context['pattern'])}"


_SENTENCES: Final[dict[str, Callable[[dict[str, Any], Any], str]]] = {
    "missing": lambda _, __: "required",
    "int_type": _wants("an integer"),
    "int_from_float": _wants("an integer"),
    "string_type": _wants_text,
    "bool_type": _wants("true or false"),
    "list_type": _wants("a list"),
    "dict_type": _wants("a mapping"),
    "model_type": _wants("a mapping"),
    "enum": _not_one_of,
    "literal_error": _not_one_of,
    "greater_than_equal": _number,
    "less_than_equal": _number,
    "too_short": _count,
    "too_long": _count,
    "string_too_short": _length,
    "string_too_long": _length,
    "string_pattern_mismatch": _pattern,
    "string_unicode": lambda _, __: "must be a text of Unicode characters",
}


def _sentence(details: ErrorDetails) -> str:
    build = _SENTENCES.get(details["type"])
    if build is None:
        return details["msg"]
    return build(details.get("ctx", {}), details["input"])


def _did_you_mean(value: Any, choices: list[str]) -> str:
    if not isinstance(value, str):
        return ""
    lower = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(value.lower()[:80], lower, n=1, cutoff=0.7)
    return f" (did you mean {lower[close[0]]}?)" if close else ""


def _unknown_field(location: Location, root: type[ApiModel]) -> str:
    name = str(location[-1])
    owner = type_at(root, location[:-1])
    sentence = f"unknown field '{shorten(name)}'"
    if owner is None:
        return sentence
    for field in owner.model_fields.values():
        for child in models_in(field.annotation):
            if name in aliases(child):
                return f"{sentence} (it belongs under {field.alias})"
    return sentence + _did_you_mean(name, list(aliases(owner)))


def aliases(model: type[ApiModel]) -> list[str]:
    """Names of a type's fields as in documents."""
    return [field.alias or name for name, field in model.model_fields.items()]


def type_at(root: type[ApiModel], location: Location) -> type[ApiModel] | None:
    """The type of the object at ``location``; None where it is no object of ours."""
    current: type[ApiModel] | None = root
    for part in location:
        if isinstance(part, int):
            continue
        if current is None:
            return None
        annotations = [f.annotation for n, f in current.model_fields.items() if (f.alias or n) == part]
        found = [child for annotation in annotations for child in models_in(annotation)]
        current = found[0] if found else None
    return current


def models_in(annotation: Any) -> list[type[ApiModel]]:
    """Our types inside ``X``, ``list[X]``, ``X | None``, ``Annotated[X, …]``; not those inside a dict."""
    if typing.get_origin(annotation) is dict:
        return []
    if arguments := typing.get_args(annotation):
        return [model for argument in arguments for model in models_in(argument)]
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, ApiModel) else []
