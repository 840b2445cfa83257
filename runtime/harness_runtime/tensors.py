"""Tensors as the runtime passes them on: named, typed, row-major little-endian numpy arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


class Datatype(StrEnum):
    """Datatypes of the Open Inference Protocol v2 (protocol.md §1)."""

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    BF16 = "BF16"
    FP32 = "FP32"
    FP64 = "FP64"
    BYTES = "BYTES"


_NUMPY: dict[Datatype, np.dtype[Any]] = {
    Datatype.BOOL: np.dtype("?"),
    Datatype.UINT8: np.dtype("u1"),
    Datatype.UINT16: np.dtype("<u2"),
    Datatype.UINT32: np.dtype("<u4"),
    Datatype.UINT64: np.dtype("<u8"),
    Datatype.INT8: np.dtype("i1"),
    Datatype.INT16: np.dtype("<i2"),
    Datatype.INT32: np.dtype("<i4"),
    Datatype.INT64: np.dtype("<i8"),
    Datatype.FP16: np.dtype("<f2"),
    # numpy has no bfloat16: the bits travel as uint16 and only torch gives them their meaning.
    Datatype.BF16: np.dtype("<u2"),
    Datatype.FP32: np.dtype("<f4"),
    Datatype.FP64: np.dtype("<f8"),
    # Elements are Python ``bytes``.
    Datatype.BYTES: np.dtype("O"),
}


def numpy_dtype(datatype: Datatype) -> np.dtype[Any]:
    """The numpy dtype that holds ``datatype`` (``object`` for BYTES, ``uint16`` bits for BF16)."""
    return _NUMPY[datatype]


@dataclass(frozen=True, slots=True)
class Buckets:
    """Sizes to which dimension ``dim`` (without the batch dimension) is padded up with ``pad_value``; ascending."""

    dim: int
    sizes: tuple[int, ...]
    pad_value: float = 0


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of a model. ``shape`` has no batch dimension; -1 is variable.

    ``trim_dims`` (outputs): dimensions that carry the padded dimension of the inputs and are cut back to the request's own
    size.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    buckets: Buckets | None = None
    trim_dims: tuple[int, ...] = ()


@dataclass(slots=True)
class Tensor:
    """One tensor of one request or answer; ``array.shape`` includes the rows on axis 0 for batched models."""

    name: str
    datatype: Datatype
    array: npt.NDArray[Any]
    parameters: dict[str, bool | int | float | str] = field(default_factory=dict)
