"""The chain of checks on a request's tensors, and the lane it leads to."""

from __future__ import annotations

import numpy as np
import pytest
from harness_runtime.dataplane.signature import Signature
from harness_runtime.errors import RequestEnded
from harness_runtime.tensors import Buckets, Datatype, Tensor, TensorSpec

from tests.runtime.dataplane.builders import echo_request, make_spec, seq_request, seq_spec


def x(*shape: int, datatype: Datatype = Datatype.FP32, name: str = "X") -> Tensor:
    return Tensor(name, datatype, np.zeros(shape, np.float32))


def tag(*shape: int) -> Tensor:
    return Tensor("TAG", Datatype.INT64, np.zeros(shape, np.int64))


REFUSED = [
    ("no inputs", [], "input 'X': the model needs it, the request lacks it"),
    ("one missing", [x(1, 4)], "input 'TAG': the model needs it"),
    ("one unknown", [x(1, 4), tag(1), x(1, 4, name="Z")], "input 'Z': the model takes 'X', 'TAG'"),
    ("one twice", [x(1, 4), tag(1), x(1, 4)], "input 'X': given twice"),
    ("dtype", [x(1, 4, datatype=Datatype.INT32), tag(1)], "input 'X': the model takes FP32, got INT32"),
    ("rank", [x(4), tag(1)], "input 'X': the model takes shape [-1,4], got [4]"),
    ("no dimensions", [x(), tag(1)], "got []"),
    ("fixed dimension", [x(1, 5), tag(1)], "input 'X': the model takes shape [-1,4], got [1,5]"),
    ("no rows", [x(0, 4), tag(0)], "got [0,4]"),
    ("too many rows", [x(9, 4), tag(9)], "input 'X': 9 rows, the model's maxBatchSize is 8"),
    ("rows differ", [x(2, 4), tag(3)], "input 'TAG': 3 rows, but input 'X' has 2"),
]


@pytest.mark.parametrize(("tensors", "want"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_contradictions_of_the_signature_are_refused_and_named(tensors, want):
    """B009, B012, B014: each names the tensor, what the model expects and what came."""
    with pytest.raises(RequestEnded) as caught:
        Signature(make_spec()).check(tensors)
    assert want in caught.value.message
    assert caught.value.status.grpc == "INVALID_ARGUMENT"


def test_inputs_are_put_into_the_models_order():
    """The order of the request does not matter; rows and bytes are counted over all inputs."""
    request = echo_request(3)
    checked = Signature(make_spec()).check(request.inputs[::-1])
    assert [tensor.name for tensor in checked.inputs] == ["X", "TAG"]
    assert (checked.rows, checked.bytes, checked.bucket) == (3, 3 * 16 + 3 * 8, "")
    assert checked.padded == [(4,), ()]


@pytest.mark.parametrize(("length", "want"), [(1, 8), (7, 8), (8, 8), (9, 16), (16, 16)])
def test_a_length_is_padded_to_the_next_bucket(length, want):
    """Requests of many lengths share few lanes; the arrays themselves stay as they came."""
    checked = Signature(seq_spec()).check(seq_request(2, length).inputs)
    assert checked.bucket == f"IDS={want},MASK={want}"
    assert checked.padded == [(want,), (want,)]
    assert checked.inputs[0].array.shape == (2, length)


def test_beyond_the_largest_bucket_is_refused():
    """The limit is named, with the dimension as the caller counts it."""
    with pytest.raises(RequestEnded) as caught:
        Signature(seq_spec()).check(seq_request(1, 17).inputs)
    assert caught.value.message == "input 'IDS': dimension 1 is 17, the largest bucket is 16"


def test_a_variable_dimension_without_buckets_is_its_own_lane():
    """B012: only equal trailing shapes may merge, so the exact shape names the lane."""
    spec = make_spec(inputs=(TensorSpec("X", Datatype.FP32, (-1, 3, -1)),))
    checked = Signature(spec).check([x(2, 7, 3, 5)])
    assert checked.bucket == "X=7x5"
    assert checked.padded == [(7, 3, 5)]


def test_an_unbatched_model_takes_shapes_without_rows():
    """max_batch_size 0: no batch dimension, one row for the machine, buckets count from the first dimension."""
    spec = make_spec(max_batch_size=0, inputs=(TensorSpec("X", Datatype.FP32, (-1, 2), Buckets(0, (4,))),))
    checked = Signature(spec).check([x(3, 2)])
    assert (checked.rows, checked.bucket, checked.padded) == (1, "X=4", [(4, 2)])
    with pytest.raises(RequestEnded, match=r"takes shape \[-1,2\], got \[1,3,2\]"):
        Signature(spec).check([x(1, 3, 2)])


def test_outputs_are_checked_and_ordered():
    """Requested order is kept; unknown and repeated names are refused."""
    signature = Signature(make_spec())
    assert [spec.name for spec in signature.outputs(())] == ["Y", "TAG"]
    assert [spec.name for spec in signature.outputs(("TAG", "Y"))] == ["TAG", "Y"]
    with pytest.raises(RequestEnded, match="output 'Z': the model has 'Y', 'TAG'"):
        signature.outputs(("Z",))
    with pytest.raises(RequestEnded, match="output 'Y': asked for twice"):
        signature.outputs(("Y", "Y"))
