"""ModelInfer through a real server: what is refused and how, what comes back and in which form."""

from __future__ import annotations

import logging

import grpc
import numpy as np
import pytest
from google.protobuf.duration_pb2 import Duration
from harness_core.outcome import Outcome
from harness_proto.grpc import inference_pb2 as pb
from harness_proto.grpc import status_pb2
from harness_runtime.edge.grpc import converters
from harness_runtime.errors import RequestEnded
from harness_runtime.model import ModelState
from harness_runtime.tensors import Datatype, TensorSpec

from tests.runtime.dataplane.builders import FakeBatcher, make_entry, make_plane, make_registry, make_spec
from tests.runtime.grpc.running import MIB, RunningEdge, echo_message, output, raw_request, trailers

INVALID = grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("floats", [6, 2])
def test_b001_wrong_byte_counts_are_refused_before_the_queue(edge, batcher, floats):
    """B001: the tensor, 16 bytes expected and the bytes got are named; the other call has its own numbers."""
    message = echo_message()
    message.raw_input_contents[0] = np.arange(floats, dtype=np.float32).tobytes()
    error = edge.error(message)
    assert error.code() is INVALID
    assert error.details() == f"input 'X': shape [1,4] of FP32 needs 16 bytes, got {floats * 4}"
    assert batcher.works == []
    assert output(edge.infer(echo_message(first=100)), "Y") == [[200, 202, 204, 206]]


def test_b001_wrong_element_counts_are_refused(edge, batcher):
    """B001: six values in typed contents for four."""
    message = pb.ModelInferRequest(model_name="echo")
    message.inputs.add(name="X", datatype="FP32", shape=[1, 4]).contents.fp32_contents.extend(range(6))
    message.inputs.add(name="TAG", datatype="INT64", shape=[1]).contents.int64_contents.append(1)
    assert "needs 4 elements, got 6" in edge.error(message).details()
    assert batcher.works == []


IMPOSSIBLE = [
    ("empty", [1, 0], "FP16", b""),
    ("no rows", [0, 4], "FP32", b""),
    ("negative rows", [-1, 4], "FP32", bytes(16)),
    ("no dimensions", [], "FP32", bytes(4)),
    ("a trillion rows", [1099511627776, 4], "FP32", bytes(16)),
    ("beyond 64 bits", [2**62, 2**62], "FP32", bytes(16)),
    ("no datatype", [1, 4], "", bytes(16)),
    ("wrong datatype", [1, 4], "INT32", bytes(16)),
    ("nine rows", [9, 4], "FP32", bytes(144)),
]


@pytest.mark.parametrize(("shape", "datatype", "data"), [c[1:] for c in IMPOSSIBLE], ids=[c[0] for c in IMPOSSIBLE])
def test_b014_impossible_tensors_are_refused(edge, batcher, shape, datatype, data):
    """B009, B012, B014: INVALID_ARGUMENT, nothing queued, the next call answered. [0,4] is refused too (documented)."""
    message = echo_message()
    message.inputs[0].ClearField("shape")
    message.inputs[0].shape.extend(shape)
    message.inputs[0].datatype = datatype
    message.raw_input_contents[0] = data
    error = edge.error(message)
    assert error.code() is INVALID
    assert "'X'" in error.details()
    assert trailers(error)["harness-outcome"] == "invalid"
    assert batcher.works == []
    assert output(edge.infer(echo_message()), "Y") == [[0, 2, 4, 6]]


def test_b014_a_request_without_inputs_is_refused(edge, batcher):
    """B014: the missing input is named."""
    error = edge.error(pb.ModelInferRequest(model_name="echo"))
    assert (error.code(), "input 'X'" in error.details()) == (INVALID, True)


def test_bytes_that_are_no_message_are_refused(edge, batcher):
    """Garbage in the frame is INVALID_ARGUMENT of this call, never UNKNOWN or INTERNAL."""
    call = edge.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    for data in (b"\xff\xff\xff", b"\x0a\xff", b"\x0b", b"\x0a\x02\xff\xfe", b"\x3a\x00" * 50_000):
        with pytest.raises(grpc.RpcError) as caught:
            call(data, timeout=10)
        assert caught.value.code() is INVALID


