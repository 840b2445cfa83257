"""Measured profiles as LatencyProfile objects in YAML, as ``harness-runtime`` and ``kubectl apply`` read them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

import yaml
from harness_api.latency_profile import LatencyProfileResource, LatencyProfileSpec, Point
from harness_api.metadata import ObjectMeta
from harness_core.profile import LatencyProfile
from harness_runtime.model import ModelSpec

NAME_MAX = 63


def resources(
    spec: ModelSpec, profiles: Mapping[str, LatencyProfile], accelerator_class: str, measured_on: str
) -> list[LatencyProfileResource]:
    """One object per bucket. ``measured_on`` is a note for people (device, threads and time)."""
    return [
        LatencyProfileResource(
            metadata=ObjectMeta(
                name=resource_name(spec.name, bucket, accelerator_class),
                annotations={"serving.harness.dev/measured": measured_on},
            ),
            spec=LatencyProfileSpec(
                model_digest=spec.digest, bucket=bucket, accelerator_class=accelerator_class, points=_points(profile)
            ),
        )
        for bucket, profile in profiles.items()
    ]


def to_yaml(objects: list[LatencyProfileResource]) -> str:
    """Documents, one per object."""
    documents = [item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in objects]
    for document in documents:
        document["metadata"] = {name: value for name, value in document["metadata"].items() if value not in ([], {})}
    return yaml.safe_dump_all(documents, sort_keys=False, explicit_start=True, width=120)


def resource_name(model: str, bucket: str, accelerator_class: str) -> str:
    """A name that Kubernetes takes: lower-case letters, digits and dashes, at most 63."""
    text = "-".join(part for part in (model, bucket, accelerator_class) if part).lower()
    return re.sub(r"[^a-z0-9]+", "-", text)[:NAME_MAX].strip("-") or "profile"


def note(device: str, threads: int | None, now: datetime | None = None) -> str:
    """Where, with how many compute threads, and when."""
    used = f"{threads} thread{'' if threads == 1 else 's'}, " if threads else ""
    return f"{device or 'unknown device'}, {used}{(now or datetime.now(UTC)).strftime('%Y-%m-%dT%H:%M:%SZ')}"


def _points(profile: LatencyProfile) -> list[Point]:
    # Never below 1 µs, which is what the API can say.
    return [
        Point(
            size=point.size,
            p50_microseconds=max(1, round(point.p50_ns / 1000)),
            p99_microseconds=None if point.p99_ns is None else max(1, round(point.p99_ns / 1000)),
            samples=point.samples,
        )
        for point in profile.points
    ]
