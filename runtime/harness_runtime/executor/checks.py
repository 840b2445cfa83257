"""What a model returned, checked and written to the slot before anybody splits it (design.md §2.8, protocol.md §4).

A batch whose rows do not match would give one caller another caller's answer: every output must have exactly the executed rows.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from harness_runtime.executor.layout import Placed, encode_bytes
from harness_runtime.executor.memory import Cursor
from harness_runtime.executor.runners.base import ModelFaultError, Produced
from harness_runtime.tensors import Datatype, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from harness_runtime.model import ModelSpec
    from harness_runtime.tensors import TensorSpec


def write_outputs(
    region: npt.NDArray[np.uint8], spec: ModelSpec, produced: Sequence[Produced], size: int
) -> list[Placed]:
    """Check every declared output and write it row-major into the slot. Outputs that are not declared are left out.

    Raises:
        ModelFaultError: an output is missing, or its datatype, rows or shape are not what was declared.
        ValueError: larger than the slot.
    """
    by_name = {each.name: each for each in produced}
    for declared in spec.outputs:
        _check(declared, by_name, size if spec.max_batch_size else None)
    cursor = Cursor(region, "the model's outputs")
    return [_write(cursor, by_name[declared.name]) for declared in spec.outputs]


def _check(declared: TensorSpec, by_name: dict[str, Produced], rows: int | None) -> None:
    output = by_name.get(declared.name)
    if output is None:
        got = ", ".join(f"'{name}'" for name in by_name) or "none"
        raise ModelFaultError(
            f"output '{declared.name}' is declared and the model did not return it; it returned: {got}"
        )
    where = f"output '{declared.name}'"
    if output.datatype is not declared.datatype:
        raise ModelFaultError(f"{where}: declared {declared.datatype}, the model returned {output.type_name}")
    own = output.shape
    if rows is not None:
        if not output.shape or output.shape[0] != rows:
            raise ModelFaultError(
                f"{where}: a batch of {rows} rows was run, the model returned shape {list(output.shape)}"
            )
        own = output.shape[1:]
    fits = len(own) == len(declared.shape) and all(
        want in {-1, have} for want, have in zip(declared.shape, own, strict=True)
    )
    if not fits:
        batch = "" if rows is None else " behind the batch dimension"
        raise ModelFaultError(f"{where}: declared shape {list(declared.shape)}{batch}, the model returned {list(own)}")


def _write(cursor: Cursor, output: Produced) -> Placed:
    assert output.datatype is not None  # noqa: S101 - checked above
    if output.datatype is Datatype.BYTES:
        assert output.elements is not None  # noqa: S101 - runners give elements with BYTES
        payload = encode_bytes(output.elements)
        offset, place = cursor.take(len(payload), output.name)
        place[:] = np.frombuffer(payload, dtype=np.uint8)
        return Placed(output.name, output.datatype, output.shape, offset, len(payload))
    dtype = numpy_dtype(output.datatype)
    size = math.prod(output.shape) * dtype.itemsize
    offset, place = cursor.take(size, output.name)
    output.write(place.view(dtype).reshape(output.shape))
    return Placed(output.name, output.datatype, output.shape, offset, size)
