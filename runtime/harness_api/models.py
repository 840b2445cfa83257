"""One entry of ``spec.models``: artefact, signature, batching, worth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from harness_api.base import ApiModel, Broken, Options, ascending, repeated
from harness_api.batching import HOUR_MILLISECONDS, Batching, BatchPolicy, Emulation, Objective
from harness_api.fields import LabelName, ModelName, Quantity, Sha256
from harness_api.storage import storage_faults
from harness_api.tensors import Datatype, InputTensor, OutputTensor


class Format(StrEnum):
    """What a model's artefact is."""

    TORCH_EXPORT = "TorchExport"
    TORCH_SCRIPT = "TorchScript"
    PYTHON = "Python"
    PROFILED = "Profiled"
    EXTERNAL = "External"


STORED: Final = frozenset({Format.TORCH_EXPORT, Format.TORCH_SCRIPT, Format.PYTHON})
"""Formats with an artefact in a repository."""
CHECKSUMMED: Final = frozenset({Format.TORCH_EXPORT, Format.TORCH_SCRIPT})
"""Formats whose checksum is required, since loading them can run code and they cannot be read by eye."""

MAX_BATCH: Final = 65536
Weight = Annotated[int, Field(ge=1, le=1_000_000)]


class Model(ApiModel):
    """A model that the service answers for."""

    name: ModelName
    """The model's name in requests."""
    version: Annotated[str, Field(max_length=63)] = ""
    """Version in the repository, a whole number as text ("3"); empty: the highest one present. Any text for `External`."""
    format: Annotated[Format, Field(strict=False)]
    """`TorchExport` (model.pt2), `TorchScript` (model.pt), `Python` (model.py, only where the runtime allows it), `Profiled` (an emulated accelerator), `External` (the server brings its own model)."""
    storage_uri: Annotated[str, Field(min_length=1, max_length=2048)] | None = None
    """Model repository folder: `file:` in `harness run` (relative paths start at the YAML file); `pvc:`, `https:`, `s3:`, `gs:`, `hf:` on a cluster. Not for `Profiled` and `External`."""
    sha256: Sha256 | None = None
    """Checksum of the artefact; required for `TorchExport` and `TorchScript` unless the runtime trusts its repository."""
    max_batch_size: Annotated[int, Field(ge=0, le=MAX_BATCH)]
    """Most rows of one execution; 0: the model has no batch dimension and runs one request at a time."""
    execution_sizes: (
        Annotated[list[Annotated[int, Field(ge=1, le=MAX_BATCH)]], Field(min_length=1, max_length=64)] | None
    ) = None
    """Batch sizes that the model is run at, rising, the last one equal to `maxBatchSize`; a batch runs at the next size up. Absent: every size."""
    inputs: Annotated[list[InputTensor], Field(min_length=1, max_length=32)] | None = None
    """Inputs without the batch dimension, in the order in which the model takes them. Required except for `External`."""
    outputs: Annotated[list[OutputTensor], Field(min_length=1, max_length=32)] | None = None
    """Outputs without the batch dimension, in the order in which the model gives them. Required except for `External`."""
    objective: Objective = Objective()
    """Default latency target."""
    max_latency_milliseconds: Annotated[int, Field(ge=1, le=HOUR_MILLISECONDS)] | None = None
    """Cap on the `timeout` parameter of requests; absent: none."""
    weight: Weight = 1
    """Value of an on-time answer, unless the request says otherwise."""
    max_weight: Weight | None = None
    """Largest weight that a request may ask for; absent: `weight`."""
    priority: Annotated[int, Field(ge=0, le=8)] = 0
    """Level of requests that name none: 1 is the highest, 8 the lowest explicit one, 0 comes after all of them."""
    batching: Batching = Batching()
    """Queue bounds and batching policy."""
    retry_on_loss: bool = True
    """Whether requests are run once more after the loss of an executor or pod. Without the gateway nothing is run again: a lost request
    ends as `unavailable` with a retry hint, whatever this says."""
    device_memory: Quantity | None = None
    """Device memory that the loaded model needs, as a Kubernetes quantity; decides which models share an accelerator."""
    worker_groups: Annotated[list[LabelName], Field(min_length=1, max_length=16)] | None = None
    """Names of the groups that run the model; absent: all."""
    emulation: Emulation | None = None
    """Latency of the emulated accelerator; required for `Profiled`, for no other format."""

    @property
    def effective_max_weight(self) -> int:
        """Largest weight that a request may ask for."""
        return self.weight if self.max_weight is None else self.max_weight

    def runs_on(self, group: str) -> bool:
        """Whether the model is placed on the worker group of this name."""
        return self.worker_groups is None or group in self.worker_groups

    def rules(self, options: Options | None) -> Iterator[Broken]:
        """All rules that concern this model alone."""
        yield from _version_rules(self)
        yield from _artefact_rules(self, options)
        yield from _size_rules(self)
        yield from _signature_rules(self)
        yield from _worth_rules(self)
        yield from repeated(self.worker_groups or (), ("workerGroups",), None)


