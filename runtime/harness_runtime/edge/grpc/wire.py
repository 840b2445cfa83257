"""Frames of ModelInfer: tensor bytes are taken from and put into a message without a trip through protobuf.

Each access to a protobuf ``bytes`` field copies it, and parsing copies it once more; on 600 KB inputs that is half of the
server's CPU (scheduling.md §7). So the top level of a request is walked here: what is not ``raw_input_contents`` goes to
protobuf, and the raw contents stay views of the received bytes. A response is protobuf for everything but
``raw_output_contents``, whose field comes last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

RAW_INPUT_TAG = 7 << 3 | 2
RAW_OUTPUT_TAG = 6 << 3 | 2
FIELDS_MAX = 4096
"""Most top-level fields of a request: tensors, parameters and raw entries together. Protobuf turns two bytes into an object
of many, so the number is bounded before it parses."""
_FIXED = {1: 8, 5: 4}


class MalformedError(ValueError):
    """Not a protobuf message that this server reads."""


def split_request(data: bytes) -> tuple[bytes, list[memoryview]]:
    """A ModelInferRequest's bytes as (everything else, raw_input_contents in order).

    Raises:
        MalformedError: not the wire form of a message, or more than ``FIELDS_MAX`` fields.
    """
    view, size = memoryview(data), len(data)
    others: list[memoryview] = []
    raws: list[memoryview] = []
    at = kept = fields = 0
    while at < size:
        start = at
        tag, at = _varint(data, at, size)
        end = _end(data, tag, at, size)
        if tag == RAW_INPUT_TAG:
            _, at = _varint(data, at, size)
            others.append(view[kept:start])
            raws.append(view[at:end])
            kept = end
        at = end
        fields += 1
        if fields > FIELDS_MAX:
            raise MalformedError(f"more than {FIELDS_MAX} tensors, parameters and raw entries")
    if not raws:
        return data, raws
    others.append(view[kept:])
    return b"".join(others), raws


def join_response(header: bytes, raws: Iterable[bytes | memoryview]) -> list[bytes | memoryview]:
    """The parts of a ModelInferResponse: its ``header`` (all other fields) and its raw_output_contents."""
    parts: list[bytes | memoryview] = [header]
    for raw in raws:
        parts.append(_field(RAW_OUTPUT_TAG, len(raw)))
        parts.append(raw)
    return parts


def _end(data: bytes, tag: int, at: int, size: int) -> int:
    """Where the field with ``tag`` ends whose value starts at ``at``."""
    kind = tag & 7
    if tag >> 3 == 0 or tag >> 32:
        raise MalformedError("not a protobuf message")
    if kind == 2:
        length, at = _varint(data, at, size)
        end = at + length
    elif kind == 0:
        _, end = _varint(data, at, size)
    elif kind in _FIXED:
        end = at + _FIXED[kind]
    else:
        raise MalformedError("not a protobuf message")
    if end > size:
        raise MalformedError("the message is cut off")
    return end


def _varint(data: bytes, at: int, size: int) -> tuple[int, int]:
    """A base-128 number and where it ends."""
    value = shift = 0
    while at < size and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise MalformedError("the message is cut off")


def _field(tag: int, length: int) -> bytes:
    out = bytearray([tag])
    while length >= 0x80:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    out.append(length)
    return bytes(out)
