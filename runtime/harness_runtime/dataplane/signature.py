"""What a model takes, precomputed: checks a request's tensors and finds its lane.

The checks read as a chain; each names the tensor, what the model expects and what came. Zero rows are refused: an answer
for nothing has no use, and an empty batch has no meaning (scenario B014).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness_runtime.dataplane.codec import LENGTH_BYTES, wire_bytes
from harness_runtime.errors import invalid
from harness_runtime.lanes import VARIABLE, bucket_name, execution_size, padded_size
from harness_runtime.tensors import Datatype
from harness_runtime.text import quoted, shape_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness_runtime.model import ModelSpec
    from harness_runtime.tensors import Tensor, TensorSpec


ALIGNMENT = 64
"""Each tensor of a batch begins at a multiple of this in the executor's memory."""


@dataclass(slots=True)
class Checked:
    """A request's tensors after all checks: in the model's order, with padded shapes (without rows) and lane.

    ``bytes``: what its rows take in a batch, padded. ``executed_bytes``: what a batch of it alone takes, at its execution size.
    """

    inputs: list[Tensor]
    padded: list[tuple[int, ...]]
    bucket: str
    rows: int
    bytes: int
    executed_bytes: int


class Signature:
    """The signature of one model version."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self._order = {tensor.name: index for index, tensor in enumerate(spec.inputs)}
        self._outputs = {tensor.name: tensor for tensor in spec.outputs}
        self._batched = spec.max_batch_size > 0
        self._fixed = all(VARIABLE not in tensor.shape for tensor in spec.inputs)
        self._texts = any(tensor.datatype is Datatype.BYTES for tensor in spec.inputs)
        self._shapes = [tensor.shape for tensor in spec.inputs]
        rows = (VARIABLE,) if self._batched else ()
        self._expected = [(*rows, *tensor.shape) for tensor in spec.inputs]

    def check(self, tensors: Sequence[Tensor]) -> Checked:
        """Check a request's inputs.

        Raises:
            RequestEnded: INVALID, naming the tensor, the expectation and what came.
        """
        inputs = self._arrange(tensors)
        rows = 1
        for index, (spec, tensor) in enumerate(zip(self.spec.inputs, inputs, strict=True)):
            if tensor.datatype is not spec.datatype:
                raise invalid(
                    "datatype", f"input {quoted(spec.name)}: the model takes {spec.datatype}, got {tensor.datatype}"
                )
            self._check_shape(spec, self._expected[index], tensor.array.shape)
            if self._batched:
                rows = self._check_rows(inputs, index, rows)
        padded = self._shapes if self._fixed else self._pad(inputs)
        bucket = "" if self._fixed else bucket_name(self.spec.inputs, padded)
        own = [wire_bytes(tensor) for tensor in inputs]
        size = executed = sum(own)
        if not self._fixed or self._texts:
            # Of all others the full batch was compared with the slot when the model was loaded.
            run = execution_size(self.spec.execution_sizes, rows)
            size = sum(_padded_bytes(inputs, own, padded, rows))
            executed = sum(-(-each // ALIGNMENT) * ALIGNMENT for each in _padded_bytes(inputs, own, padded, run))
        return Checked(inputs, padded, bucket, rows, size, executed)

    def outputs(self, names: Sequence[str]) -> tuple[TensorSpec, ...]:
        """The outputs a request wants, in its order; all, in the model's order, when it names none.

        Raises:
            RequestEnded: INVALID for an unknown or repeated name.
        """
        if not names:
            return self.spec.outputs
        wanted: dict[str, TensorSpec] = {}
        for name in names:
            if name not in self._outputs:
                known = ", ".join(quoted(known) for known in self._outputs)
                raise invalid("unknown_output", f"output {quoted(name)}: the model has {known}")
            if name in wanted:
                raise invalid("duplicate_output", f"output {quoted(name)}: asked for twice")
            wanted[name] = self._outputs[name]
        return tuple(wanted.values())

    def _arrange(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        found: dict[str, Tensor] = {}
        for tensor in tensors:
            if tensor.name not in self._order:
                known = ", ".join(quoted(name) for name in self._order)
                raise invalid("unknown_input", f"input {quoted(tensor.name)}: the model takes {known}")
            if tensor.name in found:
                raise invalid("duplicate_input", f"input {quoted(tensor.name)}: given twice")
            found[tensor.name] = tensor
        for name in self._order:
            if name not in found:
                raise invalid("missing_input", f"input {quoted(name)}: the model needs it, the request lacks it")
        return [found[name] for name in self._order]

    def _check_shape(self, spec: TensorSpec, expected: tuple[int, ...], shape: tuple[int, ...]) -> None:
        if len(shape) == len(expected) and all(
            size == want or (want == VARIABLE and size > 0) for size, want in zip(shape, expected, strict=True)
        ):
            return
        raise invalid(
            "shape", f"input {quoted(spec.name)}: the model takes shape {shape_text(expected)}, got {shape_text(shape)}"
        )

    def _check_rows(self, inputs: list[Tensor], index: int, rows: int) -> int:
        name, own = inputs[index].name, int(inputs[index].array.shape[0])
        if own > self.spec.max_batch_size:
            raise invalid(
                "too_many_rows",
                f"input {quoted(name)}: {own} rows, the model's maxBatchSize is {self.spec.max_batch_size}",
            )
        if index and own != rows:
            raise invalid(
                "rows_differ", f"input {quoted(name)}: {own} rows, but input {quoted(inputs[0].name)} has {rows}"
            )
        return own

    def _pad(self, inputs: list[Tensor]) -> list[tuple[int, ...]]:
        padded = []
        for spec, tensor in zip(self.spec.inputs, inputs, strict=True):
            shape = tensor.array.shape[1:] if self._batched else tensor.array.shape
            if spec.buckets is not None:
                dim, own = spec.buckets.dim, shape[spec.buckets.dim]
                size = padded_size(spec.buckets, own)
                if size is None:
                    raise invalid(
                        "over_largest_bucket",
                        f"input {quoted(spec.name)}: dimension {dim + self._batched} is {own}, "
                        f"the largest bucket is {spec.buckets.sizes[-1]}",
                    )
                shape = (*shape[:dim], size, *shape[dim + 1 :])
            padded.append(shape)
        return padded


def _padded_bytes(
    inputs: Sequence[Tensor], own: Sequence[int], padded: Sequence[tuple[int, ...]], rows: int
) -> Iterator[int]:
    """Bytes of each input, ``own`` unpadded, as ``rows`` rows of its padded shape (without rows; an unbatched model has one)."""
    for tensor, size, shape in zip(inputs, own, padded, strict=True):
        element = LENGTH_BYTES if tensor.datatype is Datatype.BYTES else tensor.array.itemsize
        yield size + (rows * math.prod(shape) - tensor.array.size) * element
