"""One runner per model format: load an artefact, run a batch, say what came out. Child side only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness_runtime.executor.runners.base import ModelFaultError
from harness_runtime.executor.runners.profiled import ProfiledRunner
from harness_runtime.model import ModelFormat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness_runtime.executor.runners.base import Runner
    from harness_runtime.model import ModelSpec


def make_runner(spec: ModelSpec, config: Mapping[str, Any]) -> Runner:
    """Load a model.

    Raises:
        ModelFaultError: its declaration or its artefact cannot work, in a user's words. Other exceptions come from the artefact itself.
    """
    if spec.format is ModelFormat.PROFILED:
        return ProfiledRunner(spec)
    raise ModelFaultError(f"format {spec.format} is not supported")
