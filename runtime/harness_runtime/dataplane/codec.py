"""Between the protocol's bytes or elements and numpy arrays: row-major little-endian, always (scenario B020).

Decoding allocates nothing from a declared shape: raw numbers become a view of the received bytes, and everything else is
as large as what was sent.
"""

from __future__ import annotations

import struct
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from harness_runtime.errors import RequestEnded, invalid
from harness_runtime.tensors import Datatype, Tensor, numpy_dtype
from harness_runtime.text import quoted, shape_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

RANK_MAX = 32
_DATATYPES = {datatype.value: datatype for datatype in Datatype}
_LENGTH = struct.Struct("<I")
LENGTH_BYTES = _LENGTH.size
"""Before each element of BYTES in raw form."""
_NARROW = frozenset({Datatype.INT8, Datatype.INT16, Datatype.UINT8, Datatype.UINT16})
"""Datatypes whose typed contents travel in a wider integer and may be out of range."""


def parse_datatype(name: str, text: str) -> Datatype:
    """The datatype that input ``name`` declares.

    Raises:
        RequestEnded: INVALID for a word that is no datatype.
    """
    datatype = _DATATYPES.get(text)
    if datatype is None:
        raise invalid("datatype", f"input {quoted(name)}: {quoted(text)} is not a datatype of the protocol")
    return datatype


def from_raw(name: str, datatype: Datatype, shape: tuple[int, ...], data: bytes | memoryview) -> Tensor:
    """A tensor from its raw bytes, as a read-only view of them (BYTES: elements are copied out).

    Raises:
        RequestEnded: INVALID when shape and bytes do not agree, a BYTES element is cut off, or a BOOL is neither 0 nor 1.
    """
    count = _count(name, shape)
    if datatype is Datatype.BYTES:
        return Tensor(name, datatype, _objects(_split(name, shape, count, data)).reshape(shape))
    dtype = numpy_dtype(datatype)
    needed = count * dtype.itemsize
    if needed != len(data):
        raise invalid(
            "byte_count",
            f"input {quoted(name)}: shape {shape_text(shape)} of {datatype} needs {needed} bytes, got {len(data)}",
        )
    if datatype is Datatype.BOOL and np.frombuffer(data, np.uint8).max() > 1:
        raise invalid("bool_value", f"input {quoted(name)}: a BOOL is one byte of 0 or 1, got another value")
    return Tensor(name, datatype, np.frombuffer(data, dtype).reshape(shape))


def from_elements(name: str, datatype: Datatype, shape: tuple[int, ...], elements: Sequence[Any]) -> Tensor:
    """A tensor from its elements in row-major order.

    Raises:
        RequestEnded: INVALID when their number is not the shape's, or an integer does not fit the datatype.
    """
    count = _count(name, shape)
    if len(elements) != count:
        raise invalid(
            "element_count",
            f"input {quoted(name)}: shape {shape_text(shape)} of {datatype} needs {count} elements, got {len(elements)}",
        )
    if datatype is Datatype.BYTES:
        return Tensor(name, datatype, _objects(list(elements)).reshape(shape))
    dtype = numpy_dtype(datatype)
    if datatype not in _NARROW:
        return Tensor(name, datatype, np.fromiter(elements, dtype, count).reshape(shape))
    wide = np.fromiter(elements, np.int64, count)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    for value in (int(wide.min()), int(wide.max())):
        if not low <= value <= high:
            raise invalid("element_range", f"input {quoted(name)}: {datatype} holds {low} to {high}, got {value}")
    return Tensor(name, datatype, wide.astype(dtype).reshape(shape))


def to_raw(tensor: Tensor) -> bytes | memoryview:
    """The raw bytes of a tensor, whatever the layout or byte order of its array; a view where it is laid out so already."""
    if tensor.datatype is Datatype.BYTES:
        return b"".join(_prefixed(tensor.array.ravel().tolist()))
    array = np.ascontiguousarray(tensor.array, numpy_dtype(tensor.datatype))
    return array.reshape(-1).view(np.uint8).data


def element_bytes(element: bytes | str) -> bytes:
    """An element of a BYTES tensor; Python models may return text, which travels as UTF-8."""
    return element.encode() if isinstance(element, str) else bytes(element)


def wire_bytes(tensor: Tensor) -> int:
    """Size of a tensor in raw form."""
    if tensor.datatype is Datatype.BYTES:
        return sum(_LENGTH.size + len(element) for element in tensor.array.ravel())
    return int(tensor.array.nbytes)


def _count(name: str, shape: tuple[int, ...]) -> int:
    """Elements of a declared shape, as a Python int: no product can overflow."""
    if len(shape) > RANK_MAX:
        raise invalid("rank", f"input {quoted(name)}: {len(shape)} dimensions, at most {RANK_MAX} are taken")
    for dim in shape:
        if dim < 1:
            raise invalid(
                "dimension", f"input {quoted(name)}: shape {shape_text(shape)}: every dimension is at least 1"
            )
    return prod(shape)


def _split(name: str, shape: tuple[int, ...], count: int, data: bytes | memoryview) -> list[bytes]:
    """Elements of a raw BYTES tensor: each has its length in 4 little-endian bytes before it."""

    def broken(problem: str) -> RequestEnded:
        start = f"input {quoted(name)}: shape {shape_text(shape)} of BYTES needs {count} elements"
        return invalid("byte_count", f"{start}, each after its 4-byte length; {problem} in {len(data)} bytes")

    size = len(data)
    if count * _LENGTH.size > size:
        raise broken("they do not fit")
    elements, at = [], 0
    for index in range(count):
        if at + _LENGTH.size > size:
            raise broken(f"element {index} is missing")
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if length > size - at:
            raise broken(f"element {index} of {length} bytes is cut off")
        elements.append(bytes(data[at : at + length]))
        at += length
    if at != size:
        raise broken(f"{size - at} bytes are left over")
    return elements


def _objects(elements: list[bytes]) -> npt.NDArray[Any]:
    """A flat object array; filled in place, so that numpy never guesses a shape from the elements."""
    array = np.empty(len(elements), numpy_dtype(Datatype.BYTES))
    array[:] = elements
    return array


def _prefixed(elements: Iterable[Any]) -> Iterable[bytes]:
    for element in elements:
        data = element_bytes(element)
        yield _LENGTH.pack(len(data))
        yield data
