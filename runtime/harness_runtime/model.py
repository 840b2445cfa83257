"""What the runtime knows of a model: its signature, its artefact, its state."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from harness_core.pod.settings import ModelLimits
    from harness_core.profile import LatencyProfile

    from harness_runtime.tensors import TensorSpec


class ModelFormat(StrEnum):
    """Formats that a pod of ours can run (protocol.md §6)."""

    TORCH_EXPORT = "TorchExport"
    TORCH_SCRIPT = "TorchScript"
    PYTHON = "Python"
    PROFILED = "Profiled"


@dataclass(frozen=True, slots=True)
class Emulation:
    """Latency of an emulated accelerator: linear, or points of (batch size, microseconds) joined by straight lines."""

    setup_us: int = 0
    compute_us_per_row: int = 0
    points: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model as configured.

    ``digest`` identifies artefact and signature together (sha256, hex); ``path`` is the artefact's file
    (``model.pt2``, ``model.pt``, ``model.py``; None for Profiled). ``max_batch_size`` 0: unbatched, shapes then carry no batch dimension.
    Times are nanoseconds.
    """

    name: str
    version: str
    digest: str
    format: ModelFormat
    path: Path | None
    max_batch_size: int
    execution_sizes: tuple[int, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    objective_ns: int
    max_latency_ns: int | None
    weight: float
    max_weight: float
    priority: int
    emulation: Emulation | None = None

    @property
    def max_rows(self) -> int:
        """Most rows of one execution (1 for an unbatched model)."""
        return max(1, self.max_batch_size)


class ModelState(StrEnum):
    """States of the repository index (Triton's words)."""

    LOADING = "LOADING"
    READY = "READY"
    UNAVAILABLE = "UNAVAILABLE"
    UNLOADING = "UNLOADING"


@dataclass(slots=True)
class ModelEntry:
    """A model in the registry: configuration, machine limits, present state, measured profiles by bucket name."""

    spec: ModelSpec
    limits: ModelLimits
    state: ModelState = ModelState.LOADING
    reason: str = ""
    profiles: dict[str, LatencyProfile] = field(default_factory=dict)
