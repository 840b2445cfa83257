"""Bytes and elements to arrays and back."""

from __future__ import annotations

import numpy as np
import pytest
from harness_runtime.dataplane import codec
from harness_runtime.errors import RequestEnded
from harness_runtime.tensors import Datatype, Tensor, numpy_dtype
from hypothesis import given
from hypothesis import strategies as st

WRONG_RAW = [
    ("24 bytes for 16", Datatype.FP32, (1, 4), bytes(24), "input 'X': shape [1,4] of FP32 needs 16 bytes, got 24"),
    ("8 bytes for 16", Datatype.FP32, (1, 4), bytes(8), "input 'X': shape [1,4] of FP32 needs 16 bytes, got 8"),
    ("empty dimension", Datatype.FP16, (1, 0), b"", "shape [1,0]: every dimension is at least 1"),
    ("no rows", Datatype.FP32, (0, 4), b"", "shape [0,4]: every dimension is at least 1"),
    ("negative", Datatype.FP32, (-1, 4), bytes(16), "shape [-1,4]: every dimension is at least 1"),
    ("two negatives", Datatype.FP32, (-2, -2), bytes(16), "every dimension is at least 1"),
    ("a trillion", Datatype.FP32, (2**40, 4), bytes(16), f"needs {2**44} bytes, got 16"),
    ("wraps to 16 in 64 bits", Datatype.UINT8, (2**62, 4, 4, 1), bytes(16), f"needs {2**66} bytes"),
    ("dimensions without end", Datatype.UINT8, (1,) * 33, b"1", "33 dimensions, at most 32"),
    ("scalar", Datatype.FP32, (), bytes(8), "shape [] of FP32 needs 4 bytes, got 8"),
    ("bool of 2", Datatype.BOOL, (3,), b"\0\1\2", "a BOOL is one byte of 0 or 1"),
    ("bytes: cut length", Datatype.BYTES, (1,), b"\1\0", "they do not fit in 2 bytes"),
    ("bytes: cut element", Datatype.BYTES, (1,), b"\2\0\0\0a", "element 0 of 2 bytes is cut off"),
    ("bytes: missing", Datatype.BYTES, (2,), b"\4\0\0\0abcd", "element 1 is missing"),
    ("bytes: left over", Datatype.BYTES, (1,), b"\1\0\0\0ab", "1 bytes are left over"),
    ("bytes: huge length", Datatype.BYTES, (1,), b"\xff\xff\xff\xffa", "element 0 of 4294967295 bytes is cut off"),
    ("bytes: a trillion", Datatype.BYTES, (2**40,), bytes(8), "they do not fit in 8 bytes"),
]


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "want"), [c[1:] for c in WRONG_RAW], ids=[c[0] for c in WRONG_RAW]
)
def test_raw_bytes_that_contradict_their_shape_are_refused(datatype, shape, data, want):
    """B001, B014: INVALID, naming tensor, shape, needed and got; products are exact, nothing is allocated from them."""
    with pytest.raises(RequestEnded) as caught:
        codec.from_raw("X", datatype, shape, data)
    assert want in caught.value.message
    assert "'X'" in caught.value.message
    assert caught.value.status.grpc == "INVALID_ARGUMENT"


WRONG_TYPED = [
    ("six for four", Datatype.FP32, (1, 4), [0.0] * 6, "needs 4 elements, got 6"),
    ("int8 range", Datatype.INT8, (2,), [1, 128], "INT8 holds -128 to 127, got 128"),
    ("uint16 range", Datatype.UINT16, (1,), [65536], "UINT16 holds 0 to 65535, got 65536"),
    ("none", Datatype.INT64, (1,), [], "needs 1 elements, got 0"),
]


@pytest.mark.parametrize(
    ("datatype", "shape", "elements", "want"), [c[1:] for c in WRONG_TYPED], ids=[c[0] for c in WRONG_TYPED]
)
def test_elements_that_contradict_their_shape_are_refused(datatype, shape, elements, want):
    """B001 for typed contents: the same rules, counted in elements."""
    with pytest.raises(RequestEnded) as caught:
        codec.from_elements("X", datatype, shape, elements)
    assert want in caught.value.message


@pytest.mark.parametrize("datatype", [d for d in Datatype if d is not Datatype.BYTES])
def test_raw_numbers_survive_both_ways_as_a_view(datatype):
    """Every numeric datatype is little-endian on the wire, and decoding copies nothing."""
    data = bytes([0, 1] * 12) if datatype is Datatype.BOOL else bytes(range(24))
    size = len(data) // numpy_dtype(datatype).itemsize
    tensor = codec.from_raw("X", datatype, (size, 1), data)
    assert tensor.array.base is not None
    assert not tensor.array.flags.writeable
    assert bytes(codec.to_raw(tensor)) == data
    assert codec.wire_bytes(tensor) == len(data)


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=10))
def test_bytes_elements_survive_both_ways(elements):
    """BYTES: any elements, also empty ones and ones with trailing zeros."""
    array = np.empty(len(elements), object)
    array[:] = elements
    raw = codec.to_raw(Tensor("X", Datatype.BYTES, array))
    tensor = codec.from_raw("X", Datatype.BYTES, (len(elements),), raw)
    assert tensor.array.tolist() == elements
    assert codec.wire_bytes(tensor) == len(raw)


@given(st.binary(max_size=64), st.integers(1, 8))
def test_any_bytes_for_a_bytes_tensor_are_decoded_or_refused(data, count):
    """The walk over elements never reads beyond the data and never raises anything of its own."""
    try:
        tensor = codec.from_raw("X", Datatype.BYTES, (count,), data)
    except RequestEnded:
        return
    assert bytes(codec.to_raw(tensor)) == data


LAYOUTS = {
    "fortran": np.asfortranarray(np.array([[1, 2], [3, 4]], np.float32)),
    "transposed": np.array([[1, 3], [2, 4]], np.float32).T,
    "strided": np.array([[1, 9, 2, 9], [3, 9, 4, 9]], np.float32)[:, ::2],
    "big-endian": np.array([[1, 2], [3, 4]], ">f4"),
    "float64": np.array([[1, 2], [3, 4]], np.float64),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_memory_layout_is_written_row_major_little_endian(layout):
    """B020: the numbers on the wire do not depend on strides or byte order of the array."""
    raw = codec.to_raw(Tensor("Y", Datatype.FP32, LAYOUTS[layout]))
    assert np.frombuffer(raw, "<f4").tolist() == [1, 2, 3, 4]


def test_expanded_views_are_written_out():
    """B020: a broadcast view (stride 0) becomes its elements."""
    view = np.broadcast_to(np.array([[7.0]], np.float32), (2, 3))
    assert np.frombuffer(codec.to_raw(Tensor("Y", Datatype.FP32, view)), "<f4").tolist() == [7] * 6


def test_unknown_datatypes_are_refused_by_name():
    """A word that is no datatype is named, bounded and in ASCII."""
    with pytest.raises(RequestEnded) as caught:
        codec.parse_datatype("X", "FP128" + "é" * 1000)
    assert "FP128" in caught.value.message
    assert len(caught.value.message) < 500
    assert caught.value.message.isascii()
