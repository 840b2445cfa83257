"""Inputs of the load generator: random ones, and files of the three kinds."""

from __future__ import annotations

import json

import numpy as np
import pytest
from harness_cli.errors import CliError
from harness_cli.load.config import Signature, TensorSignature
from harness_cli.load.grpc.converters import decode, encode, request_body, request_tail, response_tensors
from harness_cli.load.inputs import RANDOM_SAMPLES, check_samples, random_samples, read_samples
from harness_proto.grpc import inference_pb2 as pb
from harness_runtime.tensors import Datatype


def make_signature(*inputs, batched=True, max_rows=8) -> Signature:
    tensors = tuple(TensorSignature(name, Datatype(datatype), shape) for name, datatype, shape in inputs)
    return Signature("m", "1", batched, max_rows if batched else None, tensors, ())


def rng():
    return np.random.default_rng(1)


def read(path, known, rows=None):
    return read_samples(path, known, rows or {1: 1}, rng())


def test_random_inputs_are_valid_for_every_datatype():
    """Every datatype gets the dtype of the wire; variable dimensions their size; masks are never all zero."""
    known = make_signature(*[(datatype.value, datatype.value, (-1, 3)) for datatype in Datatype])
    samples = random_samples(known, {2: 1}, {"": 5, "INT64": 7}, rng())
    check_samples(samples, known)
    assert len(samples) == RANDOM_SAMPLES
    assert samples[0]["FP32"].shape == (2, 5, 3)
    assert samples[0]["INT64"].shape == (2, 7, 3)
    assert samples[0]["INT64"][..., 0].min() == 1
    assert request_body("m", "", known, samples[0])


def test_random_inputs_of_an_unbatched_model():
    """No rows axis, and no rows to choose."""
    known = make_signature(("X", "FP32", (4,)), batched=False)
    assert random_samples(known, {1: 1}, {}, rng())[0]["X"].shape == (4,)
    with pytest.raises(CliError, match="not batched"):
        random_samples(known, {2: 1}, {}, rng())


def test_dim_must_name_an_input():
    """A typing error in --dim is not silence."""
    with pytest.raises(CliError, match=r"'Z'.*'X'"):
        random_samples(make_signature(("X", "FP32", (-1,))), {1: 1}, {"Z": 3}, rng())


def test_npz_is_cut_into_requests(tmp_path):
    """Axis 0 is samples; rows are taken in order; what does not fill a request is left out."""
    path = tmp_path / "i.npz"
    np.savez(path, X=np.arange(28, dtype=np.float64).reshape(7, 4), I=np.arange(7, dtype=np.int32))
    samples = read(path, make_signature(("X", "FP32", (4,)), ("I", "INT64", ())), {2: 1})
    assert [sample["I"].tolist() for sample in samples] == [[0, 1], [2, 3], [4, 5]]
    assert samples[1]["X"].dtype == np.float32
    assert samples[1]["X"].tolist() == [[8, 9, 10, 11], [12, 13, 14, 15]]


def test_json_in_its_forms(tmp_path):
    """A body of the protocol, a list of bodies, plain objects with and without the rows axis."""
    known = make_signature(("X", "FP32", (2,)))
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [2, 2], "data": [1, 2, 3, 4]}]}
    path = tmp_path / "i.json"
    for content, want in [
        (body, [[[1, 2], [3, 4]]]),
        ([body, {"X": [5, 6]}, {"X": [[7, 8]]}], [[[1, 2], [3, 4]], [[5, 6]], [[7, 8]]]),
    ]:
        path.write_text(json.dumps(content))
        assert [sample["X"].tolist() for sample in read(path, known)] == want


def test_json_text_is_bytes(tmp_path):
    """Strings become BYTES elements in UTF-8."""
    path = tmp_path / "i.json"
    path.write_text(json.dumps([{"T": ["grüße"]}]))
    sample = read(path, make_signature(("T", "BYTES", (1,))))[0]
    assert sample["T"].shape == (1, 1) or sample["T"].shape == (1,)
    assert decode(Datatype.BYTES, encode(Datatype.BYTES, sample["T"])).tolist() == ["grüße".encode()]


def test_text_is_one_line_a_row(tmp_path):
    """Empty lines are no requests."""
    path = tmp_path / "i.txt"
    path.write_text("one\n\ntwo\nthree\n")
    samples = read(path, make_signature(("T", "BYTES", (1,))))
    assert [sample["T"].tolist() for sample in samples] == [[[b"one"]], [[b"two"]], [[b"three"]]]


