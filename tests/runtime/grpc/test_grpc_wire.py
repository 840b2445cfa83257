"""The walk over ModelInfer frames against protobuf itself."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from harness_proto.grpc import inference_pb2 as pb
from harness_runtime.edge.grpc import wire
from hypothesis import given
from hypothesis import strategies as st


@given(st.text(max_size=20), st.lists(st.binary(max_size=300), max_size=6), st.integers(0, 3), st.randoms())
def test_a_split_request_is_the_whole_request(name, raws, inputs, random):
    """Header and raw contents together are what protobuf reads, in any order of the fields."""
    message = pb.ModelInferRequest(model_name=name, raw_input_contents=raws)
    for index in range(inputs):
        message.inputs.add(name=str(index), shape=[index])
    parts = [pb.ModelInferRequest(raw_input_contents=[raw]).SerializeToString() for raw in raws]
    header = pb.ModelInferRequest.FromString(message.SerializeToString())
    header.ClearField("raw_input_contents")
    parts.insert(random.randint(0, len(parts)), header.SerializeToString())
    got, views = wire.split_request(b"".join(parts))
    assert pb.ModelInferRequest.FromString(got) == header
    assert [bytes(view) for view in views] == raws


@given(st.binary(max_size=200))
def test_any_bytes_are_split_as_protobuf_reads_them_or_refused(data):
    """What the walk takes, protobuf reads the same; what protobuf reads and the walk refuses is no client's message."""
    try:
        header, views = wire.split_request(data)
        split = pb.ModelInferRequest.FromString(header)
    except (wire.MalformedError, DecodeError):
        return
    whole = pb.ModelInferRequest.FromString(data)
    assert [bytes(view) for view in views] == list(whole.raw_input_contents)
    whole.ClearField("raw_input_contents")
    whole.DiscardUnknownFields()
    split.DiscardUnknownFields()
    assert split == whole


def test_unknown_fields_of_a_newer_client_are_passed_over():
    """Every wire type that proto3 writes; groups, which it does not, are refused."""
    known = pb.ModelInferRequest(id="a", raw_input_contents=[b"xy"]).SerializeToString()
    unknown = b"\xf8\x07\x96\x01" + b"\xf9\x07" + bytes(8) + b"\xfa\x07\x01z" + b"\xfd\x07" + bytes(4)
    header, views = wire.split_request(unknown + known + unknown)
    assert pb.ModelInferRequest.FromString(header).id == "a"
    assert [bytes(view) for view in views] == [b"xy"]
    with pytest.raises(wire.MalformedError):
        wire.split_request(b"\xfb\x07\xfc\x07")


def test_the_number_of_fields_is_bounded():
    """Two bytes a field could become millions of objects."""
    assert len(wire.split_request(b"\x3a\x00" * wire.FIELDS_MAX)[1]) == wire.FIELDS_MAX
    with pytest.raises(wire.MalformedError, match="more than 4096"):
        wire.split_request(b"\x3a\x00" * (wire.FIELDS_MAX + 1))


@given(st.lists(st.binary(max_size=300), max_size=4))
def test_a_joined_response_is_what_protobuf_writes(raws):
    """Lengths of one and two bytes included."""
    header = pb.ModelInferResponse(model_name="m", id="a")
    data = b"".join(wire.join_response(header.SerializeToString(), raws))
    assert pb.ModelInferResponse.FromString(data) == pb.ModelInferResponse(
        model_name="m", id="a", raw_output_contents=raws
    )
