"""The base of every type of the API, and how a rule over several fields is stated.

Fields are checked by pydantic (type, bounds, pattern). What concerns several fields of one object is a *rule*: a generator
method that yields every broken one with its place, so that one run reports all faults. Rules of an object run once its own
fields are right, whatever its neighbours look like.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, ValidationInfo, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

API_GROUP: Final = "serving.harness.dev"
API_VERSION: Final = "serving.harness.dev/v1alpha1"

Location = tuple[str | int, ...]
"""Where something stands in a document: field names as in YAML, and list indexes."""

Broken = tuple[Location, str]
"""A broken rule: the place relative to the object that states the rule, and a sentence."""

RULES_BROKEN: Final = "rules_broken"
"""Error type under which :class:`ApiModel` hands its broken rules (``ctx["broken"]``) through pydantic."""

FIELDS_ONLY: Final = "fields only"
"""Validation context under which rules are left to the caller."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the reader of a document knows beside the document.

    ``local``: it is read by ``harness run`` or ``harness-runtime`` on one machine, not by a cluster.
    ``trust_repository``: the runtime is started with trust in its model repository, so checksums are optional;
    None: the reader does not know, and whoever loads the model checks.
    """

    local: bool = True
    trust_repository: bool | None = False


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to tell about a document.

    ``path`` is the field in YAML form (``spec.models[2].batching.policy``; empty: the document or file itself);
    ``document`` counts from 1 within the file, ``line`` from 1; None where it is not known.
    """

    path: str
    message: str
    document: int | None = None
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class Fault(Finding):
    """The document is refused for this."""


class Notice(Finding):
    """The document is accepted, but this setting has no effect where it is read."""


class ApiModel(BaseModel):
    """camelCase in documents, snake_case in Python; unknown fields and silent conversions are refused.

    Python code may construct objects by either name; documents are validated by alias only (``harness_api.load``).
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=True,
        serialize_by_alias=True,
        extra="forbid",
        strict=True,
        frozen=True,
        use_attribute_docstrings=True,
    )

    def rules(self, options: Options | None) -> Iterator[Broken]:
        """Yield every broken rule of this object. ``options`` None: constructed in code, rules that need them are skipped."""
        del options
        yield from ()

    @model_validator(mode="after")
    def _check_rules(self, info: ValidationInfo) -> Self:
        if info.context == FIELDS_ONLY:
            return self
        options = info.context if isinstance(info.context, Options) else None
        broken = list(self.rules(options))
        if broken:
            raise rules_error(broken)
        return self


def rules_error(broken: Sequence[Broken]) -> PydanticCustomError:
    """One pydantic error that carries all of ``broken``."""
    summary = "; ".join(f"{format_path(where)}: {sentence}" for where, sentence in broken)
    context: dict[str, Any] = {"summary": summary, "broken": list(broken)}
    return PydanticCustomError(RULES_BROKEN, "{summary}", context)


def format_path(location: Iterable[str | int]) -> str:
    """``("spec", "models", 2, "name")`` as ``spec.models[2].name``; odd keys are quoted in brackets."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part and part.replace("_", "").replace("-", "").isalnum():
            text += f".{part}" if text else part
        else:
            text += f'["{shorten(part)}"]'
    return text


def shorten(text: str, limit: int = 60) -> str:
    """``text`` in one printable line of at most ``limit`` characters."""
    line = "".join(c if c.isprintable() else "?" for c in text[: limit + 1])
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def ascending(values: Sequence[int], where: Location) -> Iterator[Broken]:
    """Broken where a value does not rise over the one before it."""
    for index in range(1, len(values)):
        if values[index] <= values[index - 1]:
            yield (*where, index), f"{values[index]} does not follow {values[index - 1]}: the list must rise strictly"


def repeated(names: Sequence[str | None], where: Location, field: str | None = "name") -> Iterator[Broken]:
    """Broken where a name was used before. None stands for an entry that could not be read."""
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if name is None:
            continue
        if name in first:
            place = (*where, index) if field is None else (*where, index, field)
            yield place, f"'{name}' is used before, in {format_path((*where, first[name]))}"
        first.setdefault(name, index)