@pytest.mark.parametrize(
    ("name", "content", "want"),
    [
        ("i.csv", b"", "suffix must be one of .npz, .json, .txt"),
        ("none.npz", None, "No such file"),
        ("i.npz", b"PK no zip", "npz"),
        ("i.json", b"{", "not JSON"),
        ("i.json", b"[3]", "request 0 is a int"),
        ("i.json", b'[{"X": [1, 2, 3]}]', r"request 0: input 'X' has shape \[1, 3\]"),
        ("i.json", b'[{"X": [1, 2], "Y": [1]}]', "request 0 has inputs 'X', 'Y'"),
        ("i.json", b'[{"X": ["a", "b"]}]', "'X' is FP32"),
        ("i.json", b'{"inputs": [{"name": "X", "shape": [1, 2], "data": [1]}]}', "request 0: cannot reshape"),
        ("i.json", b'{"inputs": [{"name": "X", "data": [1]}]}', "lacks 'shape'"),
        ("i.json", b"[]", "no requests"),
        ("i.txt", b"hello\n", "text needs a model with one BYTES input"),
    ],
)
def test_faults_of_files_are_named(tmp_path, name, content, want):
    """File, request, input, what was found and what is wanted; never a traceback."""
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CliError, match=want) as caught:
        read(path, make_signature(("X", "FP32", (2,))))
    assert str(path) in caught.value.message


def test_values_that_do_not_fit_are_refused(tmp_path):
    """Numbers are never wrapped or cut silently."""
    path = tmp_path / "i.json"
    for text, want in [('[{"X": [300]}]', "300 do not fit"), ('[{"X": [1.5]}]', "'X' is UINT8")]:
        path.write_text(text)
        with pytest.raises(CliError, match=want):
            read(path, make_signature(("X", "UINT8", (1,))))


def test_too_few_samples_for_the_rows(tmp_path):
    """Three samples cannot make one request of four rows."""
    path = tmp_path / "i.npz"
    np.savez(path, X=np.zeros((3, 2), np.float32))
    with pytest.raises(CliError, match="3 samples do not fill"):
        read(path, make_signature(("X", "FP32", (2,))), {4: 1})


def test_encoding_is_row_major_little_endian():
    """B020: Fortran order, strided slices and big-endian arrays arrive as the numbers they are."""
    fortran = np.asfortranarray(np.array([[1, 2], [3, 4]], np.float32))
    strided = np.arange(8, dtype=np.float32)[::2]
    big = np.array([1, 2], ">f4")
    assert decode(Datatype.FP32, encode(Datatype.FP32, fortran)).tolist() == [1, 2, 3, 4]
    assert decode(Datatype.FP32, encode(Datatype.FP32, strided)).tolist() == [0, 2, 4, 6]
    assert decode(Datatype.FP32, encode(Datatype.FP32, big)).tolist() == [1, 2]


def test_a_cut_bytes_element_is_refused():
    """Lengths are checked against the buffer."""
    with pytest.raises(ValueError, match="passes the end"):
        decode(Datatype.BYTES, b"\x05\x00\x00\x00ab")


def test_body_and_tail_make_one_request():
    """Serialised halves concatenate to one message with inputs and parameters."""
    known = make_signature(("X", "FP32", (1,)))
    data = request_body("m", "3", known, {"X": np.ones((2, 1), np.float32)}) + request_tail(50_000, 10.0, 1)
    request = pb.ModelInferRequest.FromString(data)
    assert (request.model_name, request.model_version, list(request.inputs[0].shape)) == ("m", "3", [2, 1])
    assert request.parameters["timeout"].int64_param == 50_000
    assert request.parameters["weight"].double_param == 10.0
    assert request.parameters["priority"].int64_param == 1


def test_typed_answers_are_read_too():
    """Servers may answer in contents instead of raw bytes."""
    output = pb.ModelInferResponse.InferOutputTensor(name="Y", datatype="INT64", shape=[1, 2])
    output.contents.int64_contents.extend([3, 4])
    answer = response_tensors(pb.ModelInferResponse(outputs=[output]).SerializeToString())
    assert answer["Y"].tolist() == [[3, 4]]
