"""One entry of ``spec.workerGroups``: pods of one kind, one accelerator each."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from harness_api.base import ApiModel, Broken, Options
from harness_api.fields import HOST_PORT, FreeObject, LabelName, ModelName, Port, QualifiedName, Replicas

NVIDIA_PRODUCT_LABEL: Final = "nvidia.com/gpu.product"


class Autoscaling(ApiModel):
    """Bounds between which the autoscaler moves."""

    min_replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    """Fewest pods."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)]
    """Most pods."""
    behavior: FreeObject | None = None
    """`behavior` of the HorizontalPodAutoscaler, handed on as it is."""

    def rules(self, options: Options | None) -> Iterator[Broken]:
        """The bounds are in order."""
        del options
        if self.min_replicas > self.max_replicas:
            yield ("minReplicas",), f"{self.min_replicas} is greater than maxReplicas {self.max_replicas}"


class Accelerator(ApiModel):
    """The accelerator of each pod. Immutable."""

    resource: QualifiedName
    """Extended resource that a pod asks one of, such as nvidia.com/gpu."""
    product: ModelName | None = None
    """Product that the nodes must carry in `productLabel`."""
    product_label: QualifiedName | None = None
    """Node label with the product; `nvidia.com/gpu.product` for NVIDIA resources when absent."""

    def rules(self, options: Options | None) -> Iterator[Broken]:
        """Product and label go together."""
        del options
        if self.product is None and self.product_label is not None:
            yield ("productLabel",), "applies with product only"
        if self.product is not None and self.effective_product_label is None:
            yield ("productLabel",), f"required with product for resource {self.resource}"

    @property
    def effective_product_label(self) -> str | None:
        """The node label in force."""
        if self.product_label is None and self.resource.startswith("nvidia.com/"):
            return NVIDIA_PRODUCT_LABEL
        return self.product_label


class RuntimeKind(StrEnum):
    """What runs in the pods."""

    HARNESS = "Harness"
    OPEN_INFERENCE = "OpenInference"


class ServiceRef(ApiModel):
    """A Service in the same namespace."""

    name: LabelName
    """Name of the Service."""
    port: Port
    """Its gRPC port."""


class Runtime(ApiModel):
    """The model server: ours, or any other that speaks the Open Inference Protocol."""

    kind: Annotated[RuntimeKind, Field(strict=False)] = RuntimeKind.HARNESS
    """`Harness`, or `OpenInference` for another server, found by exactly one of `serviceRef`, `image` and `address`."""
    service_ref: ServiceRef | None = None
    """A server that exists already."""
    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Image of a server to start."""
    args: Annotated[list[Annotated[str, Field(max_length=4096)]], Field(max_length=64)] | None = None
    """Arguments of `image`."""
    grpc_port: Port | None = None
    """Port on which `image` serves gRPC; 8001 when absent."""
    address: Annotated[str, Field(max_length=261, pattern=HOST_PORT)] | None = None
    """host:port of a server that runs already; in `harness run` only."""

    def rules(self, options: Options | None) -> Iterator[Broken]:
        """Only what the kind uses, and one way to find the server."""
        ways = (("serviceRef", self.service_ref), ("image", self.image), ("address", self.address))
        given = [name for name, value in ways if value is not None]
        if self.kind is RuntimeKind.HARNESS:
            for name, value in (*ways, ("args", self.args), ("grpcPort", self.grpc_port)):
                if value is not None:
                    yield (name,), "applies to kind OpenInference only, not to Harness"
            return
        if not given:
            yield (), "kind OpenInference needs one of serviceRef, image and address"
        for name in given[1:]:
            yield (name,), f"excludes {given[0]}: give exactly one of serviceRef, image and address"
        if self.image is None:
            for name, value in (("args", self.args), ("grpcPort", self.grpc_port)):
                if value is not None:
                    yield (name,), "applies with image only"
        if self.address is not None:
            if not 1 <= int(self.address.rpartition(":")[2]) <= 65535:
                yield ("address",), f"'{self.address}' has no port between 1 and 65535"
            if options is not None and not options.local:
                yield ("address",), "applies in harness run only; on a cluster use serviceRef"


class PodTemplate(ApiModel):
    """A PodTemplateSpec, merged onto the pod; Kubernetes checks its content."""

    metadata: FreeObject | None = None
    """Labels and annotations of the pods."""
    spec: FreeObject | None = None
    """PodSpec; the model server's container is called `runtime`."""


class Rollout(ApiModel):
    """How pods are replaced."""

    max_surge: Replicas = 1
    """Pods above the wanted number while rolling."""
    max_unavailable: Replicas = 0
    """Pods below the wanted number while rolling."""

    def rules(self, options: Options | None) -> Iterator[Broken]:
        """Something must be allowed to move."""
        del options
        if self.max_surge == 0 and self.max_unavailable == 0:
            yield (), "maxSurge and maxUnavailable are both 0: no pod could be replaced"


class Drain(ApiModel):
    """How pods go."""

    grace_period_seconds: Annotated[int, Field(ge=0, le=3600)] = 60
    """Time that accepted work has to end after SIGTERM."""


class WorkerGroup(ApiModel):
    """Pods of one kind: one Deployment, one accelerator a pod."""

    name: LabelName
    """Name of the group."""
    replicas: Replicas | None = None
    """Number of pods; 1 when neither it nor `autoscaling` is given."""
    autoscaling: Autoscaling | None = None
    """Bounds for the autoscaler, instead of `replicas`."""
    accelerator: Accelerator | None = None
    """Accelerator of each pod; absent: CPU. Immutable."""
    runtime: Runtime = Runtime()
    """The model server."""
    template: PodTemplate | None = None
    """PodTemplateSpec merged onto the pod."""
    rollout: Rollout = Rollout()
    """How pods are replaced."""
    drain: Drain = Drain()
    """How pods go."""

    def rules(self, options: Options | None) -> Iterator[Broken]:
        """A fixed number or bounds, not both."""
        del options
        if self.replicas is not None and self.autoscaling is not None:
            yield ("replicas",), "excludes autoscaling: give one of them"

    @property
    def initial_replicas(self) -> int:
        """Pods to start with: ``replicas``, else the autoscaler's least, else 1."""
        if self.replicas is not None:
            return self.replicas
        return self.autoscaling.min_replicas if self.autoscaling else 1
