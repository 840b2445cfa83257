"""``InferenceService``: one address, one to 64 models, the pods that run them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from harness_api.base import API_VERSION, ApiModel, Broken, Options, repeated
from harness_api.fields import LabelName
from harness_api.metadata import ObjectMeta
from harness_api.models import Format, Model
from harness_api.scheduling import Goal, Limits, Scheduling
from harness_api.status import InferenceServiceStatus
from harness_api.worker_groups import RuntimeKind, WorkerGroup

MAX_LEVELS = 8


class PoolRef(ApiModel):
    """A pool of accelerators shared by several services. Reserved: refused today."""

    name: LabelName
    """Name of the pool."""


class InferenceServiceSpec(ApiModel):
    """What a person wants."""

    gateway_class_name: LabelName = "default"
    """Gateways that serve it. Immutable."""
    models: Annotated[list[Model], Field(min_length=1, max_length=64)]
    """The models, unique by name."""
    worker_groups: Annotated[list[WorkerGroup], Field(max_length=16)] = Field(default_factory=list)
    """The pods, at least one group, unique by name; exactly one of `workerGroups` and `poolRef`."""
    pool_ref: PoolRef | None = None
    """Reserved and refused in this release."""
    scheduling: Scheduling = Scheduling()
    """The scheduler over all pods."""
    limits: Limits = Limits()
    """Bounds of the whole service."""

    def rules(self, options: Options | None) -> Iterator[Broken]:
        """Everything that concerns more than one model or group."""
        del options
        if self.pool_ref is not None:
            yield ("poolRef",), "is reserved and not served in this release: describe the pods in workerGroups"
        elif not self.worker_groups:
            yield ("workerGroups",), "required: at least one group"
        yield from service_rules(self.models, self.worker_groups, self.limits)

    @property
    def effective_goal(self) -> Goal:
        """The goal in force (design.md §3, Goal)."""
        if self.scheduling.goal is not None:
            return self.scheduling.goal
        scaled = any(group.autoscaling for group in self.worker_groups)
        return Goal.ACCELERATORS if scaled else Goal.LATENCY


class InferenceService(ApiModel):
    """Models served under one address."""

    api_version: Literal["serving.harness.dev/v1alpha1"] = API_VERSION
    """Version of this API."""
    kind: Literal["InferenceService"] = "InferenceService"
    """Kind of this object."""
    metadata: ObjectMeta
    """Name, namespace, labels."""
    spec: InferenceServiceSpec
    """What a person wants."""
    status: InferenceServiceStatus | None = None
    """What the operator found; ignored in files."""


def service_rules(
    models: Sequence[Model | None], groups: Sequence[WorkerGroup | None], limits: Limits | None
) -> Iterator[Broken]:
    """Rules over the whole spec. None stands for an entry that has faults of its own."""
    yield from repeated([model.name if model else None for model in models], ("models",))
    yield from repeated([group.name if group else None for group in groups], ("workerGroups",))
    yield from _placement_rules(models, groups)
    levels = {(model.priority, model.weight) for model in models if model}
    if len(levels) > MAX_LEVELS:
        yield (
            ("models",),
            f"have {len(levels)} different levels of (priority, weight), at most {MAX_LEVELS} are allowed",
        )
    for index, model in enumerate(models):
        if model and limits and model.objective.latency_milliseconds > limits.max_hold_seconds * 1000:
            yield (
                ("models", index, "objective", "latencyMilliseconds"),
                f"{model.objective.latency_milliseconds} is more than limits.maxHoldSeconds {limits.max_hold_seconds} allows",
            )


def _placement_rules(models: Sequence[Model | None], groups: Sequence[WorkerGroup | None]) -> Iterator[Broken]:
    known = {group.name: group for group in groups if group}
    complete = bool(models) and all(groups) and all(models)
    for index, model in enumerate(models):
        if model is None:
            continue
        for place, name in enumerate(model.worker_groups or ()):
            if all(groups) and groups and name not in known:
                yield (
                    ("models", index, "workerGroups", place),
                    f"'{name}' is not a worker group of this service (there are: {', '.join(known)})",
                )
        for name, group in known.items():
            if model.runs_on(name):
                yield from _format_rules(index, model, group)
    for index, idle in enumerate(groups):
        if complete and idle and not any(model.runs_on(idle.name) for model in models if model):
            yield ("workerGroups", index), f"no model is placed on group '{idle.name}'"


def _format_rules(index: int, model: Model, group: WorkerGroup) -> Iterator[Broken]:
    """A server of another kind brings its own models; ours loads them."""
    foreign = group.runtime.kind is RuntimeKind.OPEN_INFERENCE
    if model.format is Format.EXTERNAL and not foreign:
        yield (
            ("models", index, "format"),
            f"External needs worker groups of kind OpenInference, but group '{group.name}' is of kind Harness",
        )
    if model.format is not Format.EXTERNAL and foreign:
        yield (
            ("models", index, "format"),
            f"{model.format} needs worker groups of kind Harness, but group '{group.name}' is of kind OpenInference (use External there)",
        )
