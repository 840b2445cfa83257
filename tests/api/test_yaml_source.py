"""YAML is read as plain JSON values, its traps are faults or texts, and its size is bounded."""

from __future__ import annotations

import pytest
from harness_api import yaml_source
from harness_api.yaml_source import read_yaml


def value_of(text: str):
    """The value of the only document, which must have no fault."""
    source = read_yaml(text)
    assert source.faults == []
    return source.documents[0].value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: yes", "yes"), ("a: no", "no"), ("a: on", "on"), ("a: off", "off"), ("a: y", "y"),
        ("a: true", True), ("a: False", False), ("a: ~", None), ("a:", None), ("a: null", None),
        ("a: 7", 7), ("a: -7", -7), ("a: 0", 0), ("a: 010", "010"), ("a: 0o17", "0o17"), ("a: 0x1f", "0x1f"),
        ("a: 1_000", "1_000"), ("a: 1:30", "1:30"), ("a: 2026-01-31", "2026-01-31"), ("a: 1.5", 1.5), ("a: 1e3", 1000.0),
        ("a: .5", 0.5), ("a: 1.", 1.0), ("a: .", "."), ("a: e5", "e5"), ("a: '7'", "7"), ('a: "true"', "true"),
        ("a: !!str 7", "7"), ("a: ! 7", "7"), ("a: !!int 7", 7), ("a: |\n  x\n  y\n", "x\ny\n"), ("a: [1, {b: 2}]", [1, {"b": 2}]),
        ("a: &x {b: 1}\nc: *x", {"b": 1}), ("{a: 1}", 1), ("a: ٣", "٣"),
    ],
)  # fmt: skip
def test_plain_scalars_follow_json_not_yaml_1_1(text, value):
    """Only what JSON would call a number, boolean or null is one; what YAML 1.1 guesses at stays a text."""
    read = value_of(text)["a"]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "path", "message", "line"),
    [
        ("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n", "b.c", "is given twice (first on line 3)", 5),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", "c", "merge keys (<<) are not supported: write the fields out", 3),
        ("a:\n  1: x\n", "a", "the key 1 is not a text: write it in quotes", 2),
        ("a: {true: x}\n", "a", "the key true is not a text: write it in quotes", 1),
        ("a: !!binary aGk=\n", "a", "tag !!binary is not supported", 1),
        ("a: !!python/object/apply:os.system [x]\n", "a", "tag !!python/object/apply:os.system is not supported", 1),
        ("a: !mine {b: 1}\n", "a", "tag !mine is not supported", 1),
        ("a: .nan\n", "a", ".nan is not a number that can be used here", 1),
        ("a: 1e999\n", "a", "1e999 is too large for a number: write it in quotes if it is a text", 1),
        ("a: 12345678901234567890\n", "a", "12345678901234567890 has more than 19 digits: write it in quotes if it is a text", 1),
        ("a: &x [*x]\n", "", "alias *x refers to itself", 1),
        ("a: *x\n", "", "alias *x is not defined before", 1),
        ("a: 1\n? [x]\n: 2\n", "", "has a collection as a key: a key must be a text", 2),
        ("a: [1, 2\nb: 3\n", "", "is not YAML: did not find expected ',' or ']' while parsing a flow sequence", 2),
        ("a: 1\n\tb: 2\n", "", "is not YAML: found character '\\t' that cannot start any token while scanning for the next token", 2),
        ("a: 1\n\x01", "", "is not YAML: it holds a control character", 2),
    ],
)  # fmt: skip
def test_traps_are_faults_with_their_line(text, path, message, line):
    """Each trap is one fault that names the place; nothing is raised."""
    (fault,) = read_yaml(text).faults
    assert (fault.path, fault.line) == (path, line)
    if "is not YAML" in message:
        assert fault.message.startswith("is not YAML: ")
    else:
        assert fault.message == message


def test_values_after_a_refused_key_do_not_slip_into_another_place():
    """The value of a key that is given twice or is no text is read for nothing; its neighbours stay right."""
    source = read_yaml("a: 1\na: {b: [1]}\n2: {c: 3}\nd: 4\n")
    assert source.documents[0].value == {"a": 1, "d": 4}


def test_documents_and_lines():
    """Documents are numbered as in the file, empty ones left out; places know their line, unknown ones their parent's."""
    source = read_yaml("---\n---\na: 1\n---\nb:\n- c: 1\n- c: 2\n  d: {e: 3}\n")
    assert [document.number for document in source.documents] == [2, 3]
    last = source.documents[1]
    assert last.line_of(("b", 1, "d")) == 8
    assert last.line_of(("b", 1, "missing", 4)) == 7
    assert last.line_of(()) == 5


def test_alias_bomb_is_refused_by_its_full_size():
    """Nine levels of nine aliases are half a thousand million values: refused before they are walked."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    (fault,) = read_yaml("\n".join(lines)).faults
    assert fault.message == f"has more than {yaml_source.NODES_MAX} values, aliases counted at full size"


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 10_000, "- " * 5_000, "? " * 5_000])
def test_deep_nesting_is_refused(text):
    """Depth is bounded while reading, whatever the parser's own stack."""
    (fault,) = read_yaml(text).faults
    assert "nested more than 64 levels" in fault.message or "as a key" in fault.message


def test_many_documents_are_refused():
    """The number of documents is bounded."""
    (fault,) = read_yaml("--- 1\n" * (yaml_source.DOCUMENTS_MAX + 1)).faults
    assert fault.message == "has more than 256 documents"


@pytest.mark.parametrize(
    ("text", "hint", "line"),
    [
        ("a: 1\n  b: 2\n", "check the indentation of this line and the one before", 2),
        ("a:\n  - b\n c: 3\n", "check the indentation of this line and the one before", 3),
        ("a:\n\tb: 2\n", "indent with spaces, not with tabs", 2),
    ],
)
def test_wrong_indentation_is_said_in_plain_words(text, hint, line):
    """The parser speaks of blocks and tokens; the message ends with what to look at."""
    (fault,) = read_yaml(text).faults
    assert fault.line == line
    assert fault.message.endswith(f": {hint}")
