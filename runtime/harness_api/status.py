"""``status`` of the custom resources: written by the operator, read by people."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from harness_api.base import ApiModel
from harness_api.fields import INT64_MAX, Timestamp

Name = Annotated[str, Field(max_length=253)]
Message = Annotated[str, Field(max_length=32768)]
Count = Annotated[int, Field(ge=0, le=INT64_MAX)]


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(ApiModel):
    """A metav1.Condition."""

    type: Annotated[str, Field(max_length=316)]
    """What it says."""
    status: Annotated[ConditionStatus, Field(strict=False)]
    """Whether it holds."""
    observed_generation: Count = 0
    """Generation of the spec that it speaks of."""
    last_transition_time: Timestamp
    """Since when."""
    reason: Annotated[str, Field(max_length=1024)]
    """Why, as a constant."""
    message: Message = ""
    """Why, as a sentence."""


Conditions = Annotated[list[Condition], Field(max_length=32)]


class ModelStatus(ApiModel):
    """State of one model."""

    name: Name
    """The model's name."""
    version: Name = ""
    """Version that is served."""
    digest: Name = ""
    """Digest of artefact and signature."""
    state: Name = ""
    """State in the repository index."""
    reason: Name = ""
    """Why, as a constant."""
    message: Message = ""
    """Why, as a sentence."""


class WorkerGroupStatus(ApiModel):
    """State of one group."""

    name: Name
    """The group's name."""
    replicas: Count = 0
    """Pods that exist."""
    ready_replicas: Count = 0
    """Pods that are ready."""
    accelerator_class: Name = ""
    """Class under which profiles are kept."""
    image: Annotated[str, Field(max_length=1024)] = ""
    """Image of the runtime."""


class InferenceServiceStatus(ApiModel):
    """What the operator found."""

    observed_generation: Count = 0
    """Generation of the spec that this status speaks of."""
    url: Annotated[str, Field(max_length=2048)] = ""
    """Address for clients."""
    conditions: Conditions = Field(default_factory=list)
    """Conditions, unique by type."""
    replicas: Count = 0
    """Pods that exist."""
    ready_replicas: Count = 0
    """Pods that are ready."""
    models_ready: Annotated[str, Field(max_length=32)] = ""
    """Ready models of all, such as 2/3."""
    models: Annotated[list[ModelStatus], Field(max_length=64)] = Field(default_factory=list)
    """State of each model."""
    worker_groups: Annotated[list[WorkerGroupStatus], Field(max_length=16)] = Field(default_factory=list)
    """State of each group."""
