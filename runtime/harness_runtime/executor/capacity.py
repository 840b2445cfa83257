"""Whether a model's full batch fits into a slot, as far as its declaration says."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from harness_runtime.executor.memory import ALIGNMENT
from harness_runtime.ports import LoadError
from harness_runtime.tensors import Datatype, numpy_dtype

if TYPE_CHECKING:
    from harness_runtime.model import ModelSpec
    from harness_runtime.tensors import TensorSpec


def check_fits(spec: ModelSpec, slot_bytes_max: int) -> None:
    """Compare the largest batch with the slot. Tensors of unknown size (variable without buckets, BYTES) are checked batch by batch.

    Raises:
        LoadError: a full batch needs more than a slot holds.
    """
    for what, tensors in (("inputs", spec.inputs), ("outputs", spec.outputs)):
        need = sum(full_batch_bytes(tensor, spec.max_rows) for tensor in tensors)
        if need > slot_bytes_max:
            raise LoadError(
                f"the {what} of a full batch ({spec.max_rows} rows) take {need} bytes, an executor slot "
                f"holds {slot_bytes_max}: lower maxBatchSize or raise the slot's size"
            )


def full_batch_bytes(tensor: TensorSpec, rows: int) -> int:
    """Bytes of ``rows`` rows at the largest bucket, rounded up to the alignment; 0 where the declaration leaves it open."""
    shape = list(tensor.shape)
    if tensor.buckets is not None:
        shape[tensor.buckets.dim] = max(tensor.buckets.sizes)
    if tensor.datatype is Datatype.BYTES or any(dim < 0 for dim in shape):
        return 0
    size = rows * math.prod(shape) * numpy_dtype(tensor.datatype).itemsize
    return -(-size // ALIGNMENT) * ALIGNMENT
