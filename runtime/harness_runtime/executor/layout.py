"""Arrays in a slot: how a batch's inputs are merged into it, how tensors are read out of it.

Fixed-size datatypes lie row-major little-endian. BYTES elements lie one behind the other, each behind its length as a 4-byte
little-endian number (as on the wire, protocol.md §1).
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from harness_runtime.executor.memory import Cursor, view
from harness_runtime.tensors import Datatype, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from harness_runtime.ports import JobInput


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor in a region: where, how long, what shape. Goes over the control channel."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    offset: int
    size: int

    def to_json(self) -> list[Any]:
        """As a JSON array."""
        return [self.name, self.datatype.value, list(self.shape), self.offset, self.size]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> Placed:
        """From a JSON array; raises ValueError or TypeError on anything else."""
        name, datatype, shape, offset, size = data
        return cls(str(name), Datatype(datatype), tuple(int(dim) for dim in shape), int(offset), int(size))


def write_inputs(region: npt.NDArray[np.uint8], inputs: Iterable[JobInput]) -> list[Placed]:
    """Merge the members' parts into a slot: one copy, padding written around them.

    Raises:
        ValueError: larger than the region, or a part does not fit its input.
    """
    cursor = Cursor(region, "the batch's inputs")
    return [_write_input(cursor, each) for each in inputs]


def _write_input(cursor: Cursor, given: JobInput) -> Placed:
    _check_parts(given)
    if given.datatype is Datatype.BYTES:
        whole = np.empty(given.shape, dtype=object)
        _merge(whole, given.parts, b"")
        payload = encode_bytes(whole)
        offset, place = cursor.take(len(payload), given.name)
        place[:] = np.frombuffer(payload, dtype=np.uint8)
        return Placed(given.name, given.datatype, given.shape, offset, len(payload))
    dtype = numpy_dtype(given.datatype)
    size = math.prod(given.shape) * dtype.itemsize
    offset, place = cursor.take(size, given.name)
    _merge(place.view(dtype).reshape(given.shape), given.parts, pad_element(given.datatype, given.pad_value))
    return Placed(given.name, given.datatype, given.shape, offset, size)


def _check_parts(given: JobInput) -> None:
    dtype = numpy_dtype(given.datatype)
    rows = 0
    for part in given.parts:
        fits = part.ndim == len(given.shape) and (
            part.shape[1:] == given.shape[1:]
            or all(have <= room for have, room in zip(part.shape[1:], given.shape[1:], strict=True))
        )
        if not fits:
            raise ValueError(f"input '{given.name}': a part of shape {part.shape} does not fit into {given.shape}")
        if part.dtype != dtype:
            raise ValueError(f"input '{given.name}': a part has dtype {part.dtype}, {given.datatype} needs {dtype}")
        rows += part.shape[0] if part.ndim else 1
    if given.shape and rows > given.shape[0]:
        raise ValueError(f"input '{given.name}': the parts have {rows} rows, the executed shape is {given.shape}")


def _merge(target: npt.NDArray[Any], parts: Sequence[npt.NDArray[Any]], pad: object) -> None:
    if target.ndim == 0:
        target[()] = parts[0] if parts else pad
        return
    row = 0
    for part in parts:
        rows = target[row : row + part.shape[0]]
        if part.shape[1:] == target.shape[1:]:
            rows[...] = part
        else:
            rows[...] = pad
            rows[tuple(slice(0, size) for size in part.shape)] = part
        row += part.shape[0]
    if row < target.shape[0]:
        target[row:] = pad


def pad_element(datatype: Datatype, value: float) -> object:
    """``value`` as one element of ``datatype`` (BF16: as bits, rounded to nearest even).

    Raises:
        ValueError: the datatype cannot hold it.
    """
    if datatype is Datatype.BF16:
        bits = int(np.float32(value).view(np.uint32))
        return np.uint16((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
    try:
        return numpy_dtype(datatype).type(value)
    except OverflowError as error:
        raise ValueError(f"pad value {value} does not fit into {datatype}") from error


def encode_bytes(array: npt.NDArray[Any]) -> bytes:
    """BYTES elements in row-major order, each behind its length.

    Raises:
        ValueError: an element is neither ``bytes`` nor ``str``, or longer than 4 GiB.
    """
    pieces: list[bytes] = []
    for element in array.ravel(order="C").tolist():
        data = element.encode() if isinstance(element, str) else element
        if not isinstance(data, bytes):
            raise ValueError(f"elements of BYTES must be bytes or str, got {type(element).__name__}")  # noqa: TRY004 - one error type for bad data
        pieces += (struct.pack("<I", len(data)), data)
    return b"".join(pieces)


def decode_bytes(payload: bytes, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Inverse of :func:`encode_bytes`.

    Raises:
        ValueError: the payload does not hold exactly the elements of ``shape``.
    """
    flat = np.empty(math.prod(shape), dtype=object)
    position = 0
    for index in range(len(flat)):
        if position + 4 > len(payload):
            raise ValueError(f"BYTES payload ends at element {index} of {len(flat)}")
        (length,) = struct.unpack_from("<I", payload, position)
        position += 4
        flat[index] = payload[position : position + length]
        position += length
    if position != len(payload):
        raise ValueError(f"BYTES payload has {len(payload)} bytes, its {len(flat)} elements need {position}")
    return flat.reshape(shape)


def read(region: npt.NDArray[np.uint8], placed: Placed) -> npt.NDArray[Any]:
    """A tensor of a region: a view for fixed-size datatypes, a copy for BYTES.

    Raises:
        ValueError: the descriptor does not describe a tensor of this region.
    """
    least = 4 if placed.datatype is Datatype.BYTES else numpy_dtype(placed.datatype).itemsize
    if any(dim < 0 for dim in placed.shape) or math.prod(placed.shape) * least > placed.size:
        raise ValueError(f"'{placed.name}': {placed.size} bytes do not hold {placed.datatype} of shape {placed.shape}")
    if placed.datatype is Datatype.BYTES:
        raw = view(region, placed.offset, placed.size, np.dtype(np.uint8), (placed.size,))
        return decode_bytes(raw.tobytes(), placed.shape)
    return view(region, placed.offset, placed.size, numpy_dtype(placed.datatype), placed.shape)
