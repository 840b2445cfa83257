"""``LatencyProfile``: l(b) of one model, shape bucket and accelerator class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from harness_api.base import API_VERSION, ApiModel, Broken, Options, ascending
from harness_api.batching import TEN_MINUTES_MICROSECONDS
from harness_api.fields import INT64_MAX, Sha256, Timestamp
from harness_api.metadata import ObjectMeta
from harness_api.models import MAX_BATCH
from harness_api.status import Conditions

Microseconds = Annotated[int, Field(ge=1, le=TEN_MINUTES_MICROSECONDS)]


class Point(ApiModel):
    """Latency at one execution size."""

    size: Annotated[int, Field(ge=1, le=MAX_BATCH)]
    """Rows executed."""
    p50_microseconds: Microseconds
    """Median latency."""
    p99_microseconds: Microseconds | None = None
    """99th percentile."""
    samples: Annotated[int, Field(ge=0, le=INT64_MAX)] = 0
    """Executions measured; 0: declared, not measured."""

    def rules(self, options: Options | None) -> Iterator[Broken]:
        """Percentiles are in order."""
        del options
        if self.p99_microseconds is not None and self.p99_microseconds < self.p50_microseconds:
            yield ("p99Microseconds",), f"{self.p99_microseconds} is less than p50Microseconds {self.p50_microseconds}"


Points = Annotated[list[Point], Field(min_length=1, max_length=256)]
Milliseconds = Annotated[int, Field(ge=0, le=INT64_MAX)]
ByteCount = Annotated[int, Field(ge=0, le=INT64_MAX)]


class _Measures(ApiModel):
    points: Points | None = None
    """Latencies, sizes rising."""
    load_milliseconds: Milliseconds | None = None
    """Time to load the model."""
    memory_bytes: ByteCount | None = None
    """Device memory of the loaded model."""

    def rules(self, options: Options | None) -> Iterator[Broken]:
        """Sizes rise strictly."""
        del options
        for (_, index), sentence in ascending([point.size for point in self.points or ()], ("points",)):
            yield ("points", index, "size"), sentence


class LatencyProfileSpec(_Measures):
    """Which model it is of, and what a person declares."""

    model_digest: Sha256
    """Digest of the model's artefact and signature, as the runtime shows it."""
    bucket: Annotated[str, Field(max_length=253)] = ""
    """Shape bucket as the runtime names it; empty for models without buckets."""
    accelerator_class: Annotated[str, Field(max_length=253)] = ""
    """Accelerator class; empty: any."""


class LatencyProfileStatus(_Measures):
    """What was measured; preferred over what was declared."""

    error_permille: Annotated[int, Field(ge=0, le=INT64_MAX)] | None = None
    """Live deviation from the points."""
    last_measured: Timestamp | None = None
    """When."""
    conditions: Conditions = Field(default_factory=list)
    """Conditions, unique by type."""


class LatencyProfileResource(ApiModel):
    """Batch latency of one model, shape bucket and accelerator class."""

    api_version: Literal["serving.harness.dev/v1alpha1"] = API_VERSION
    """Version of this API."""
    kind: Literal["LatencyProfile"] = "LatencyProfile"
    """Kind of this object."""
    metadata: ObjectMeta
    """Name, namespace, labels."""
    spec: LatencyProfileSpec
    """Which model it is of, and what a person declares."""
    status: LatencyProfileStatus | None = None
    """What was measured."""

    def rules(self, options: Options | None) -> Iterator[Broken]:
        """A profile without points says nothing."""
        if options is not None and options.local and self.points is None:
            yield ("spec", "points"), "required: neither spec nor status has points"

    @property
    def points(self) -> list[Point] | None:
        """Measured points where there are some, else the declared ones."""
        if self.status is not None and self.status.points is not None:
            return self.status.points
        return self.spec.points