def test_b018_ids_and_parameters_come_back_with_their_kinds(edge, batcher):
    """B018: request parameters keep name, value and kind; a tensor's go to the output of the same name."""
    message = echo_message(id="a")
    message.parameters["k"].int64_param = 1
    message.parameters["u"].uint64_param = 2
    message.parameters["d"].double_param = 3.0
    message.parameters["b"].bool_param = False
    message.parameters["s"].string_param = ""
    message.parameters["timeout"].int64_param = 1_000_000
    message.inputs[1].parameters["id"].string_param = "123"
    response = edge.infer(message)
    assert response.id == "a"
    want = {key: value for key, value in message.parameters.items() if key != "timeout"}
    assert dict(response.parameters) == want
    assert [dict(tensor.parameters) for tensor in response.outputs] == [
        {},
        {"id": pb.InferParameter(string_param="123")},
    ]
    assert edge.infer(echo_message()).id == ""


def test_a_parameter_without_a_value_is_refused(edge, batcher):
    """The oneof is empty: there is nothing to keep or to obey."""
    message = echo_message()
    message.parameters["k"].SetInParent()
    assert "parameter 'k': has no value" in edge.error(message).details()


def typed(
    name: str, datatype: str, shape: list[int], field: str, values: list
) -> pb.ModelInferRequest.InferInputTensor:
    tensor = pb.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape)
    getattr(tensor.contents, field).extend(values)
    return tensor


X_TYPED = typed("X", "FP32", [1, 4], "fp32_contents", [0, 1, 2, 3])
TAG_TYPED = typed("TAG", "INT64", [1], "int64_contents", [7])
X_BARE = pb.ModelInferRequest.InferInputTensor(name="X", datatype="FP32", shape=[1, 4])
TAG_BARE = pb.ModelInferRequest.InferInputTensor(name="TAG", datatype="INT64", shape=[1])
X_RAW, TAG_RAW = np.arange(4, dtype=np.float32).tobytes(), np.array([7]).tobytes()
MIXED = [
    ("one typed, one raw", [X_TYPED, TAG_BARE], [TAG_RAW], "got 1 raw entries for 2 inputs"),
    ("typed too", [X_TYPED, TAG_BARE], [X_RAW, TAG_RAW], "input 'X': has both"),
    ("one raw for two", [X_BARE, TAG_BARE], [X_RAW], "got 1 raw entries for 2 inputs"),
    ("three raw for two", [X_BARE, TAG_BARE], [X_RAW, TAG_RAW, b""], "got 3 raw entries for 2 inputs"),
]


@pytest.mark.parametrize(("inputs", "raws", "want"), [c[1:] for c in MIXED], ids=[c[0] for c in MIXED])
def test_b019_mixed_forms_are_refused_with_the_rule(edge, batcher, inputs, raws, want):
    """B019: INVALID_ARGUMENT that states the rule."""
    error = edge.error(pb.ModelInferRequest(model_name="echo", inputs=inputs, raw_input_contents=raws))
    assert error.code() is INVALID
    assert want in error.details()
    assert "either every input has one entry in raw_input_contents" in error.details()


def test_elements_in_another_datatypes_field_are_refused(edge, batcher):
    """A wrong or second field is named instead of being dropped."""
    wrong = typed("X", "FP32", [1, 4], "int_contents", [1, 2, 3, 4])
    error = edge.error(pb.ModelInferRequest(model_name="echo", inputs=[wrong, TAG_TYPED]))
    assert "elements of FP32 belong in fp32_contents, got int_contents" in error.details()


FORMS = [
    (Datatype.BOOL, "bool_contents", [True, False], np.bool_),
    (Datatype.INT8, "int_contents", [-128, 127], np.int8),
    (Datatype.INT16, "int_contents", [-32768, 5], np.int16),
    (Datatype.INT32, "int_contents", [-(2**31), 5], np.int32),
    (Datatype.INT64, "int64_contents", [-(2**63), 5], np.int64),
    (Datatype.UINT8, "uint_contents", [0, 255], np.uint8),
    (Datatype.UINT16, "uint_contents", [0, 65535], np.uint16),
    (Datatype.UINT32, "uint_contents", [0, 2**32 - 1], np.uint32),
    (Datatype.UINT64, "uint64_contents", [0, 2**64 - 1], np.uint64),
    (Datatype.FP32, "fp32_contents", [1.5, -2.25], np.float32),
    (Datatype.FP64, "fp64_contents", [0.1, -1e300], np.float64),
    (Datatype.BYTES, "bytes_contents", [b"a\0", b""], None),
]


