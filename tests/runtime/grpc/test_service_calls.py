"""The calls beside ModelInfer: liveness, readiness, metadata, configuration, health, reflection, life of the server."""

from __future__ import annotations

import asyncio
import time

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from harness_core.pod.settings import PolicyName
from harness_proto.grpc import inference_pb2 as pb
from harness_runtime.edge.grpc.server import GrpcEdge
from harness_runtime.edge.port import BindError, EdgeSettings
from harness_runtime.model import ModelState

from tests.runtime.dataplane.builders import FakeBatcher, make_entry, make_plane, make_registry, make_spec, seq_spec
from tests.runtime.grpc.running import RunningEdge, echo_message

SERVICE = "inference.GRPCInferenceService"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def health(edge: RunningEdge, name: str) -> int:
    stub = health_pb2_grpc.HealthStub(edge.channel)
    return stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=10).status


def test_liveness_never_depends_on_models_and_readiness_does():
    """protocol.md §1: live while everything loads; ready with the last model; not ready when draining."""
    registry = make_registry(make_entry(make_spec(), ModelState.LOADING), make_entry(seq_spec()))
    plane = make_plane(registry, FakeBatcher())
    with RunningEdge(plane) as edge:

        def ready() -> bool:
            return edge.stub.ServerReady(pb.ServerReadyRequest(), timeout=10).ready

        def model_ready(name: str, version: str = "") -> bool:
            return edge.stub.ModelReady(pb.ModelReadyRequest(name=name, version=version), timeout=10).ready

        assert edge.stub.ServerLive(pb.ServerLiveRequest(), timeout=10).live
        assert (ready(), model_ready("echo"), model_ready("seq")) == (False, False, True)
        assert [health(edge, name) for name in ("", SERVICE, "echo", "seq")] == [NOT_SERVING] * 3 + [SERVING]
        edge.run(registry.set_state, "digest-echo-1", ModelState.READY)
        assert (ready(), model_ready("echo"), model_ready("echo", "9"), model_ready("nope")) == (
            True,
            True,
            False,
            False,
        )
        assert [health(edge, name) for name in ("", SERVICE, "echo", "seq")] == [SERVING] * 4
        edge.run(plane.drain)
        assert not ready()
        assert health(edge, "") == NOT_SERVING
        assert edge.stub.ServerLive(pb.ServerLiveRequest(), timeout=10).live
        with pytest.raises(grpc.RpcError) as caught:
            health(edge, "nope")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_watchers_hear_of_changes():
    """grpc.health.v1 Watch follows the registry without being asked again."""
    registry = make_registry(make_entry(make_spec(), ModelState.LOADING))
    with RunningEdge(make_plane(registry, FakeBatcher())) as edge:
        watch = health_pb2_grpc.HealthStub(edge.channel).Watch(
            health_pb2.HealthCheckRequest(service="echo"), timeout=20
        )
        assert next(watch).status == NOT_SERVING
        edge.run(registry.set_state, "digest-echo-1", ModelState.READY)
        assert next(watch).status == SERVING
        edge.call(edge.edge.drain())
        assert next(watch).status == NOT_SERVING
        watch.cancel()


def test_a_forced_name_overrides_the_data_plane():
    """set_serving: the process main can take a name out whatever the models say."""
    with RunningEdge(make_plane(make_registry(make_entry(make_spec())), FakeBatcher())) as edge:
        edge.run(edge.edge.set_serving, "echo", False)
        assert edge.infer(echo_message()).model_name == "echo"
        assert (health(edge, "echo"), health(edge, "")) == (NOT_SERVING, SERVING)


