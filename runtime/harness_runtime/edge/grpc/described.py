"""Metadata and configuration of models as OIP messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_core.pod.settings import PolicyName, TimeoutAction
from harness_proto.grpc import inference_pb2 as pb

from harness_runtime.tensors import Datatype

if TYPE_CHECKING:
    from harness_runtime.dataplane.plane import ModelMetadata, ServerMetadata, TensorMetadata
    from harness_runtime.model import ModelEntry
    from harness_runtime.tensors import TensorSpec

_DATA_TYPES = {datatype: f"TYPE_{datatype.value}" for datatype in Datatype} | {Datatype.BYTES: "TYPE_STRING"}


def server_metadata(server: ServerMetadata) -> pb.ServerMetadataResponse:
    """Answer to ServerMetadata."""
    return pb.ServerMetadataResponse(name=server.name, version=server.version, extensions=server.extensions)


def model_metadata(model: ModelMetadata) -> pb.ModelMetadataResponse:
    """Answer to ModelMetadata."""

    def tensor(of: TensorMetadata) -> pb.ModelMetadataResponse.TensorMetadata:
        return pb.ModelMetadataResponse.TensorMetadata(name=of.name, datatype=of.datatype, shape=of.shape)

    return pb.ModelMetadataResponse(
        name=model.name,
        versions=model.versions,
        platform=model.platform,
        inputs=[tensor(of) for of in model.inputs],
        outputs=[tensor(of) for of in model.outputs],
        properties=model.properties,
    )


def model_config(entry: ModelEntry) -> pb.ModelConfigResponse:
    """Answer to ModelConfig: the effective settings, in Triton's fields where they have one (scenario B011)."""
    spec, limits = entry.spec, entry.limits
    config = pb.ModelConfig(
        name=spec.name,
        platform=f"harness_{spec.format.value.lower()}",
        backend="harness",
        max_batch_size=spec.max_batch_size,
        input=[
            pb.ModelInput(name=of.name, data_type=pb.DataType.Value(_DATA_TYPES[of.datatype]), dims=of.shape)
            for of in spec.inputs
        ],
        output=[
            pb.ModelOutput(name=of.name, data_type=pb.DataType.Value(_DATA_TYPES[of.datatype]), dims=of.shape)
            for of in spec.outputs
        ],
        default_model_filename="" if spec.path is None else spec.path.name,
    )
    if spec.version.isascii() and spec.version.isdigit() and len(spec.version) <= 18:
        config.version_policy.specific.versions.append(int(spec.version))
    if spec.max_batch_size > 0:
        config.dynamic_batching.CopyFrom(_batching(entry))
    for name, value in _parameters(entry).items():
        config.parameters[name].string_value = value
    if limits.policy is PolicyName.MAX_DELAY and spec.max_batch_size > 0:
        config.dynamic_batching.max_queue_delay_microseconds = limits.max_queue_delay_ns // 1000
    return pb.ModelConfigResponse(config=config)


def _batching(entry: ModelEntry) -> pb.ModelDynamicBatching:
    limits = entry.limits
    return pb.ModelDynamicBatching(
        preferred_batch_size=limits.execution_sizes,
        priority_levels=8,
        default_priority_level=entry.spec.priority,
        default_queue_policy=pb.ModelQueuePolicy(
            timeout_action=pb.ModelQueuePolicy.DELAY
            if limits.timeout_action is TimeoutAction.DELAY
            else pb.ModelQueuePolicy.REJECT,
            default_timeout_microseconds=limits.queue_timeout_ns // 1000,
            allow_timeout_override=False,
            max_queue_size=limits.max_queue_requests,
        ),
    )


def _parameters(entry: ModelEntry) -> dict[str, str]:
    """Effective settings that Triton's message has no field for, as text, with their units in the names."""
    spec, limits = entry.spec, entry.limits
    values = {
        "digest": spec.digest,
        "version": spec.version,
        "state": entry.state.value,
        "policy": limits.policy.value,
        "objective_us": str(spec.objective_ns // 1000),
        "weight": f"{spec.weight:g}",
        "max_weight": f"{spec.max_weight:g}",
        "max_batch_bytes": str(limits.max_batch_bytes),
        "max_queue_bytes": str(limits.max_queue_bytes),
    }
    if spec.max_latency_ns is not None:
        values["max_latency_us"] = str(spec.max_latency_ns // 1000)
    for tensor in spec.inputs:
        if tensor.buckets is not None:
            values[f"buckets.{tensor.name}"] = _buckets(tensor)
    return values


def _buckets(tensor: TensorSpec) -> str:
    assert tensor.buckets is not None  # noqa: S101 - the caller looked
    sizes = ",".join(str(size) for size in tensor.buckets.sizes)
    return f"dim={tensor.buckets.dim} sizes={sizes} pad={tensor.buckets.pad_value:g}"
