"""From one entry of ``spec.models`` to the runtime's own values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harness_api.models import STORED
from harness_core.pod.settings import ModelLimits, PolicyName, TimeoutAction

from harness_runtime.model import Emulation, ModelEntry, ModelFormat, ModelSpec
from harness_runtime.profiles import KnownProfiles, fallback_profile
from harness_runtime.repository import UNSTORED_VERSION, model_digest, resolve
from harness_runtime.tensors import Buckets, Datatype, TensorSpec

if TYPE_CHECKING:
    from pathlib import Path

    from harness_api.batching import Emulation as ApiEmulation
    from harness_api.models import Model
    from harness_api.tensors import InputTensor, OutputTensor

US: Final = 1_000
MS: Final = 1_000_000


def configure(
    model: Model, *, base_dir: Path, trust_repository: bool, allow_python: bool, known: KnownProfiles
) -> ModelEntry:
    """The registry's entry for ``model``; reads and checks its artefact.

    Raises:
        RepositoryError: the artefact cannot be used.
    """
    artefact = None
    if model.format in STORED:
        artefact = resolve(model, base_dir=base_dir, trust_repository=trust_repository, allow_python=allow_python)
    cap = model.max_latency_milliseconds
    spec = ModelSpec(
        name=model.name,
        version=artefact.version if artefact else model.version or UNSTORED_VERSION,
        digest=model_digest(model, artefact),
        format=ModelFormat(model.format.value),
        path=artefact.path if artefact else None,
        max_batch_size=model.max_batch_size,
        execution_sizes=tuple(model.execution_sizes or ()),
        inputs=tuple(_input(tensor) for tensor in model.inputs or ()),
        outputs=tuple(_output(tensor) for tensor in model.outputs or ()),
        objective_ns=model.objective.latency_milliseconds * MS,
        max_latency_ns=None if cap is None else cap * MS,
        weight=float(model.weight),
        max_weight=float(model.effective_max_weight),
        priority=model.priority,
        emulation=None if model.emulation is None else _emulation(model.emulation),
    )
    return ModelEntry(spec=spec, limits=_limits(model, spec, known))


def _limits(model: Model, spec: ModelSpec, known: KnownProfiles) -> ModelLimits:
    batching = model.batching
    profiles = known.take(spec.digest)
    # A profile without a bucket says how the model runs at shapes of which nothing better is known.
    default = profiles.get("") or fallback_profile(spec)
    return ModelLimits(
        model=spec.digest,
        default_profile=default,
        profiles=profiles,
        policy=PolicyName(batching.policy.value),
        max_batch_rows=spec.max_rows,
        execution_sizes=spec.execution_sizes,
        objective_ns=spec.objective_ns,
        max_queue_requests=batching.max_queue_size,
        max_queue_bytes=batching.max_queue_bytes,
        max_queue_delay_ns=batching.effective_queue_delay_microseconds * US,
        queue_timeout_ns=batching.queue_timeout_milliseconds * MS,
        timeout_action=TimeoutAction(batching.timeout_action.value),
    )


def _input(tensor: InputTensor) -> TensorSpec:
    buckets = None
    if tensor.buckets is not None:
        buckets = Buckets(tensor.buckets.dim, tuple(tensor.buckets.sizes), tensor.buckets.pad_value)
    return TensorSpec(tensor.name, Datatype(tensor.datatype.value), tuple(tensor.shape), buckets=buckets)


def _output(tensor: OutputTensor) -> TensorSpec:
    return TensorSpec(
        tensor.name, Datatype(tensor.datatype.value), tuple(tensor.shape), trim_dims=tuple(tensor.trim_dims)
    )


def _emulation(emulation: ApiEmulation) -> Emulation:
    return Emulation(
        setup_us=emulation.setup_microseconds or 0,
        compute_us_per_row=emulation.compute_microseconds_per_row or 0,
        points=tuple((point.batch_size, point.microseconds) for point in emulation.points or ()),
    )
