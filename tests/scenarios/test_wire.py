"""Scenarios about what a caller sends, on a real runtime process: B001, B012, B014, B018, B020, B023, B024."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from harness_proto.grpc import inference_pb2 as pb

from tests.scenarios.models import SEQ_SIGNATURE, SEQ_SOURCE, echo_source, model, write_model, write_service
from tests.scenarios.pod import Pod, echo, output, request, trailers

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.process

MAX_DELAY = {"policy": "MaxDelay"}
BIG_SIGNATURE = {
    "inputs": [{"name": "N", "datatype": "INT64", "shape": [1]}, {"name": "BLOB", "datatype": "UINT8", "shape": [-1]}],
    "outputs": [{"name": "BLOB", "datatype": "UINT8", "shape": [-1]}],
}
BIG_SOURCE = '''
import numpy as np


class Model:
    """Answers with N bytes a row."""

    def __init__(self, config):
        self.config = config

    def predict(self, inputs):
        return {"BLOB": np.zeros((len(inputs["N"]), int(inputs["N"].max())), np.uint8)}
'''
VIEW_SOURCE = '''
import numpy as np


class Model:
    """Answers with a transposed and an expanded view."""

    def __init__(self, config):
        self.config = config

    def predict(self, inputs):
        x = inputs["X"]
        return {"T": np.ascontiguousarray(2 * x).T.copy().T, "E": np.broadcast_to(x[:, :1], x.shape)}
'''


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    folder = tmp_path_factory.mktemp("wire")
    repository = folder / "repository"
    for name in ("echo", "quick"):
        write_model(repository, name, echo_source())
    write_model(repository, "seq", SEQ_SOURCE)
    write_model(repository, "big", BIG_SOURCE)
    write_model(repository, "view", VIEW_SOURCE)
    view = {
        "inputs": [{"name": "X", "datatype": "FP32", "shape": [2]}],
        "outputs": [{"name": "T", "datatype": "FP32", "shape": [2]}, {"name": "E", "datatype": "FP32", "shape": [2]}],
    }
    service = write_service(
        folder,
        model("echo", repository, batching={**MAX_DELAY, "maxQueueDelayMicroseconds": 2_000_000}, maxBatchSize=2),
        model("quick", repository, batching={"policy": "Immediate"}),
        model("seq", repository, batching={**MAX_DELAY, "maxQueueDelayMicroseconds": 500_000}, **SEQ_SIGNATURE),
        model("big", repository, batching={"policy": "Immediate"}, maxBatchSize=1, **BIG_SIGNATURE),
        model("view", repository, batching={"policy": "Immediate"}, **view),
    )
    with Pod(service) as running:
        yield running


def raw(shape: list[int], data: bytes, datatype: str = "FP32", name: str = "quick") -> pb.ModelInferRequest:
    """A call of an echo model whose X is declared one way and filled another."""
    rows = shape[0] if shape and 0 < shape[0] < 100 else 1
    message = pb.ModelInferRequest(model_name=name)
    message.inputs.add(name="X", datatype=datatype, shape=shape)
    message.inputs.add(name="TAG", datatype="INT64", shape=[rows, 1])
    message.raw_input_contents.extend([data, np.zeros((rows, 1), np.int64).tobytes()])
    return message


@pytest.mark.parametrize("count", [6, 2])
def test_b001_a_wrong_byte_count_is_refused_and_never_shifts_into_the_neighbour(pod: Pod, count: int):
    """B001: 24 or 8 bytes for a shape of 16 are refused before the queue; the other caller's numbers are its own."""
    good = pod.send(raw([1, 4], np.arange(100, 104, dtype=np.float32).tobytes(), name="echo"))
    bad = pod.send(raw([1, 4], np.arange(count, dtype=np.float32).tobytes(), name="echo"))
    error = bad.exception()
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    for word in ("'X'", "16", str(4 * count)):
        assert word in error.details()
    assert trailers(error)["harness-outcome"] == "invalid"
    assert output(good.result(), "Y").tolist() == [[200, 202, 204, 206]]


