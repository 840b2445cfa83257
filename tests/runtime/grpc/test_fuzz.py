"""Arbitrary requests against a real server: always a documented code, never UNKNOWN or INTERNAL, never the server's end."""

from __future__ import annotations

import grpc
import numpy as np
from harness_proto.grpc import inference_pb2 as pb
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.runtime.grpc.running import echo_message, output

ALLOWED = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
NAMES = st.sampled_from(["X", "TAG", "IDS", "MASK", "Y", "TOKENS", "é", ""]) | st.text(max_size=5)
DATATYPES = st.sampled_from(["FP32", "INT64", "INT8", "BOOL", "BYTES", "FP16", "BF16", "UINT64", "", "FLOAT"])
DIMS = st.sampled_from([-1, 0, 1, 2, 4, 8, 9, 2**31, 2**62, -(2**63)])
INT64 = st.integers(-(2**63), 2**63 - 1)
PARAMETERS = st.dictionaries(
    st.sampled_from(["timeout", "priority", "weight", "sequence_id", "k", "shared_memory_region", "triton_x", ""])
    | st.text(max_size=5),
    st.one_of(
        st.builds(pb.InferParameter, bool_param=st.booleans()),
        st.builds(pb.InferParameter, int64_param=INT64 | st.integers(0, 9)),
        st.builds(pb.InferParameter, string_param=st.text(max_size=5)),
        st.builds(pb.InferParameter, double_param=st.floats()),
        st.builds(pb.InferParameter, uint64_param=st.integers(0, 2**64 - 1)),
        st.just(pb.InferParameter()),
    ),
    max_size=3,
)
CONTENTS = st.builds(
    pb.InferTensorContents,
    bool_contents=st.lists(st.booleans(), max_size=2),
    int_contents=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=2),
    int64_contents=st.lists(INT64, max_size=4),
    fp32_contents=st.lists(st.floats(width=32), max_size=8),
    bytes_contents=st.lists(st.binary(max_size=4), max_size=4),
)
TENSORS = st.builds(
    pb.ModelInferRequest.InferInputTensor,
    name=NAMES,
    datatype=DATATYPES,
    shape=st.lists(DIMS, max_size=4),
    parameters=PARAMETERS,
    contents=st.none() | CONTENTS,
)
REQUESTS = st.builds(
    pb.ModelInferRequest,
    model_name=st.sampled_from(["echo", "seq", "nope", ""]),
    model_version=st.sampled_from(["", "1", "2", "abc"]),
    id=st.text(max_size=3),
    parameters=PARAMETERS,
    inputs=st.lists(TENSORS, max_size=3),
    outputs=st.lists(
        st.builds(pb.ModelInferRequest.InferRequestedOutputTensor, name=NAMES, parameters=PARAMETERS), max_size=2
    ),
    raw_input_contents=st.lists(st.binary(max_size=40), max_size=3),
)
FUZZ = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def code_of(call) -> grpc.StatusCode:
    try:
        call()
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@FUZZ
@given(REQUESTS)
def test_any_request_ends_with_a_documented_code(edge, batcher, message):
    """B014, as a whole kind of fault: whatever a message says, the call ends well-defined and the server goes on."""
    assert code_of(lambda: edge.infer(message, timeout=10)) in ALLOWED


@FUZZ
@given(
    st.sampled_from(["X", "TAG"]),
    DATATYPES,
    st.lists(DIMS, max_size=3),
    st.binary(max_size=80),
    PARAMETERS,
)
def test_one_wrong_tensor_never_reaches_the_batcher_in_a_wrong_shape(
    edge, batcher, name, datatype, shape, data, given_
):
    """B001: what the batcher sees has the model's datatype and dimensions, and as many bytes as its shape needs."""
    message = echo_message()
    index = ["X", "TAG"].index(name)
    message.inputs[index].CopyFrom(
        pb.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape, parameters=given_)
    )
    message.raw_input_contents[index] = data
    batcher.works.clear()
    assert code_of(lambda: edge.infer(message, timeout=10)) in ALLOWED
    for work in batcher.works:
        x, tag = (tensor.array for tensor in work.inputs)
        assert (x.dtype, tag.dtype) == (np.float32, np.int64)
        assert (x.shape, tag.shape) == ((work.rows, 4), (work.rows,))
        assert x.nbytes == 16 * work.rows


@FUZZ
@given(st.binary(max_size=120))
def test_any_bytes_end_with_a_documented_code(edge, batcher, data):
    """Frames that are no message at all."""
    call = edge.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    assert code_of(lambda: call(data, timeout=10)) in ALLOWED


def test_the_server_is_well_after_all_that(edge, batcher):
    """The same server, the same process: the next call is answered."""
    assert output(edge.infer(echo_message()), "Y") == [[0, 2, 4, 6]]
