"""``metadata`` of the custom resources, as far as a person writes it or ``kubectl get`` prints it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from harness_api.base import ApiModel
from harness_api.fields import LabelName, Timestamp

Text = Annotated[str, Field(max_length=262144)]
ShortText = Annotated[str, Field(max_length=253)]


class ObjectMeta(ApiModel):
    """Name, labels and annotations; what the API server adds is accepted and left alone."""

    name: LabelName
    """Name of the object; the name of a service is part of its address."""
    namespace: LabelName | None = None
    """Namespace; absent in `harness run`."""
    labels: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=64)] = Field(
        default_factory=dict
    )
    """Labels of the object."""
    annotations: Annotated[dict[str, Text], Field(max_length=64)] = Field(default_factory=dict)
    """Annotations of the object."""
    uid: ShortText | None = None
    """Set by the API server."""
    resource_version: ShortText | None = None
    """Set by the API server."""
    generation: int | None = None
    """Set by the API server."""
    creation_timestamp: Timestamp | None = None
    """Set by the API server."""
    deletion_timestamp: Timestamp | None = None
    """Set by the API server."""
    deletion_grace_period_seconds: int | None = None
    """Set by the API server."""
    finalizers: Annotated[list[ShortText], Field(max_length=64)] = Field(default_factory=list)
    """Set by controllers."""
    owner_references: Annotated[list[dict[str, Any]], Field(max_length=64)] = Field(default_factory=list)
    """Set by controllers."""
    managed_fields: Annotated[list[dict[str, Any]], Field(max_length=256)] = Field(default_factory=list)
    """Set by the API server."""