@pytest.mark.parametrize(("datatype", "field", "values", "dtype"), FORMS, ids=[form[0] for form in FORMS])
def test_b019_typed_and_raw_give_equal_results(datatype, field, values, dtype):
    """B019: every datatype, both ways; the answer has the form of the request."""
    spec = make_spec(name="same", inputs=(TensorSpec("X", datatype, (2,)),), outputs=(TensorSpec("Y", datatype, (2,)),))
    if dtype is None:
        data = b"".join(len(value).to_bytes(4, "little") + value for value in values)
    else:
        data = np.array(values, dtype).tobytes()
    raw = pb.ModelInferRequest(model_name="same", raw_input_contents=[data])
    raw.inputs.add(name="X", datatype=datatype.value, shape=[1, 2])
    elements = pb.ModelInferRequest(model_name="same", inputs=[typed("X", datatype.value, [1, 2], field, values)])
    batcher = FakeBatcher()
    with RunningEdge(make_plane(make_registry(make_entry(spec)), batcher)) as edge:
        raw_answer, typed_answer = edge.infer(raw), edge.infer(elements)
    first, second = (work.inputs[0].array for work in batcher.works)
    assert first.dtype == second.dtype
    assert first.tolist() == second.tolist() == [values]
    assert batcher.works[0].bytes == batcher.works[1].bytes == len(data)
    assert list(raw_answer.raw_output_contents) == [data]
    assert not raw_answer.outputs[0].HasField("contents")
    assert not typed_answer.raw_output_contents
    assert list(getattr(typed_answer.outputs[0].contents, field)) == values


@pytest.mark.parametrize("datatype", [Datatype.FP16, Datatype.BF16])
def test_half_precision_travels_raw_only(datatype):
    """B019: there is no typed field for it; a typed request whose answer is FP16 is answered raw."""
    half = make_spec(name="half", inputs=(TensorSpec("X", datatype, (2,)),), outputs=(TensorSpec("Y", datatype, (2,)),))
    widen = make_spec(
        name="widen", inputs=(TensorSpec("X", Datatype.UINT16, (2,)),), outputs=(TensorSpec("Y", datatype, (2,)),)
    )
    bits = np.array([[1, 2]], np.uint16)
    with RunningEdge(make_plane(make_registry(make_entry(half), make_entry(widen)), FakeBatcher())) as edge:
        answer = edge.infer(raw_request("half", X=(datatype.value, bits)))
        assert list(answer.raw_output_contents) == [bits.tobytes()]
        bare = pb.ModelInferRequest(model_name="half")
        bare.inputs.add(name="X", datatype=datatype.value, shape=[1, 2])
        assert f"{datatype} travels in raw_input_contents only" in edge.error(bare).details()
        if datatype is Datatype.BF16:
            tensor = typed("X", "UINT16", [1, 2], "uint_contents", [1, 2])
            answer = edge.infer(pb.ModelInferRequest(model_name="widen", inputs=[tensor]))
            assert list(answer.raw_output_contents) == [bits.tobytes()]


def test_outputs_match_the_list_asked_for(edge, batcher):
    """B019: order and number of outputs and raw entries are those of the request."""
    message = echo_message(2)
    message.outputs.add(name="TAG")
    message.outputs.add(name="Y")
    response = edge.infer(message)
    assert [tensor.name for tensor in response.outputs] == ["TAG", "Y"]
    assert output(response, "TAG", np.int64) == [0, 1]
    message.outputs.add(name="Z")
    assert "output 'Z'" in edge.error(message).details()


def test_padding_never_shows(edge, batcher):
    """A request of 5 in a bucket of 8 is answered with 5."""
    ids = np.arange(10).reshape(2, 5)
    response = edge.infer(raw_request("seq", IDS=("INT64", ids), MASK=("INT64", np.ones_like(ids))))
    assert output(response, "TOKENS", np.int64) == ids.tolist()
    assert batcher.works[0].bucket == "IDS=8,MASK=8"


