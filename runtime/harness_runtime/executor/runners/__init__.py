"""One runner per model format: load an artefact, run a batch, say what came out. Child side only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness_runtime.executor.runners.base import ModelFaultError
from harness_runtime.executor.runners.profiled import ProfiledRunner
from harness_runtime.executor.runners.python import PythonRunner
from harness_runtime.model import ModelFormat
from harness_runtime.tensors import Datatype

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness_runtime.executor.runners.base import Runner
    from harness_runtime.model import ModelSpec

# protocol.md §4: numpy has no bfloat16 for a Python model to work with, torch has no strings.
_NOT_FOR = {
    ModelFormat.PYTHON: Datatype.BF16,
    ModelFormat.TORCH_EXPORT: Datatype.BYTES,
    ModelFormat.TORCH_SCRIPT: Datatype.BYTES,
}


def make_runner(spec: ModelSpec, config: Mapping[str, Any]) -> Runner:
    """Load a model. ``config`` holds ``device``, ``threads`` and ``allow_python_models`` (``ExecutorSettings``).

    Raises:
        ModelFaultError: its declaration or its artefact cannot work, in a user's words. Other exceptions come from the artefact itself.
    """
    refused = _NOT_FOR.get(spec.format)
    for tensor in (*spec.inputs, *spec.outputs):
        if tensor.datatype is refused:
            raise ModelFaultError(
                f"tensor '{tensor.name}' has datatype {refused}, which a {spec.format} model cannot have"
            )
    if spec.format is ModelFormat.PROFILED:
        return ProfiledRunner(spec)
    if spec.path is None or not spec.path.is_file():
        raise ModelFaultError(f"there is no file {spec.path}")
    if spec.format is ModelFormat.PYTHON:
        if not config["allow_python_models"]:
            raise ModelFaultError(
                "Python models run code of the repository and are not allowed; start with --allow-python-models"
            )
        return PythonRunner(spec, spec.path)
    try:
        # Late: torch takes seconds and hundreds of megabytes, and the slim runtime has none.
        from harness_runtime.executor.runners.torch_program import TorchRunner  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ModelFaultError(f"format {spec.format} needs torch, which is not installed ({error})") from error
    return TorchRunner(spec, spec.path, device=config["device"], threads=config["threads"])
