"""The committed stubs are those of the protos beside them."""

from __future__ import annotations

import os

import pytest

grpc_tools = pytest.importorskip("grpc_tools", reason="grpcio-tools is not installed (dependency group lint)")


def test_stubs_are_fresh(tmp_path, monkeypatch):
    """A changed proto without its stubs would serve the old protocol."""
    from harness_proto.generate import STUBS, generate

    monkeypatch.setenv("PATH", os.environ["PATH"])
    generate(tmp_path)
    written = {path.name: path.read_text() for path in (tmp_path / "harness_proto" / "grpc").iterdir()}
    committed = {path.name: path.read_text() for path in STUBS.glob("*_pb2*")}
    assert written == committed


def test_field_numbers_are_those_of_the_protocol():
    """protocol.md §1: the numbers that existing clients send."""
    from harness_proto.grpc import inference_pb2 as pb

    want = {
        pb.ModelInferRequest: "model_name model_version id parameters inputs outputs raw_input_contents",
        pb.ModelInferRequest.InferInputTensor: "name datatype shape parameters contents",
        pb.ModelInferRequest.InferRequestedOutputTensor: "name parameters",
        pb.ModelInferResponse: "model_name model_version id parameters outputs raw_output_contents",
        pb.ModelInferResponse.InferOutputTensor: "name datatype shape parameters contents",
        pb.InferParameter: "bool_param int64_param string_param double_param uint64_param",
        pb.InferTensorContents: "bool_contents int_contents int64_contents uint_contents uint64_contents "
        "fp32_contents fp64_contents bytes_contents",
        pb.ModelMetadataResponse: "name versions platform inputs outputs properties",
        pb.ModelMetadataResponse.TensorMetadata: "name datatype shape",
        pb.ServerMetadataResponse: "name version extensions",
        pb.ModelReadyRequest: "name version",
    }
    for message, names in want.items():
        assert [message.DESCRIPTOR.fields_by_number[n + 1].name for n, _ in enumerate(names.split())] == names.split()