def test_metadata_of_server_and_model(edge, batcher):
    """Signature with a leading -1, versions from the highest down, digest among the properties."""
    server = edge.stub.ServerMetadata(pb.ServerMetadataRequest(), timeout=10)
    assert (server.name, server.version) == ("harness-runtime", "test")
    model = edge.stub.ModelMetadata(pb.ModelMetadataRequest(name="echo"), timeout=10)
    assert (model.name, list(model.versions), model.platform) == ("echo", ["2", "1"], "harness_python")
    assert [(t.name, t.datatype, list(t.shape)) for t in model.inputs] == [
        ("X", "FP32", [-1, 4]),
        ("TAG", "INT64", [-1]),
    ]
    assert model.properties["digest"] == "digest-echo-2"
    for call, request in (
        (edge.stub.ModelMetadata, pb.ModelMetadataRequest(name="nope")),
        (edge.stub.ModelConfig, pb.ModelConfigRequest(name="echo", version="9")),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            call(request, timeout=10)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_b011_configuration_shows_the_effective_settings():
    """B011: what the batcher runs on can be read back, in Triton's fields where there are some."""
    bounds = {"policy": PolicyName.MAX_DELAY, "max_queue_delay_ns": 300_000_000, "execution_sizes": (1, 2, 4)}
    registry = make_registry(
        make_entry(make_spec(max_batch_size=4), max_queue_requests=17, **bounds),
        make_entry(seq_spec()),
        make_entry(make_spec(name="one", max_batch_size=0)),
    )
    with RunningEdge(make_plane(registry, FakeBatcher())) as edge:

        def config(name: str) -> pb.ModelConfig:
            return edge.stub.ModelConfig(pb.ModelConfigRequest(name=name), timeout=10).config

        echo = config("echo")
        assert (echo.max_batch_size, list(echo.version_policy.specific.versions)) == (4, [1])
        assert echo.dynamic_batching.max_queue_delay_microseconds == 300_000
        assert list(echo.dynamic_batching.preferred_batch_size) == [1, 2, 4]
        assert echo.dynamic_batching.default_queue_policy.max_queue_size == 17
        assert echo.parameters["policy"].string_value == "MaxDelay"
        assert [(t.name, t.data_type, list(t.dims)) for t in echo.input] == [
            ("X", pb.TYPE_FP32, [4]),
            ("TAG", pb.TYPE_INT64, []),
        ]
        assert config("seq").parameters["buckets.IDS"].string_value == "dim=0 sizes=8,16 pad=0"
        assert not config("one").HasField("dynamic_batching")


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_describes_every_service(edge, batcher, version):
    """Tools such as grpcurl find all services, by both versions of the protocol, and their descriptors."""
    call = edge.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        reflection_pb2.ServerReflectionRequest.SerializeToString,
        reflection_pb2.ServerReflectionResponse.FromString,
    )
    (listed,) = call(iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=10)
    names = [service.name for service in listed.list_services_response.service]
    assert {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"} <= set(names)
    asked = [reflection_pb2.ServerReflectionRequest(file_containing_symbol=name) for name in (*names, "no.such.Thing")]
    answers = list(call(iter(asked), timeout=10))
    for name, answer in zip(names, answers, strict=False):
        files = [
            descriptor_pb2.FileDescriptorProto.FromString(data)
            for data in answer.file_descriptor_response.file_descriptor_proto
        ]
        assert name in {f"{file.package}.{service.name}" for file in files for service in file.service}
    assert answers[-1].HasField("error_response")


def test_an_unknown_method_is_unimplemented(edge, batcher):
    """What is not served is said to be so: clients of the repository extension see UNIMPLEMENTED."""
    with pytest.raises(grpc.RpcError) as caught:
        edge.channel.unary_unary(f"/{SERVICE}/RepositoryIndex")(b"", timeout=10)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_taken_port_is_refused(edge, batcher):
    """Two servers never share a port without a word."""
    port = int(edge.url.rsplit(":", 1)[1])

    async def start() -> None:
        await GrpcEdge(edge.plane, EdgeSettings(port=port)).start()

    with pytest.raises(BindError, match=f"cannot listen on 127.0.0.1:{port}"):
        asyncio.run(start())


def test_stop_lets_running_calls_end():
    """A call in flight is answered within the grace; a new one finds nobody."""

    class Slow(FakeBatcher):
        async def infer(self, work):
            await asyncio.sleep(0.3)
            return await super().infer(work)

    with RunningEdge(make_plane(make_registry(make_entry(make_spec())), batcher := Slow())) as edge:
        edge.stub.ServerLive(pb.ServerLiveRequest(), timeout=10)
        call = edge.stub.ModelInfer.future(echo_message(), timeout=30)
        while not edge.call(asyncio.sleep(0.05, result=True)):
            pass
        edge.call(edge.edge.stop(10))
        assert call.result().model_name == "echo"
        assert len(batcher.works) == 1
        with pytest.raises(grpc.RpcError) as caught:
            edge.infer(echo_message(), timeout=2)
        assert caught.value.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}


def test_a_watch_of_the_health_service_does_not_hold_up_the_end():
    """Its client is told NOT_SERVING and then that the stream is over, well before the grace of running calls has passed."""
    with RunningEdge(make_plane(make_registry(make_entry(make_spec())), FakeBatcher())) as edge:
        watch = health_pb2_grpc.HealthStub(edge.channel).Watch(health_pb2.HealthCheckRequest(), timeout=60)
        assert next(watch).status == SERVING
        edge.call(edge.edge.drain())
        assert next(watch).status == NOT_SERVING
        begun = time.monotonic()
        edge.call(edge.edge.stop(20))
        assert time.monotonic() - begun < 10
        assert list(watch) == []
