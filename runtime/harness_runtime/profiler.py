"""Warm-up and measurement: runs a model at every execution size of every bucket before it is called ready.

One pass does both (issue 3): first runs are slow (lazy initialisation, compilation, memory pools), so they are not counted, and a
model that cannot run one of its own sizes is refused at load instead of failing its first callers. What is measured is l(b), the
executor's own time of a run, through the same hand-over that traffic uses.
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from harness_core.profile import LatencyProfile, ProfilePoint

from harness_runtime.lanes import VARIABLE, Bucket, bucket_name, declared_buckets
from harness_runtime.model import ModelFormat
from harness_runtime.ports import Job, JobInput, LoadError
from harness_runtime.tensors import Datatype, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from harness_runtime.model import ModelSpec
    from harness_runtime.ports import Runs

WARM_UP_NS = 5_000_000_000
"""Spent on a model that is loaded again, about: its callers wait meanwhile."""
VARIABLE_SIZE = 8
"""Size at which a variable dimension without buckets is measured: small, since nothing says what is usual."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much to measure. ``total_ns`` is shared evenly by what is left; every size gets its warm-up whatever it costs."""

    total_ns: int = 60_000_000_000
    warmup_runs: int = 1
    samples: int = 7
    """Counted runs of a size, if the time allows …"""
    samples_min: int = 3
    """… and at least so many, as long as the whole budget is not spent. After that the warm-up's own time is the one sample."""


async def measure(
    executor: Runs, spec: ModelSpec, buckets: Sequence[Bucket], budget: Budget | None = None
) -> dict[str, LatencyProfile]:
    """Profiles by bucket name; for a model without buckets (``buckets`` empty or one bucket "") there is one.

    Raises:
        LoadError: a run failed; names bucket and size.
    """
    budget = budget or Budget()
    chosen = list(buckets) or [fallback_bucket(spec)]
    sizes = measured_sizes(spec)
    deadline_ns = time.monotonic_ns() + budget.total_ns
    left = len(chosen) * len(sizes)
    profiles = {}
    for bucket in chosen:
        points = []
        for size in sizes:
            share_ns = max(0, deadline_ns - time.monotonic_ns()) // left
            points.append(await _measure_size(executor, spec, bucket, size, budget, share_ns))
            left -= 1
        profiles[bucket.name] = LatencyProfile.from_points(points)
    return profiles


async def warm_up(executor: Runs, spec: ModelSpec) -> None:
    """Run the largest size of every bucket once, uncounted; buckets beyond the first ``WARM_UP_NS`` are left to their callers.

    For a model that was measured before and is loaded again: what is slow once in a process is over then, at little cost.

    Raises:
        LoadError: a run failed; names bucket and size.
    """
    began_ns = time.monotonic_ns()
    size = measured_sizes(spec)[-1]
    for bucket in reversed(declared_buckets(spec) or [fallback_bucket(spec)]):
        if time.monotonic_ns() - began_ns > WARM_UP_NS:
            return
        fill, _ = await _first_run(executor, spec, bucket, size)
        for _ in range(_warmup_runs(spec) - 1):
            await _run(executor, spec, bucket, size, fill)


def _warmup_runs(spec: ModelSpec) -> int:
    """TorchScript optimises itself in its second run."""
    return 2 if spec.format is ModelFormat.TORCH_SCRIPT else 1


def measured_sizes(spec: ModelSpec) -> tuple[int, ...]:
    """The sizes at which the model will be run; where it may be any, powers of two and the largest."""
    if not spec.max_batch_size:
        return (1,)
    if spec.execution_sizes:
        return spec.execution_sizes
    powers = [
        1 << exponent for exponent in range(spec.max_batch_size.bit_length()) if 1 << exponent < spec.max_batch_size
    ]
    return (*powers, spec.max_batch_size)


def fallback_bucket(spec: ModelSpec) -> Bucket:
    """A bucket for a model that declares none: variable dimensions get their smallest bucket, or ``VARIABLE_SIZE``."""
    shapes = []
    for tensor in spec.inputs:
        shape = [VARIABLE_SIZE if dim == VARIABLE else dim for dim in tensor.shape]
        if tensor.buckets is not None:
            shape[tensor.buckets.dim] = tensor.buckets.sizes[0]
        shapes.append(tuple(shape))
    return Bucket(bucket_name(spec.inputs, shapes), tuple(shapes))


async def _measure_size(
    executor: Runs, spec: ModelSpec, bucket: Bucket, size: int, budget: Budget, share_ns: int
) -> ProfilePoint:
    began_ns = time.monotonic_ns()
    fill, first_ns = await _first_run(executor, spec, bucket, size)
    for _ in range(max(budget.warmup_runs, _warmup_runs(spec)) - 1):
        first_ns = await _run(executor, spec, bucket, size, fill)
    samples: list[int] = []
    while share_ns > 0 and len(samples) < budget.samples:
        if len(samples) >= budget.samples_min and time.monotonic_ns() - began_ns > share_ns:
            break
        samples.append(await _run(executor, spec, bucket, size, fill))
    samples = samples or [first_ns]
    # With so few samples the largest is the best there is for a 99th percentile.
    return ProfilePoint(size, round(statistics.median(samples)), max(samples), len(samples))


async def _first_run(executor: Runs, spec: ModelSpec, bucket: Bucket, size: int) -> tuple[int, int]:
    """Value of the inputs with which the model runs, and the time it took.

    Zeros first: always valid as an index. Ones where the model refuses zeros (an empty mask, a division).
    """
    try:
        return 0, await _run(executor, spec, bucket, size, 0)
    except LoadError as zeros:
        try:
            return 1, await _run(executor, spec, bucket, size, 1)
        except LoadError:
            raise zeros from None


async def _run(executor: Runs, spec: ModelSpec, bucket: Bucket, size: int, fill: int) -> int:
    inputs = [
        JobInput(tensor.name, tensor.datatype, array.shape, [array])
        for tensor, shape in zip(spec.inputs, bucket.shapes, strict=True)
        for array in [_constant(tensor.datatype, (size, *shape) if spec.max_batch_size else shape, fill)]
    ]
    where = f"the warm-up run of {size} rows" + (f" in bucket {bucket.name}" if bucket.name else "")
    try:
        result = await executor.run(Job(batch_id=0, digest=spec.digest, rows=size, execution_size=size, inputs=inputs))
    except (RuntimeError, ValueError) as error:
        raise LoadError(f"{where} could not be made: {error}") from error
    result.release()
    if result.error is not None:
        raise LoadError(f"{where} failed: {result.error}")
    return result.execution_ns


def _constant(datatype: Datatype, shape: tuple[int, ...], fill: int) -> npt.NDArray[Any]:
    if datatype is Datatype.BYTES:
        empty = np.empty(math.prod(shape), dtype=object)
        empty[:] = b"" if fill == 0 else b"1"
        return empty.reshape(shape)
    if datatype is Datatype.BF16:
        return np.full(shape, 0x3F80 if fill else 0, dtype=numpy_dtype(datatype))
    return np.full(shape, fill, dtype=numpy_dtype(datatype))