def _version_rules(model: Model) -> Iterator[Broken]:
    version = model.version
    if not version or model.format is Format.EXTERNAL:
        return
    if not (version.isascii() and version.isdigit() and len(version) <= 18 and version[0] != "0"):
        yield ("version",), f"'{version}' is not a version: give a whole number from 1 up as text, such as \"3\""


def _artefact_rules(model: Model, options: Options | None) -> Iterator[Broken]:
    kind = model.format
    if kind in STORED and model.storage_uri is None:
        yield ("storageUri",), f"required for format {kind}"
    if kind not in STORED:
        for field, value in (("storageUri", model.storage_uri), ("sha256", model.sha256)):
            if value is not None:
                yield (field,), f"does not apply to format {kind}, which has no artefact"
    elif model.storage_uri is not None:
        for sentence in storage_faults(model.storage_uri, options):
            yield ("storageUri",), sentence
    if kind in CHECKSUMMED and model.sha256 is None and options is not None and options.trust_repository is False:
        yield (
            ("sha256",),
            f"required for format {kind}, since loading a model can run code; without it the runtime must be started with --trust-repository",
        )
    if kind is Format.PROFILED and model.emulation is None:
        yield ("emulation",), "required for format Profiled"
    if kind is not Format.PROFILED and model.emulation is not None:
        yield ("emulation",), f"applies to format Profiled only, not to {kind}"


def _size_rules(model: Model) -> Iterator[Broken]:
    sizes, top = model.execution_sizes, model.max_batch_size
    if top == 0:
        if sizes is not None:
            yield ("executionSizes",), "does not apply with maxBatchSize 0 (the model has no batch dimension)"
        if model.batching.policy in {BatchPolicy.MAX_DELAY, BatchPolicy.STATIC}:
            yield ("batching", "policy"), f"{model.batching.policy} waits for a batch to fill, but maxBatchSize is 0"
        return
    if sizes is None:
        return
    yield from ascending(sizes, ("executionSizes",))
    larger = [(index, size) for index, size in enumerate(sizes) if size > top]
    for index, size in larger:
        yield ("executionSizes", index), f"{size} is larger than maxBatchSize {top}"
    if not larger and sizes[-1] != top:
        yield (
            ("executionSizes", len(sizes) - 1),
            f"the last size {sizes[-1]} must equal maxBatchSize {top}: a larger batch could not run",
        )


def _signature_rules(model: Model) -> Iterator[Broken]:
    if model.format is not Format.EXTERNAL:
        for field, tensors in (("inputs", model.inputs), ("outputs", model.outputs)):
            if tensors is None:
                yield (field,), f"required for format {model.format} (this release does not read config.pbtxt)"
    inputs, outputs = model.inputs or (), model.outputs or ()
    yield from repeated([tensor.name for tensor in inputs], ("inputs",))
    yield from repeated([tensor.name for tensor in outputs], ("outputs",))
    yield from _datatype_rules(model.format, "inputs", [tensor.datatype for tensor in inputs])
    yield from _datatype_rules(model.format, "outputs", [tensor.datatype for tensor in outputs])
    if inputs and not any(tensor.buckets for tensor in inputs):
        for index, output in enumerate(outputs):
            if output.trim_dims:
                yield ("outputs", index, "trimDims"), "does not apply: no input has buckets, so nothing is padded"


def _datatype_rules(kind: Format, field: str, datatypes: Sequence[Datatype]) -> Iterator[Broken]:
    for index, datatype in enumerate(datatypes):
        if datatype is Datatype.BYTES and kind not in {Format.PYTHON, Format.EXTERNAL}:
            yield (field, index, "datatype"), f"BYTES tensors are for Python models only, not for {kind}"
        if datatype is Datatype.BF16 and kind is Format.PYTHON:
            yield (field, index, "datatype"), "BF16 tensors are not for Python models (numpy has no such type)"


def _worth_rules(model: Model) -> Iterator[Broken]:
    if model.max_weight is not None and model.max_weight < model.weight:
        yield ("maxWeight",), f"{model.max_weight} is less than weight {model.weight}"
    cap, target = model.max_latency_milliseconds, model.objective.latency_milliseconds
    if cap is not None and cap < target:
        yield ("maxLatencyMilliseconds",), f"{cap} is less than objective.latencyMilliseconds {target}"
