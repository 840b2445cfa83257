"""The page ``/state``: what this server is set to, what it holds and what it measured (design.md §2.10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from harness_core.profile import LatencyProfile

if TYPE_CHECKING:
    from harness_runtime.model import ModelEntry

SIZES_MAX = 64
"""Sizes of a profile for which S(n) and U(n) are written out."""


def jsonable(value: Any) -> Any:
    """``value`` in JSON's types: dataclasses by their fields, profiles as :func:`describe_profile`."""
    if isinstance(value, LatencyProfile):
        return describe_profile(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): jsonable(each) for key, each in value.items()}
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Sequence):
        return [jsonable(each) for each in value]
    return repr(value)


def describe_profile(profile: LatencyProfile) -> dict[str, Any]:
    """Points, linear fit, and S(n) and U(n) at the points' sizes (scheduling.md, header)."""
    fit = profile.fit()
    sizes = [point.size for point in profile.points[:SIZES_MAX]]
    return {
        "points": [
            {"size": point.size, "p50_ns": point.p50_ns, "p99_ns": point.p99_ns, "samples": point.samples}
            for point in profile.points
        ],
        "fit": {"alpha_ns": fit.alpha_ns, "beta_ns": fit.beta_ns, "max_rel_err": fit.max_rel_err},
        "saturation_size": profile.saturation_size(),
        "speedup": {str(size): round(profile.speedup(size), 4) for size in sizes},
        "utilisation": {str(size): round(profile.utilisation(size), 4) for size in sizes},
    }


def describe_model(entry: ModelEntry) -> dict[str, Any]:
    """One model: configuration, effective limits, state, profiles in force by bucket.

    ``default_profile`` serves buckets without one: null when they have theirs, or it is one of them (``default_bucket`` names it).
    """
    limits = jsonable(entry.limits)
    profiles, default = entry.limits.profiles, entry.limits.default_profile
    same = next((bucket for bucket, profile in profiles.items() if profile == default), None)
    return {
        "name": entry.spec.name,
        "version": entry.spec.version,
        "state": entry.state.value,
        "reason": entry.reason,
        "spec": jsonable(entry.spec),
        "limits": {name: value for name, value in limits.items() if name not in {"profiles", "default_profile"}},
        "profiles": limits["profiles"],
        "default_bucket": same,
        "default_profile": limits["default_profile"] if same is None else None,
    }


def summary_of(entry: ModelEntry) -> str:
    """One model in a few words: policy, sizes, limits."""
    spec, limits = entry.spec, entry.limits
    sizes = f", sizes {','.join(map(str, spec.execution_sizes))}" if spec.execution_sizes else ""
    return (
        f"model {spec.name} version {spec.version}: {limits.policy}, batches to {spec.max_rows}{sizes}, objective {spec.objective_ns / 1e6:g} ms,"
        f" queue {limits.max_queue_requests} requests, {limits.max_queue_bytes} bytes"
    )
