"""Emulated accelerator: answers after the time its latency profile gives, and sleeps until then.

Why: tests, pool benchmarks and end-to-end runs without a GPU (design.md §3). While it sleeps it is busy: the next batch waits.
What it costs: no CPU. What it cannot show: contention for a real device's memory and buses.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from harness_runtime.executor.layout import encode_bytes
from harness_runtime.executor.runners.base import ModelFaultError, Produced
from harness_runtime.tensors import Datatype, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import numpy.typing as npt

    from harness_runtime.model import Emulation, ModelSpec
    from harness_runtime.tensors import TensorSpec


class ProfiledRunner:
    """Output: the first input's bytes in the first output's shape, row by row (cut or repeated to fit); further outputs are zero."""

    device = "emulated"

    def __init__(self, spec: ModelSpec) -> None:
        if spec.emulation is None:
            raise ModelFaultError(f"model '{spec.name}' has format Profiled and no emulation")
        self._spec = spec
        self._emulation = spec.emulation

    def run(self, inputs: Mapping[str, npt.NDArray[Any]], size: int) -> list[Produced]:
        """Shape the answer; the time passes in :meth:`settle`."""
        spec = self._spec
        source = inputs[spec.inputs[0].name]
        variable = variable_sizes(spec.inputs[0], source.shape[1:] if spec.max_batch_size else source.shape)
        return [
            self._produce(each, size, variable, source if position == 0 else None)
            for position, each in enumerate(spec.outputs)
        ]

    def _produce(self, output: TensorSpec, size: int, variable: list[int], source: npt.NDArray[Any] | None) -> Produced:
        remaining = list(variable)
        own = tuple(dim if dim >= 0 else (remaining.pop(0) if remaining else 1) for dim in output.shape)
        batched = self._spec.max_batch_size > 0
        shape = (size, *own) if batched else own
        if output.datatype is Datatype.BYTES:
            elements = _elements(source, shape)
            return Produced(output.name, output.datatype, "BYTES", shape, _write(elements), elements)
        if source is None:
            data = np.zeros(shape, numpy_dtype(output.datatype))
        else:
            data = _reinterpret(source, shape, output, batched=batched)
        return Produced(output.name, output.datatype, output.datatype.value, shape, _write(data))

    def settle(self, start_ns: int, size: int) -> None:
        """Sleep, once, until the emulated accelerator would be done."""
        left_ns = start_ns + latency_ns(self._emulation, size) - time.monotonic_ns()
        if left_ns > 0:
            # One absolute kernel sleep underneath (clock_nanosleep); the child lowered its timer slack for it.
            time.sleep(left_ns / 1e9)


def latency_ns(emulation: Emulation, size: int) -> int:
    """l(b) of an emulation. Points: straight lines between them, flat before the first, the last line continued after the last."""
    points = emulation.points
    if not points:
        return 1000 * (emulation.setup_us + emulation.compute_us_per_row * size)
    if size <= points[0][0] or len(points) == 1:
        return 1000 * points[0][1]
    after = next((i for i in range(1, len(points)) if points[i][0] >= size), len(points) - 1)
    (left, left_us), (right, right_us) = points[after - 1], points[after]
    return round(1000 * (left_us + (right_us - left_us) * (size - left) / (right - left)))


def variable_sizes(declared: TensorSpec, actual: tuple[int, ...]) -> list[int]:
    """Actual sizes of the dimensions declared variable, in order."""
    return [have for want, have in zip(declared.shape, actual, strict=True) if want < 0]


def _write(values: npt.NDArray[Any]) -> Callable[[npt.NDArray[Any]], None]:
    def write(target: npt.NDArray[Any]) -> None:
        np.copyto(target, values)

    return write


def _elements(source: npt.NDArray[Any] | None, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    elements = np.full(shape, b"", dtype=object)
    if source is not None and source.dtype == object and elements.size and source.size:
        elements.ravel()[...] = np.resize(source.ravel(), elements.size)
    return elements


def _reinterpret(
    source: npt.NDArray[Any], shape: tuple[int, ...], output: TensorSpec, *, batched: bool
) -> npt.NDArray[Any]:
    dtype = numpy_dtype(output.datatype)
    if source.dtype == dtype and source.shape == shape:
        return source  # an echo costs one copy, into the slot
    rows = shape[0] if batched else 1
    row_bytes = math.prod(shape) // max(rows, 1) * dtype.itemsize
    result = np.zeros((rows, row_bytes), np.uint8)
    for row, raw in enumerate(_raw_rows(source, rows, batched=batched)):
        if len(raw):
            result[row] = np.resize(raw, row_bytes)
    if output.datatype is Datatype.BOOL:
        result &= 1  # any other byte is not a boolean
    return result.view(dtype).reshape(shape) if result.size else np.zeros(shape, dtype)


def _raw_rows(source: npt.NDArray[Any], rows: int, *, batched: bool) -> Iterable[npt.NDArray[np.uint8]]:
    """The bytes of each row (of the whole, without a batch dimension)."""
    if source.dtype == object:
        whole = source if batched else source[None]
        return [np.frombuffer(encode_bytes(row), np.uint8) for row in whole.reshape(rows, -1)]
    return np.ascontiguousarray(source).reshape(rows, -1).view(np.uint8)
