"""Latency profiles known before a model has run here: LatencyProfile objects, the emulation, or a guess."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harness_api.base import Fault, Notice
from harness_core.profile import LatencyProfile, ProfilePoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness_api.latency_profile import LatencyProfileResource

    from harness_runtime.model import ModelSpec

US: Final = 1_000
GUESS_SETUP_DIVISOR: Final = 10
GUESS_FULL_DIVISOR: Final = 2


class KnownProfiles:
    """The LatencyProfiles given, handed out by model digest.

    A profile for the accelerator class ``accelerator_class`` is preferred to one for any class; those for other classes are
    left aside. ``faults``: two that say the same of the same. ``notices()``: those that no model asked for.
    """

    def __init__(self, resources: Sequence[LatencyProfileResource], accelerator_class: str) -> None:
        self._class = accelerator_class
        self._resources = list(resources)
        self._used: set[str] = set()
        self.faults: list[Fault] = []
        seen: dict[tuple[str, str, str], str] = {}
        for resource in resources:
            spec, name = resource.spec, resource.metadata.name
            key = (spec.model_digest, spec.bucket, spec.accelerator_class)
            if key in seen:
                sentence = f"speaks of the same model, bucket and class as LatencyProfile '{seen[key]}'"
                self.faults.append(Fault(f"LatencyProfile {name}", sentence))
            seen.setdefault(key, name)

    def take(self, digest: str) -> dict[str, LatencyProfile]:
        """Profiles of the model with this digest, by bucket name."""
        found: dict[str, LatencyProfile] = {}
        for resource in self._resources:
            spec, points = resource.spec, resource.points
            if spec.model_digest != digest or spec.accelerator_class not in {"", self._class} or not points:
                continue
            self._used.add(resource.metadata.name)
            if spec.bucket in found and spec.accelerator_class == "":
                continue
            profile = LatencyProfile.from_points(
                ProfilePoint(
                    point.size,
                    point.p50_microseconds * US,
                    None if point.p99_microseconds is None else point.p99_microseconds * US,
                    point.samples,
                )
                for point in points
            )
            found[spec.bucket] = profile
        return found

    def notices(self) -> list[Notice]:
        """Profiles that apply to no model of this process."""
        return [
            Notice(
                f"LatencyProfile {resource.metadata.name}",
                f"applies to no model here (digest {resource.spec.model_digest[:12]}…, class '{resource.spec.accelerator_class}')",
            )
            for resource in self._resources
            if resource.metadata.name not in self._used
        ]


def fallback_profile(spec: ModelSpec) -> LatencyProfile:
    """The profile used until the warm-up has measured one: the emulation's, else a guess.

    The guess is a tenth of the objective for setup and half of it for a full batch. It is high for most models, so that
    batches start early rather than late, and never above the objective, so that no request with the default target is
    refused on a guess. It is in force only where nothing could be measured before the model was ready.
    """
    emulation = spec.emulation
    if emulation is not None and emulation.points:
        return LatencyProfile.from_points(ProfilePoint(size, us * US) for size, us in emulation.points)
    if emulation is not None:
        return LatencyProfile.linear(emulation.setup_us * US, emulation.compute_us_per_row * US, spec.max_rows)
    setup_ns = spec.objective_ns // GUESS_SETUP_DIVISOR
    per_row_ns = (spec.objective_ns // GUESS_FULL_DIVISOR - setup_ns) // spec.max_rows
    return LatencyProfile.linear(setup_ns, per_row_ns, spec.max_rows)