@pytest.mark.parametrize(("name", "version"), [("nope", ""), ("echo", "99"), ("echo", "abc")])
def test_b023_unknown_is_not_found_and_said_before_the_payload_is_read(edge, batcher, name, version):
    """B023: NOT_FOUND, also when the tensors are wrong as well."""
    message = echo_message()
    message.model_name, message.model_version = name, version
    message.raw_input_contents[0] = b"short"
    error = edge.error(message)
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert "harness-outcome" in trailers(error)


def test_b023_the_version_used_is_reported(edge, batcher):
    """B023: without a version the highest ready one answers and says which it is."""
    assert edge.infer(echo_message()).model_version == "2"
    assert edge.infer(echo_message(model_version="1")).model_version == "1"


def test_b023_a_loading_model_is_unavailable():
    """B023: UNAVAILABLE with a RetryInfo, and OK once it is ready."""
    registry = make_registry(make_entry(make_spec(), ModelState.LOADING))
    with RunningEdge(make_plane(registry, FakeBatcher())) as edge:
        error = edge.error(echo_message())
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        status = status_pb2.Status.FromString(trailers(error)["grpc-status-details-bin"])
        assert (status.code, status.message) == (14, error.details())
        assert status.details[0].type_url == "type.googleapis.com/google.rpc.RetryInfo"
        assert status_pb2.RetryInfo.FromString(status.details[0].value).retry_delay == Duration(seconds=1)
        edge.run(registry.set_state, "digest-echo-1", ModelState.READY)
        assert output(edge.infer(echo_message()), "Y") == [[0, 2, 4, 6]]


def test_b024_one_limit_both_ways_names_limit_and_hop(batcher):
    """B024: at the limit OK; over it RESOURCE_EXHAUSTED naming limit and hop, for requests and for responses."""
    one_way = (TensorSpec("X", Datatype.UINT8, (-1,)),)
    spec = make_spec(name="blob", inputs=one_way, outputs=(TensorSpec("Y" * 100, Datatype.UINT8, (-1,)),))
    unsent = []
    plane = make_plane(
        make_registry(make_entry(spec)), FakeBatcher(), on_unsent=lambda model, reason: unsent.append((model, reason))
    )
    with RunningEdge(plane, max_message_bytes=6 * MIB) as edge:

        def blob(size: int) -> pb.ModelInferRequest:
            return raw_request("blob", X=("UINT8", np.zeros((1, size), np.uint8)))

        assert edge.infer(blob(5 * MIB)).outputs[0].shape == [1, 5 * MIB]
        for size, what in ((7 * MIB, "request"), (24 * MIB, "request"), (6 * MIB - 60, "response")):
            error = edge.error(blob(size))
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert error.details().startswith(f"runtime: {what} of ")
            assert error.details().endswith(f"is over maxMessageBytes, {6 * MIB} bytes")
            assert trailers(error)["harness-reason"] == f"{what}_too_large"
        assert edge.error(blob(26 * MIB)).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        # The batcher has counted that one as completed.
        assert unsent == [("blob", "response_too_large")]


def test_a_fault_of_the_edge_itself_is_counted_once(monkeypatch):
    """B004: INTERNAL without words of ours about it; before the queue a failed request, behind it an answer that was not sent."""
    refused, unsent = [], []
    registry = make_registry(make_entry(make_spec()))
    plane = make_plane(
        registry, FakeBatcher(), on_refused=lambda *end: refused.append(end), on_unsent=lambda *end: unsent.append(end)
    )

    def fault(*_arguments, **_options):
        raise ZeroDivisionError("a fault")

    with RunningEdge(plane) as edge:
        for name in ("infer_request", "response_parts"):
            with monkeypatch.context() as patch:
                patch.setattr(converters, name, fault)
                error = edge.error(echo_message())
                assert error.code() is grpc.StatusCode.INTERNAL
                assert "fault" not in error.details()
        assert output(edge.infer(echo_message()), "Y") == [[0, 2, 4, 6]]
    assert refused == [("echo", Outcome.FAILED, "internal")]
    assert unsent == [("echo", "internal")]


