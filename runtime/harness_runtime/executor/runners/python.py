"""Models written in Python: class ``Model`` of ``model.py`` (protocol.md §6), run inside the executor process."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from harness_runtime.executor.runners.base import ModelFaultError, Produced
from harness_runtime.tensors import Datatype, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import ModuleType

    import numpy.typing as npt

    from harness_runtime.model import ModelSpec
    from harness_runtime.tensors import TensorSpec

_FIXED_SIZE: Final = {
    numpy_dtype(datatype): datatype for datatype in Datatype if datatype not in {Datatype.BF16, Datatype.BYTES}
}


class PythonRunner:
    """Calls ``predict`` with one array per input, rows on axis 0, and takes the dictionary it returns.

    The arrays are the slot's own memory: valid during the call. What ``predict`` returns may have any memory layout and
    byte order; its datatype must be the declared one.
    """

    device = "python"

    def __init__(self, spec: ModelSpec, path: Path) -> None:
        module = _import(f"harness_model_{spec.digest}", path)
        kind = getattr(module, "Model", None)
        if kind is None:
            raise ModelFaultError(f"{path.name} has no class Model")
        self._model: Any = kind(configuration(spec))
        if not callable(getattr(self._model, "predict", None)):
            raise ModelFaultError(f"class Model of {path.name} has no method predict")

    def run(self, inputs: Mapping[str, npt.NDArray[Any]], size: int) -> list[Produced]:  # noqa: ARG002 - the arrays carry it
        """Call the model."""
        answer = self._model.predict(dict(inputs))
        if not isinstance(answer, dict):
            raise ModelFaultError(
                f"predict must return a dict of numpy arrays by output name, got {type(answer).__name__}"
            )
        return [_produced(str(name), value) for name, value in answer.items()]

    def settle(self, start_ns: int, size: int) -> None:
        """The run is over when ``predict`` has returned."""


def configuration(spec: ModelSpec) -> dict[str, Any]:
    """What ``Model.__init__`` is given: plain values that name the model and its tensors."""
    return {
        "name": spec.name,
        "version": spec.version,
        "path": str(spec.path),
        "max_batch_size": spec.max_batch_size,
        "execution_sizes": list(spec.execution_sizes),
        "inputs": [_tensor(each) for each in spec.inputs],
        "outputs": [_tensor(each) for each in spec.outputs],
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    buckets = None if spec.buckets is None else dataclasses.asdict(spec.buckets)
    return {"name": spec.name, "datatype": spec.datatype.value, "shape": list(spec.shape), "buckets": buckets}


def _import(name: str, path: Path) -> ModuleType:
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise ModelFaultError(f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(found)
    # Dataclasses and pickles of the model look their module up.
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _produced(name: str, value: object) -> Produced:
    if not isinstance(value, np.ndarray | np.generic):
        return Produced(name, None, f"a {type(value).__name__} instead of a numpy array", (), _nothing)
    array = np.asarray(value)
    if array.dtype.kind in "OSU":
        return Produced(name, Datatype.BYTES, "BYTES", array.shape, _nothing, array)
    datatype = _FIXED_SIZE.get(array.dtype.newbyteorder("<"))
    return Produced(name, datatype, datatype.value if datatype else str(array.dtype), array.shape, _copy(array))


def _copy(array: npt.NDArray[Any]) -> Callable[[npt.NDArray[Any]], None]:
    def write(target: npt.NDArray[Any]) -> None:
        # Brings any layout and byte order into the target's.
        np.copyto(target, array)

    return write


def _nothing(_target: npt.NDArray[Any]) -> None:
    """Outputs without fixed-size values are not written this way."""
