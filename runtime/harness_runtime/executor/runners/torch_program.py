"""torch programs: ``torch.export`` archives and TorchScript, on CPU or CUDA.

Inputs are passed and outputs taken by position, in the order of the model's declaration; a program that returns a dictionary is
read by name. CPU: tensors are views of the slot, no copy. CUDA: copies through pinned memory on a stream of our own.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any, Final

import torch

from harness_runtime.executor.runners.base import DeviceLostError, ModelFaultError, Produced
from harness_runtime.executor.runners.faults import is_out_of_memory, say
from harness_runtime.model import ModelFormat
from harness_runtime.tensors import Datatype

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from harness_runtime.model import ModelSpec

_TORCH: Final[dict[Datatype, Any]] = {
    Datatype.BOOL: torch.bool,
    Datatype.UINT8: torch.uint8,
    Datatype.UINT16: torch.uint16,
    Datatype.UINT32: torch.uint32,
    Datatype.UINT64: torch.uint64,
    Datatype.INT8: torch.int8,
    Datatype.INT16: torch.int16,
    Datatype.INT32: torch.int32,
    Datatype.INT64: torch.int64,
    Datatype.FP16: torch.float16,
    Datatype.BF16: torch.bfloat16,
    Datatype.FP32: torch.float32,
    Datatype.FP64: torch.float64,
}
_DATATYPE: Final = {dtype: datatype for datatype, dtype in _TORCH.items()}


class TorchRunner:
    """A torch program."""

    def __init__(self, spec: ModelSpec, path: Path, *, device: str, threads: int | None) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        self._spec = spec
        self._on = _Cuda() if _wants_cuda(device) else _Cpu()
        self.device: str = self._on.name
        load = _load_export if spec.format is ModelFormat.TORCH_EXPORT else _load_script
        self._program = load(path, self._on.device)

    def run(self, inputs: Mapping[str, npt.NDArray[Any]], size: int) -> list[Produced]:  # noqa: ARG002 - the tensors carry it
        """Run the program; on CUDA the work is queued on the stream and awaited when outputs are written."""
        spec = self._spec
        try:
            with torch.inference_mode(), self._on.active():
                tensors = [
                    self._on.take(position, as_tensor(inputs[each.name], each.datatype))
                    for position, each in enumerate(spec.inputs)
                ]
                returned = self._program(*tensors)
        except RuntimeError as error:
            raise _sorted_out(error) from error
        return [self._produced(name, value) for name, value in self._named(returned).items()]

    def settle(self, start_ns: int, size: int) -> None:
        """The run is over when its outputs are written."""

    def _named(self, returned: Any) -> dict[str, Any]:
        if isinstance(returned, dict):
            return {str(name): value for name, value in returned.items()}
        values = list(returned) if isinstance(returned, tuple | list) else [returned]
        # Further values have no name; programs often return more than a service asks for.
        return {declared.name: value for declared, value in zip(self._spec.outputs, values, strict=False)}

    def _produced(self, name: str, value: Any) -> Produced:
        if not isinstance(value, torch.Tensor):
            return Produced(name, None, f"a {type(value).__name__} instead of a tensor", (), _refuse)
        datatype = _DATATYPE.get(value.dtype)
        return Produced(name, datatype, datatype or str(value.dtype), tuple(value.shape), self._writer(value, datatype))

    def _writer(self, value: Any, datatype: Datatype | None) -> Callable[[npt.NDArray[Any]], None]:
        def write(target: npt.NDArray[Any]) -> None:
            assert datatype is not None  # noqa: S101 - checked before anything is written
            try:
                with torch.inference_mode(), self._on.active():
                    self._on.give(value, as_tensor(target, datatype))
            except RuntimeError as error:
                raise _sorted_out(error) from error

        return write


def as_tensor(array: npt.NDArray[Any], datatype: Datatype) -> Any:
    """A tensor over an array's memory."""
    tensor = torch.from_numpy(array)
    return tensor.view(torch.bfloat16) if datatype is Datatype.BF16 else tensor


class _Cpu:
    """Host memory: nothing to move."""

    name = "cpu"
    device = "cpu"

    def active(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def take(self, position: int, tensor: Any) -> Any:  # noqa: ARG002 - as on CUDA
        return tensor

    def give(self, tensor: Any, target: Any) -> None:
        # Whatever the strides (transposed, expanded), the target's are row-major.
        target.copy_(tensor)


class _Cuda:
    """One device, one stream, pinned buffers kept and grown. Not yet run on a GPU by our tests."""

    device = "cuda"

    def __init__(self) -> None:
        self.name = str(torch.cuda.get_device_name())
        self._stream = torch.cuda.Stream()
        self._pinned: dict[int, Any] = {}

    def active(self) -> contextlib.AbstractContextManager[Any]:
        context: contextlib.AbstractContextManager[Any] = torch.cuda.stream(self._stream)
        return context

    def take(self, position: int, tensor: Any) -> Any:
        staging = self._staging(position, tensor)
        staging.copy_(tensor)
        return staging.to(self.device, non_blocking=True)

    def give(self, tensor: Any, target: Any) -> None:
        staging = self._staging(-1, target)
        staging.copy_(tensor, non_blocking=True)
        self._stream.synchronize()
        target.copy_(staging)

    def _staging(self, position: int, like: Any) -> Any:
        """A pinned tensor of the shape and type of ``like``. Free to reuse: every run ends with a synchronised ``give``."""
        size = max(1, math.prod(like.shape)) * like.element_size()
        buffer = self._pinned.get(position)
        if buffer is None or len(buffer) < size:
            buffer = self._pinned[position] = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        used = buffer[: math.prod(like.shape) * like.element_size()]
        return used.view(like.dtype).view(like.shape)


def _wants_cuda(device: str) -> bool:
    if device == "cpu":
        return False
    available = bool(torch.cuda.is_available())
    if device == "cuda" and not available:
        raise ModelFaultError("device cuda was asked for, and torch finds no CUDA device")
    return available


def _load_export(path: Path, device: str) -> Any:
    program = torch.export.load(str(path))
    if device != "cpu":
        from torch.export.passes import move_to_device_pass  # noqa: PLC0415 - CUDA only

        program = move_to_device_pass(program, device)
    return program.module()


def _load_script(path: Path, device: str) -> Any:
    return torch.jit.load(str(path), map_location=device).eval()


def _sorted_out(error: RuntimeError) -> Exception:
    """A CUDA error other than lack of memory leaves a context in which nothing runs any more."""
    fatal = type(error).__name__ == "AcceleratorError" or "CUDA error" in str(error)
    return DeviceLostError(say(error)) if fatal and not is_out_of_memory(error) else error


def _refuse(_target: npt.NDArray[np.uint8]) -> None:
    """Never called: outputs without a datatype do not pass the checks."""