ENDS = [
    (RequestEnded(Outcome.EXPIRED, "limit_passed", "too late"), "DEADLINE_EXCEEDED", None),
    (RequestEnded(Outcome.REJECTED_INFEASIBLE, "cannot_finish", "no"), "DEADLINE_EXCEEDED", None),
    (RequestEnded(Outcome.REJECTED_CAPACITY, "queue_full", "full", retry_after_ms=1500), "RESOURCE_EXHAUSTED", 1500),
    (RequestEnded(Outcome.SHED, "less_valuable", "shed"), "RESOURCE_EXHAUSTED", 1000),
    (RequestEnded(Outcome.UNAVAILABLE, "executor_lost", "gone", retry_after_ms=20), "UNAVAILABLE", 20),
    (RequestEnded(Outcome.CANCELLED, "cancelled", "withdrawn"), "CANCELLED", None),
    (RequestEnded(Outcome.FAILED, "model_raised", "boom"), "INTERNAL", None),
    (RequestEnded(Outcome.FAILED, "out_of_memory", "big", out_of_memory=True), "RESOURCE_EXHAUSTED", None),
]


@pytest.mark.parametrize(("end", "code", "retry_ms"), ENDS, ids=[end[0].reason for end in ENDS])
def test_every_end_has_its_code_and_trailers(edge, batcher, end, code, retry_ms):
    """protocol.md §3: code, harness-outcome, harness-reason, and a RetryInfo exactly where a retry makes sense."""
    batcher.end = end
    error = edge.error(echo_message())
    assert (error.code().name, error.details()) == (code, end.message)
    sent = trailers(error)
    assert (sent["harness-outcome"], sent["harness-reason"]) == (end.outcome.value, end.reason)
    assert ("grpc-status-details-bin" in sent) == (retry_ms is not None)
    if retry_ms is not None:
        status = status_pb2.Status.FromString(sent["grpc-status-details-bin"])
        delay = status_pb2.RetryInfo.FromString(status.details[0].value).retry_delay
        assert delay.ToMilliseconds() == retry_ms


def test_the_numbers_behind_a_refusal_are_in_the_trailer(edge, batcher):
    """protocol.md §3: needed 23 ms, had 11 ms."""
    numbers = {"needed_ns": 23_000_000, "had_ns": 11_000_000}
    batcher.end = RequestEnded(Outcome.REJECTED_INFEASIBLE, "cannot_finish", "no", **numbers)
    assert trailers(edge.error(echo_message()))["harness-reason"] == "cannot_finish; needed_ms=23.000; had_ms=11.000"


def test_late_answers_say_so(edge, batcher):
    """protocol.md §3: OK with harness_late; the trailer names the outcome."""
    batcher.outcome = Outcome.LATE
    response, call = edge.stub.ModelInfer.with_call(echo_message(), timeout=10)
    assert response.parameters["harness_late"].bool_param
    assert trailers(call)["harness-outcome"] == "late"


def test_b004_a_fault_of_our_own_ends_one_call_only(edge, batcher, caplog):
    """B004: INTERNAL for the poison, logged; its text stays inside; the next ten succeed."""
    batcher.end = ZeroDivisionError("secret")
    with caplog.at_level(logging.ERROR):
        error = edge.error(echo_message())
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in error.details()
    assert trailers(error)["harness-outcome"] == "failed"
    assert "ZeroDivisionError: secret" in caplog.text
    batcher.end = None
    for first in range(10):
        assert output(edge.infer(echo_message(first=first)), "Y")[0][0] == 2 * first


def test_long_names_in_a_message_still_fit_into_headers(edge, batcher):
    """A caller's 100 KB name is cut in our message; uncut, the status itself would be lost."""
    error = edge.error(echo_message(model_name="é" * 100_000))
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert len(error.details()) < 1024


def test_shared_memory_is_unimplemented(edge, batcher):
    """protocol.md §2: said openly."""
    message = echo_message()
    message.inputs[0].parameters["shared_memory_region"].string_param = "r"
    assert edge.error(message).code() is grpc.StatusCode.UNIMPLEMENTED
    message = echo_message()
    message.outputs.add(name="Y").parameters["shared_memory_region"].string_param = "r"
    assert edge.error(message).code() is grpc.StatusCode.UNIMPLEMENTED


def test_the_fairness_id_reaches_the_batcher(edge, batcher):
    """protocol.md §2: recorded; too long a one is refused."""
    key = "x-gateway-inference-fairness-id"
    edge.infer(echo_message(), metadata=((key, "team-a"),))
    assert batcher.works[0].tenant == "team-a"
    assert edge.error(echo_message(), metadata=((key, "t" * 300),)).code() is INVALID