def test_b001_six_typed_values_for_four_are_refused(pod: Pod):
    """B001, in typed contents."""
    message = pb.ModelInferRequest(model_name="echo")
    message.inputs.add(name="X", datatype="FP32", shape=[1, 4]).contents.fp32_contents.extend(range(6))
    message.inputs.add(name="TAG", datatype="INT64", shape=[1, 1]).contents.int64_contents.append(1)
    with pytest.raises(grpc.RpcError) as caught:
        pod.infer(message)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "'X'" in caught.value.details()


def seq_request(rows: int, length: int) -> pb.ModelInferRequest:
    ids = np.arange(rows * length, dtype=np.int64).reshape(rows, length)
    return request("seq", IDS=ids, MASK=np.ones_like(ids))


def test_b012_only_equal_shapes_merge(pod: Pod):
    """B012: lengths 7, 12, 7 and 7 (two rows) come as 4 rows of 7 and 1 of 12; a wrong dtype is refused."""
    batches = pod.metric("harness_batch_rows_count", model="seq")
    calls = [pod.send(seq_request(rows, length)) for rows, length in ((1, 7), (1, 12), (1, 7), (2, 7))]
    wrong = request("seq", IDS=np.ones((1, 7), np.float32), MASK=np.ones((1, 7), np.int64))
    with pytest.raises(grpc.RpcError) as caught:
        pod.infer(wrong)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    for call, (rows, length) in zip(calls, ((1, 7), (1, 12), (1, 7), (2, 7)), strict=True):
        ids = np.arange(rows * length, dtype=np.float32).reshape(rows, length)
        assert output(call.result(), "MEAN").tolist() == ids.mean(axis=1, keepdims=True).tolist()
        assert output(call.result(), "TOKENS").tolist() == ids.tolist()
    assert pod.metric("harness_batch_rows_count", model="seq") - batches == 2


IMPOSSIBLE: list[tuple[str, list[int], bytes, str]] = [
    ("no elements, wrong dtype", [1, 0], b"", "FP16"),
    ("no rows", [0, 4], b"", "FP32"),
    ("negative", [-1, 4], bytes(16), "FP32"),
    ("no dimensions", [], b"", "FP32"),
    ("a trillion rows", [1099511627776, 4], bytes(16), "FP32"),
    ("product over 64 bits", [2**40, 2**40], bytes(16), "FP32"),
]


@pytest.mark.parametrize(
    ("shape", "data", "datatype"), [case[1:] for case in IMPOSSIBLE], ids=[c[0] for c in IMPOSSIBLE]
)
def test_b014_impossible_shapes_are_refused_and_nothing_is_allocated(
    pod: Pod, shape: list[int], data: bytes, datatype: str
):
    """B014: INVALID_ARGUMENT, the same process afterwards, the next echo answered."""
    with pytest.raises(grpc.RpcError) as caught:
        pod.infer(raw(shape, data, datatype))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert output(pod.infer(echo("quick")), "Y").tolist() == [[0, 2, 4, 6]]
    assert pod.process.poll() is None
    os.kill(pod.process.pid, 0)


def test_b014_a_request_without_inputs_is_refused(pod: Pod):
    """B014: the missing input is named."""
    with pytest.raises(grpc.RpcError) as caught:
        pod.infer(pb.ModelInferRequest(model_name="quick"))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "X" in caught.value.details()


def identified(id: str, key: Any) -> pb.ModelInferRequest:
    message = echo(id=id, k=key)
    message.inputs[1].parameters["id"].string_param = "123"
    return message


