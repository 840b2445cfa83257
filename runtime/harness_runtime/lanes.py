"""Buckets: the padded shapes that keep requests of one model apart, and their names (design.md §3, Lane)."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness_runtime.model import ModelSpec
    from harness_runtime.tensors import Buckets, TensorSpec

VARIABLE = -1


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket of a model: its name, and the padded shape of each input in the model's order, without rows."""

    name: str
    shapes: tuple[tuple[int, ...], ...]


def bucket_name(inputs: Sequence[TensorSpec], padded: Sequence[tuple[int, ...]]) -> str:
    """Canonical name of padded shapes (without rows, in the model's order): ``input_ids=64,attention_mask=64``.

    Only variable dimensions are named, several of one input as ``X=64x3``; a model without any has the one bucket "".
    """
    parts = []
    for spec, shape in zip(inputs, padded, strict=True):
        sizes = [str(size) for size, declared in zip(shape, spec.shape, strict=True) if declared == VARIABLE]
        if sizes:
            parts.append(f"{spec.name}={'x'.join(sizes)}")
    return ",".join(parts)


def padded_size(buckets: Buckets, size: int) -> int | None:
    """The smallest bucket that holds ``size``; None when the largest does not."""
    index = bisect_left(buckets.sizes, size)
    return buckets.sizes[index] if index < len(buckets.sizes) else None


def execution_size(sizes: Sequence[int], rows: int) -> int:
    """Rows that are run for ``rows``: the smallest of the ascending ``sizes`` that holds them; the same when any size may be run."""
    index = bisect_left(sizes, rows)
    return sizes[index] if index < len(sizes) else rows


def declared_buckets(spec: ModelSpec) -> list[Bucket]:
    """The buckets that a model's configuration names, smallest first: what can be warmed up and measured beforehand.

    Inputs that declare the same sizes are taken to grow together (token ids and their mask); a request may mix them all the
    same, in a bucket that is not listed here. Empty when an input has a variable dimension without buckets: its shapes are
    known only as they come.
    """
    for tensor in spec.inputs:
        fixed = None if tensor.buckets is None else tensor.buckets.dim
        if any(size == VARIABLE and dim != fixed for dim, size in enumerate(tensor.shape)):
            return []
    groups = list(dict.fromkeys(tensor.buckets.sizes for tensor in spec.inputs if tensor.buckets is not None))
    buckets = []
    for chosen in product(*groups):
        size_of = dict(zip(groups, chosen, strict=True))
        shapes = tuple(
            tensor.shape if tensor.buckets is None else _with(tensor.shape, tensor.buckets, size_of)
            for tensor in spec.inputs
        )
        buckets.append(Bucket(bucket_name(spec.inputs, shapes), shapes))
    return buckets


def _with(shape: tuple[int, ...], buckets: Buckets, size_of: dict[tuple[int, ...], int]) -> tuple[int, ...]:
    return (*shape[: buckets.dim], size_of[buckets.sizes], *shape[buckets.dim + 1 :])
