"""Signature of a model: its inputs and outputs, without the batch dimension."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from harness_api.base import ApiModel, Broken, Options, ascending
from harness_api.fields import INT32_MAX, INT64_MAX, Dimension, TensorName


class Datatype(StrEnum):
    """Datatypes of the Open Inference Protocol v2."""

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


_PAD_RANGE: Final[dict[Datatype, tuple[int, int]]] = {
    Datatype.BOOL: (0, 1),
    **{Datatype(f"UINT{bits}"): (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
    **{Datatype(f"INT{bits}"): (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    Datatype.FP16: (-65504, 65504),
}


class Buckets(ApiModel):
    """Sizes to which a variable dimension is padded up, so that requests of many lengths share batches."""

    dim: Dimension
    """The padded dimension, counted from 0 without the batch dimension; its size in `shape` is -1."""
    sizes: Annotated[list[Annotated[int, Field(ge=1, le=INT32_MAX)]], Field(min_length=1, max_length=32)]
    """Sizes, rising; a request larger than the last is refused."""
    pad_value: Annotated[int, Field(ge=-INT64_MAX - 1, le=INT64_MAX)] = 0
    """Value written into the padding; it must not change the answer."""

    def rules(self, options: Options | None) -> Iterator[Broken]:
        """Sizes rise strictly."""
        del options
        yield from ascending(self.sizes, ("sizes",))


Shape = Annotated[list[Annotated[int, Field(ge=-1, le=INT32_MAX)]], Field(max_length=8)]


class _Tensor(ApiModel):
    name: TensorName
    """Name in requests."""
    datatype: Annotated[Datatype, Field(strict=False)]
    """Datatype in the protocol's words."""
    shape: Shape
    """Sizes without the batch dimension; -1 is variable."""

    def rules(self, options: Options | None) -> Iterator[Broken]:
        del options
        for index, size in enumerate(self.shape):
            if size == 0:
                yield ("shape", index), "0 is not a size: give -1 (variable) or at least 1"


class InputTensor(_Tensor):
    """An input of a model."""

    buckets: Buckets | None = None
    """Padding of one variable dimension. Without it only requests of equal shapes share a batch."""

    def rules(self, options: Options | None) -> Iterator[Broken]:
        """The padded dimension exists and is variable, the pad value fits the datatype."""
        yield from super().rules(options)
        buckets = self.buckets
        if buckets is None:
            return
        if buckets.dim >= len(self.shape):
            yield (
                ("buckets", "dim"),
                f"{buckets.dim} is outside of shape {self.shape} with {len(self.shape)} dimensions",
            )
        elif self.shape[buckets.dim] != -1:
            yield (
                ("buckets", "dim"),
                f"dimension {buckets.dim} of shape {self.shape} has the fixed size {self.shape[buckets.dim]}: only a variable one (-1) is padded",
            )
        if self.datatype is Datatype.BYTES:
            yield ("buckets",), "BYTES tensors cannot be padded"
        low, high = _PAD_RANGE.get(self.datatype, (buckets.pad_value, buckets.pad_value))
        if not low <= buckets.pad_value <= high:
            yield ("buckets", "padValue"), f"{buckets.pad_value} is outside of {self.datatype} ({low} to {high})"


class OutputTensor(_Tensor):
    """An output of a model."""

    trim_dims: Annotated[list[Dimension], Field(max_length=8)] = Field(default_factory=list)
    """Dimensions that carry the padded dimension of the inputs and are cut back to the request's own size."""

    def rules(self, options: Options | None) -> Iterator[Broken]:
        """Trimmed dimensions exist, are variable and are named once."""
        yield from super().rules(options)
        for index, dim in enumerate(self.trim_dims):
            place = ("trimDims", index)
            if dim >= len(self.shape):
                yield place, f"{dim} is outside of shape {self.shape} with {len(self.shape)} dimensions"
            elif self.shape[dim] != -1:
                yield (
                    place,
                    f"dimension {dim} of shape {self.shape} has the fixed size {self.shape[dim]}: only a variable one (-1) is trimmed",
                )
            if dim in self.trim_dims[:index]:
                yield place, f"{dim} is named twice"
