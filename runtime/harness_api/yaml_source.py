"""Reads YAML as plain JSON values, with the line of every field, within bounds, and never raises.

Stricter than YAML 1.1 where people lose data: a key twice is a fault; ``yes``, ``on`` and ``no`` are texts; so are numbers
with leading zeros, underscores, colons or a base prefix, and dates. Only true/false, null, decimal integers and decimal
floats are taken from plain scalars. Tags other than the standard ones of these types, merge keys and keys that are no text
are refused. Aliases are counted at their full size.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

import yaml

from harness_api.base import Fault, Location, format_path, shorten

BYTES_MAX: Final = 1 << 20
"""Of one file. A cluster takes no larger object either (etcd's limit is 1.5 MiB)."""
NODES_MAX: Final = 50_000
"""Values in one file, aliases at full size."""
DEPTH_MAX: Final = 64
DOCUMENTS_MAX: Final = 256
DIGITS_MAX: Final = 19
"""Of an integer: what fits into 64 bits."""

_TAG: Final = "tag:yaml.org,2002:"
_INTEGER: Final = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_NUMBER_LIKE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CONSTANTS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


@dataclass(slots=True)
class Document:
    """One document of a file: its value, its number from 1, and the line of each place in it."""

    value: Any
    number: int
    lines: dict[Location, int] = field(default_factory=dict)

    def line_of(self, location: Location) -> int | None:
        """Line of the place, or of the nearest known one around it."""
        for length in range(len(location), -1, -1):
            if (line := self.lines.get(location[:length])) is not None:
                return line
        return None


@dataclass(slots=True)
class YamlSource:
    """What was read: documents that are whole, and faults of the text."""

    documents: list[Document] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


class _RefusedError(Exception):
    """The rest of the file cannot be read. Carries the fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


@dataclass(slots=True)
class _Open:
    """A collection that is being read. ``key`` is the mapping's key that waits for its value."""

    value: dict[str, Any] | list[Any]
    location: Location
    anchor: str | None
    nodes_before: int
    key: str | None = None
    skip: bool = False
    """The waiting value belongs to a refused key and is read for nothing."""


def read_yaml(text: str) -> YamlSource:
    """All documents of ``text``; empty ones are left out."""
    source = YamlSource()
    try:
        _Reader(source).read(text)
    except _RefusedError as refused:
        source.faults.append(refused.fault)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = shorten(" ".join(part for part in (error.problem, error.context) if part), 160)
        hint = _hint(error)
        source.faults.append(Fault("", f"is not YAML: {problem}{hint}", line=None if mark is None else mark.line + 1))
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        source.faults.append(Fault("", "is not YAML: it holds a control character", line=line))
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        source.faults.append(Fault("", f"is not YAML: {shorten(str(error), 160)}"))
    return source


def _hint(error: yaml.MarkedYAMLError) -> str:
    """What a person should look at, where the parser's own words speak of blocks and tokens."""
    words = f"{error.problem} {error.context}"
    if "\\t" in words:
        return ": indent with spaces, not with tabs"
    if any(sign in words for sign in ("block", "mapping values are not allowed", "could not find expected ':'")):
        return ": check the indentation of this line and the one before"
    return ""


class _Reader:
    """Builds values from PyYAML's events with a stack of its own, so that depth and size are bounded as they come."""

    def __init__(self, source: YamlSource) -> None:
        self._source = source
        self._document = Document(None, 0)
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._nodes = 0

    def read(self, text: str) -> None:
        for event in self._events(text):
            if isinstance(event, yaml.DocumentStartEvent):
                self._begin_document(event)
            elif isinstance(event, yaml.DocumentEndEvent):
                if self._document.value is not None:
                    self._source.documents.append(self._document)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._begin_collection(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._end_collection()
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, yaml.ScalarEvent):
                self._scalar(event)

    @staticmethod
    def _events(text: str) -> Iterator[yaml.Event]:
        return iter(yaml.parse(text, Loader=yaml.SafeLoader))

    def _begin_document(self, event: yaml.Event) -> None:
        self._document = Document(None, self._document.number + 1)
        self._stack, self._anchors = [], {}
        if self._document.number > DOCUMENTS_MAX:
            raise self._refused(event, f"has more than {DOCUMENTS_MAX} documents")

    def _begin_collection(self, event: yaml.CollectionStartEvent) -> None:
        mapping = isinstance(event, yaml.MappingStartEvent)
        self._count(event, 1)
        if len(self._stack) >= DEPTH_MAX:
            raise self._refused(event, f"is nested more than {DEPTH_MAX} levels deep")
        if event.tag not in {None, "!", _TAG + ("map" if mapping else "seq")}:
            self._fault(event, self._place(), f"tag {_tag_name(event.tag)} is not supported")
        if self._awaits_key():
            raise self._refused(event, "has a collection as a key: a key must be a text")
        location = self._place()
        self._note_line(event, location)
        self._stack.append(_Open({} if mapping else [], location, event.anchor, self._nodes - 1))
        if event.anchor is not None:
            self._anchors.pop(event.anchor, None)

    def _end_collection(self) -> None:
        done = self._stack.pop()
        if done.anchor is not None:
            self._anchors[done.anchor] = (done.value, self._nodes - done.nodes_before)
        self._put(done.value)

    def _alias(self, event: yaml.AliasEvent) -> None:
        anchor = event.anchor or ""
        if anchor not in self._anchors:
            inside = any(each.anchor == anchor for each in self._stack)
            reason = "refers to itself" if inside else "is not defined before"
            raise self._refused(event, f"alias *{shorten(anchor)} {reason}")
        value, nodes = self._anchors[anchor]
        self._count(event, nodes)
        if self._awaits_key():
            self._key(event, value)
        else:
            self._note_line(event, self._place())
            self._put(value)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        self._count(event, 1)
        key = self._awaits_key()
        value = self._value_of(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, 1)
        if key:
            if event.implicit[0] and event.value == "<<":
                self._fault(event, self._place(), "merge keys (<<) are not supported: write the fields out")
                self._stack[-1].key, self._stack[-1].skip = "<<", True
            else:
                self._key(event, value)
        else:
            self._note_line(event, self._place())
            self._put(value)

    def _key(self, event: yaml.Event, value: Any) -> None:
        holder = self._stack[-1]
        assert isinstance(holder.value, dict)  # noqa: S101 - only mappings await keys
        if not isinstance(value, str):
            self._fault(event, self._place(), f"the key {_shown(value)} is not a text: write it in quotes")
            holder.key, holder.skip = "?", True
            return
        holder.key, holder.skip = value, value in holder.value
        location = (*holder.location, value)
        if holder.skip:
            before = self._document.lines.get(location)
            where = "" if before is None else f" (first on line {before})"
            self._fault(event, location, f"is given twice{where}")
        else:
            self._document.lines.setdefault(location, _line(event))

    def _put(self, value: Any) -> None:
        if not self._stack:
            self._document.value = value
            return
        holder = self._stack[-1]
        if isinstance(holder.value, list):
            holder.value.append(value)
            return
        if not holder.skip and holder.key is not None:
            holder.value[holder.key] = value
        holder.key, holder.skip = None, False

    def _value_of(self, event: yaml.ScalarEvent) -> Any:
        text = event.value
        if event.tag in {"!", _TAG + "str"} or (event.tag is None and not event.implicit[0]):
            return text
        if event.tag not in {None, *(_TAG + name for name in ("null", "bool", "int", "float"))}:
            self._fault(event, self._place(), f"tag {_tag_name(event.tag)} is not supported")
            return text
        try:
            return plain_value(text)
        except ValueError as error:
            self._fault(event, self._place(), str(error))
            return text

    def _awaits_key(self) -> bool:
        return bool(self._stack) and isinstance(self._stack[-1].value, dict) and self._stack[-1].key is None

    def _place(self) -> Location:
        """Where the next value goes; of the mapping itself while it awaits a key."""
        if not self._stack:
            return ()
        holder = self._stack[-1]
        if isinstance(holder.value, list):
            return (*holder.location, len(holder.value))
        return holder.location if holder.key is None else (*holder.location, holder.key)

    def _note_line(self, event: yaml.Event, location: Location) -> None:
        self._document.lines.setdefault(location, _line(event))

    def _count(self, event: yaml.Event, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > NODES_MAX:
            raise self._refused(event, f"has more than {NODES_MAX} values, aliases counted at full size")

    def _fault(self, event: yaml.Event, location: Location, message: str) -> None:
        self._source.faults.append(Fault(format_path(location), message, self._document.number, _line(event)))

    def _refused(self, event: yaml.Event, message: str) -> _RefusedError:
        return _RefusedError(Fault("", message, self._document.number or None, _line(event)))


def plain_value(text: str) -> Any:
    """The JSON value of a plain scalar.

    Raises:
        ValueError: a number that JSON or 64 bits cannot hold.
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        if len(text.lstrip("+-")) > DIGITS_MAX:
            raise ValueError(f"{shorten(text)} has more than {DIGITS_MAX} digits: write it in quotes if it is a text")
        return int(text)
    if _NUMBER_LIKE.fullmatch(text):
        raise ValueError(f"{text} is not a number that can be used here")
    if _FLOAT.fullmatch(text):
        number = float(text)
        if not isfinite(number):
            raise ValueError(f"{shorten(text)} is too large for a number: write it in quotes if it is a text")
        return number
    return text


def _line(event: yaml.Event) -> int:
    return 1 if event.start_mark is None else event.start_mark.line + 1


def _tag_name(tag: str | None) -> str:
    return shorten((tag or "!").replace(_TAG, "!!", 1))


def _shown(value: Any) -> str:
    return shorten(json.dumps(value))
