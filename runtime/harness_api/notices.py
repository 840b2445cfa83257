"""Settings that a cluster uses and that have no effect on one machine: told, never silent (design.md §2.10).

They are accepted, because one file serves both ways to run (design.md §4). Only what the file says itself is told, never
a default.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from harness_api.base import Broken
from harness_api.batching import BatchPolicy
from harness_api.inferenceservice import InferenceService
from harness_api.models import Model
from harness_api.worker_groups import RuntimeKind, WorkerGroup

NEEDS_CLUSTER: Final = "has no effect on one machine: it applies on a cluster"
NEEDS_GATEWAY: Final = (
    "has no effect in this release on one machine: it applies where a gateway schedules over several pods"
)


def local_notices(service: InferenceService) -> Iterator[Broken]:
    """Places and sentences for ``harness run`` and ``harness-runtime``."""
    spec = service.spec
    if spec.gateway_class_name != "default":
        yield ("spec", "gatewayClassName"), NEEDS_CLUSTER
    if "scheduling" in spec.model_fields_set:
        yield ("spec", "scheduling"), NEEDS_GATEWAY
    for index, model in enumerate(spec.models):
        for field, sentence in _model_notices(model):
            yield ("spec", "models", index, *field), sentence
    for index, group in enumerate(spec.worker_groups):
        for field, sentence in _group_notices(group):
            yield ("spec", "workerGroups", index, *field), sentence


def _model_notices(model: Model) -> Iterator[Broken]:
    if "on_time_permille" in model.objective.model_fields_set:
        yield ("objective", "onTimePermille"), "has no effect on one machine: it is what autoscaling keeps"
    if model.batching.policy is not BatchPolicy.DEADLINE and {"weight", "max_weight"} & model.model_fields_set:
        sentence = f"has no effect on one machine with policy {model.batching.policy}: only Deadline weighs requests"
        yield ("weight" if "weight" in model.model_fields_set else "maxWeight",), sentence
    if "retry_on_loss" in model.model_fields_set:
        yield ("retryOnLoss",), NEEDS_GATEWAY
    if model.device_memory is not None:
        yield ("deviceMemory",), "has no effect in this release on one machine: every model of a group is loaded"


def _group_notices(group: WorkerGroup) -> Iterator[Broken]:
    if group.autoscaling is not None:
        start = group.autoscaling.min_replicas
        yield ("autoscaling",), f"has no effect on one machine: minReplicas {start} processes are started"
    if group.accelerator is not None:
        yield ("accelerator",), "has no effect on one machine: the device is chosen with --device"
    if group.template is not None:
        yield ("template",), NEEDS_CLUSTER
    if "rollout" in group.model_fields_set:
        yield ("rollout",), NEEDS_CLUSTER
    if group.runtime.kind is RuntimeKind.OPEN_INFERENCE:
        yield (
            ("runtime",),
            "is not served in this release on one machine: servers of other kinds are reached through the gateway",
        )
