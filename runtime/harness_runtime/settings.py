"""Everything a runtime process is set to, parsed once from an InferenceService and the command line, passed down as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from harness_api.base import Fault, format_path
from harness_api.worker_groups import RuntimeKind
from harness_core.pod.settings import PodLimits

from harness_runtime.configured import configure
from harness_runtime.executor.settings import DEVICES
from harness_runtime.profiles import KnownProfiles
from harness_runtime.repository import RepositoryError
from harness_runtime.state import jsonable, summary_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness_api.inferenceservice import InferenceService
    from harness_api.latency_profile import LatencyProfileResource
    from harness_api.worker_groups import WorkerGroup

    from harness_runtime.model import ModelEntry

SECOND: Final = 1_000_000_000
MESSAGE_BYTES_MIN: Final = 1 << 10
MESSAGE_BYTES_MAX: Final = (1 << 31) - 1
"""gRPC keeps message sizes in 32 bits."""


class SettingsError(Exception):
    """A runtime cannot be set up like this. ``faults`` has every reason, with its field path or option."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(str(fault) for fault in faults))
        self.faults = list(faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeOptions:
    """What the command line says beside the InferenceService."""

    bind: str = "127.0.0.1"
    grpc_port: int = 8001
    """0: a free port."""
    metrics_port: int = 8002
    """0: a free port."""
    allow_python_models: bool = False
    trust_repository: bool = False
    device: str = "auto"
    threads: int | None = None
    """Threads of torch inside an operator; None: torch's own choice."""
    max_message_bytes: int = 64 << 20
    """Largest message in either direction (protocol.md §5)."""
    accelerator_class: str = ""
    """Class whose LatencyProfiles apply beside those for any class."""

    def faults(self) -> list[Fault]:
        """Options out of bounds."""
        bounds = (
            ("--grpc-port", self.grpc_port, 0, 65535),
            ("--metrics-port", self.metrics_port, 0, 65535),
            ("--threads", 1 if self.threads is None else self.threads, 1, 4096),
            ("--max-message-bytes", self.max_message_bytes, MESSAGE_BYTES_MIN, MESSAGE_BYTES_MAX),
        )
        faults = [
            Fault(name, f"{value} is outside of {low} to {high}")
            for name, value, low, high in bounds
            if not low <= value <= high
        ]
        if self.device not in DEVICES:
            faults.append(Fault("--device", f"'{self.device}' is not one of {', '.join(DEVICES)}"))
        if self.grpc_port == self.metrics_port != 0:
            faults.append(Fault("--metrics-port", f"{self.metrics_port} is the gRPC port already"))
        return faults


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """Effective settings of one runtime process. Times are nanoseconds, sizes bytes."""

    service_name: str
    group: str
    models: tuple[ModelEntry, ...]
    pod: PodLimits = field(default_factory=PodLimits)
    max_hold_ns: int = 120 * SECOND
    """How long a request without a deadline is held at most."""
    drain_ns: int = 60 * SECOND
    """How long accepted work has after SIGTERM."""
    bind: str = "127.0.0.1"
    grpc_port: int = 8001
    metrics_port: int = 8002
    max_message_bytes: int = 64 << 20
    allow_python_models: bool = False
    trust_repository: bool = False
    device: str = "auto"
    threads: int | None = None
    notices: tuple[str, ...] = ()
    """What was given and has no effect here."""

    def effective(self) -> dict[str, Any]:
        """Every setting of the process in force, in JSON's types (design.md §2.10). Those of models: ``state.describe_model``."""
        return {
            name: jsonable(getattr(self, name)) for name in (each.name for each in fields(self)) if name != "models"
        }

    def summary(self) -> str:
        """What a log should hold of a start: the bounds of the process, and of each model policy, sizes and limits."""
        models = "; ".join(summary_of(entry) for entry in self.models)
        return (
            f"device {self.device}, threads {self.threads or 'chosen by torch'}, at most {self.pod.max_pending_requests} requests and"
            f" {self.pod.max_pending_bytes} bytes pending; {models}"
        )


def from_service(
    service: InferenceService,
    *,
    group: str | None,
    base_dir: Path,
    options: RuntimeOptions,
    profiles: Sequence[LatencyProfileResource] = (),
) -> RuntimeSettings:
    """Settings of one process of worker group ``group`` (None: the only group). Reads the artefacts of its models.

    ``base_dir`` is where relative ``file:`` paths start (the YAML's folder); ``profiles`` are LatencyProfiles of the same files.

    Raises:
        SettingsError: with every fault of options, group and artefacts.
    """
    faults = options.faults()
    chosen = _choose_group(service, group, faults)
    entries: list[ModelEntry] = []
    known = KnownProfiles(profiles, options.accelerator_class)
    for index, model in enumerate(service.spec.models):
        if chosen is not None and model.runs_on(chosen.name):
            try:
                entry = configure(
                    model,
                    base_dir=base_dir,
                    trust_repository=options.trust_repository,
                    allow_python=options.allow_python_models,
                    known=known,
                )
                entries.append(entry)
            except RepositoryError as error:
                faults.append(Fault(format_path(("spec", "models", index, error.field)), str(error)))
    faults += known.faults
    if faults or chosen is None:
        raise SettingsError(faults)
    limits = service.spec.limits
    return RuntimeSettings(
        service_name=service.metadata.name,
        group=chosen.name,
        models=tuple(entries),
        pod=PodLimits(max_pending_requests=limits.max_pending_requests, max_pending_bytes=limits.max_pending_bytes),
        max_hold_ns=limits.max_hold_seconds * SECOND,
        drain_ns=chosen.drain.grace_period_seconds * SECOND,
        bind=options.bind,
        grpc_port=options.grpc_port,
        metrics_port=options.metrics_port,
        max_message_bytes=options.max_message_bytes,
        allow_python_models=options.allow_python_models,
        trust_repository=options.trust_repository,
        device=options.device,
        threads=options.threads,
        notices=tuple(str(notice) for notice in known.notices()),
    )


def _choose_group(service: InferenceService, name: str | None, faults: list[Fault]) -> WorkerGroup | None:
    """The group called ``name``, or the only one; None with a fault where there is no such group of ours."""
    groups = service.spec.worker_groups
    names = ", ".join(group.name for group in groups)
    if name is None and len(groups) != 1:
        faults.append(Fault("--group", f"required: the service has the worker groups {names}"))
        return None
    for index, group in enumerate(groups):
        if name is None or group.name == name:
            if group.runtime.kind is not RuntimeKind.HARNESS:
                path = format_path(("spec", "workerGroups", index, "runtime", "kind"))
                faults.append(
                    Fault(path, f"{group.runtime.kind} servers bring their own process; this one runs kind Harness")
                )
                return None
            return group
    faults.append(
        Fault("--group", f"'{name}' is not a worker group of service '{service.metadata.name}' (there are: {names})")
    )
    return None