@pytest.mark.parametrize("together", [True, False])
def test_b018_ids_and_parameters_come_back_untouched(pod: Pod, together: bool):
    """B018: merged or alone, each answer has its own id and parameters, types kept."""
    if together:
        calls = [pod.send(identified("a", 1)), pod.send(identified("b", "b"))]
        first, second = (call.result() for call in calls)
    else:
        first, second = pod.infer(identified("a", 1)), pod.infer(identified("b", "b"))
    assert (first.id, second.id) == ("a", "b")
    assert first.parameters["k"].WhichOneof("parameter_choice") == "int64_param"
    assert first.parameters["k"].int64_param == 1
    assert second.parameters["k"].string_param == "b"
    tags = {tensor.name: tensor for tensor in first.outputs}
    assert tags["TAG"].parameters["id"].string_param == "123"


def test_b018_a_call_without_an_id_gets_none(pod: Pod):
    """B018: the caller's id is the caller's; ours never takes its place."""
    assert pod.infer(echo("quick")).id == ""


def test_b020_views_come_back_row_major(pod: Pod):
    """B020: a transposed and an expanded view of the model are answered as row-major little-endian numbers."""
    answer = pod.infer(request("view", X=np.array([[1, 2], [3, 4]], np.float32)))
    assert output(answer, "T").tolist() == [[2, 4], [6, 8]]
    assert output(answer, "E").tolist() == [[1, 1], [3, 3]]


UNKNOWN = [("nope", ""), ("quick", "99"), ("quick", "abc")]


@pytest.mark.parametrize(("name", "version"), UNKNOWN)
def test_b023_unknown_models_and_versions_are_not_found(pod: Pod, name: str, version: str):
    """B023: NOT_FOUND, never UNKNOWN."""
    message = echo(name)
    message.model_version = version
    with pytest.raises(grpc.RpcError) as caught:
        pod.infer(message)
    allowed = {grpc.StatusCode.NOT_FOUND}
    if version == "abc":
        allowed.add(grpc.StatusCode.INVALID_ARGUMENT)
    assert caught.value.code() in allowed


def test_b023_the_version_used_is_reported(pod: Pod):
    """B023: an empty version is answered with the one really used."""
    assert pod.infer(echo("quick")).model_version == "1"


def test_b023_a_model_still_loading_is_unavailable(tmp_path):
    """B023: UNAVAILABLE with a retry hint while it loads, OK afterwards."""
    repository = tmp_path / "repository"
    source = echo_source().replace("self.config = config", "time.sleep(3)\n        self.config = config")
    write_model(repository, "echo", source)
    with Pod(write_service(tmp_path, model("echo", repository)), wait_for="listening") as loading:
        with pytest.raises(grpc.RpcError) as caught:
            loading.infer(echo())
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert trailers(caught.value)["harness-outcome"] == "unavailable"
        loading.wait_event("ready")
        assert output(loading.infer(echo()), "Y").tolist() == [[0, 2, 4, 6]]


def big(megabytes_in: int, megabytes_out: int) -> pb.ModelInferRequest:
    blob = np.zeros((1, max(1, megabytes_in << 20)), np.uint8)
    return request("big", N=np.array([[max(1, megabytes_out << 20)]], np.int64), BLOB=blob)


@pytest.mark.parametrize(("megabytes_in", "megabytes_out"), [(5, 0), (40, 0), (0, 5)])
def test_b024_one_limit_at_every_hop(pod: Pod, megabytes_in: int, megabytes_out: int):
    """B024: with the default limit of 64 MiB, 5 and 40 MiB in and 5 MiB out pass."""
    answer = pod.infer(big(megabytes_in, megabytes_out), timeout=60)
    assert answer.outputs[0].shape[1] == max(1, megabytes_out << 20)


def test_b024_over_the_limit_names_limit_and_hop(pod: Pod):
    """B024: 70 MiB in is RESOURCE_EXHAUSTED with the limit and the hop in the message."""
    with pytest.raises(grpc.RpcError) as caught:
        pod.infer(big(70, 0), timeout=60)
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(64 << 20) in caught.value.details()
    assert "runtime" in caught.value.details()
