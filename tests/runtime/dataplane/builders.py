"""Models, registries and a batcher that computes at once, for tests of the data plane and of the edges above it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from harness_core.outcome import Outcome
from harness_core.pod.settings import ModelLimits
from harness_runtime.dataplane import DataPlane
from harness_runtime.model import ModelEntry, ModelFormat, ModelSpec, ModelState
from harness_runtime.own_part import own_part
from harness_runtime.ports import InferRequest, Work, WorkResult
from harness_runtime.registry import Registry
from harness_runtime.tensors import Buckets, Datatype, Tensor, TensorSpec

MS = 1_000_000
ECHO_INPUTS = (TensorSpec("X", Datatype.FP32, (4,)), TensorSpec("TAG", Datatype.INT64, ()))
ECHO_OUTPUTS = (TensorSpec("Y", Datatype.FP32, (4,)), TensorSpec("TAG", Datatype.INT64, ()))
SIZES = Buckets(dim=0, sizes=(8, 16), pad_value=0)
SEQ_INPUTS = (TensorSpec("IDS", Datatype.INT64, (-1,), SIZES), TensorSpec("MASK", Datatype.INT64, (-1,), SIZES))
SEQ_OUTPUTS = (TensorSpec("TOKENS", Datatype.INT64, (-1,), trim_dims=(0,)), TensorSpec("SUM", Datatype.INT64, ()))


def make_spec(**changes: Any) -> ModelSpec:
    """The model ``echo``, max batch 8, objective 100 ms."""
    values: dict[str, Any] = {
        "name": "echo",
        "version": "1",
        "format": ModelFormat.PYTHON,
        "path": None,
        "max_batch_size": 8,
        "execution_sizes": (),
        "inputs": ECHO_INPUTS,
        "outputs": ECHO_OUTPUTS,
        "objective_ns": 100 * MS,
        "max_latency_ns": None,
        "weight": 1.0,
        "max_weight": 1.0,
        "priority": 0,
    } | changes
    return ModelSpec(**{"digest": f"digest-{values['name']}-{values['version']}", **values})


def make_entry(spec: ModelSpec, state: ModelState = ModelState.READY, **limits: Any) -> ModelEntry:
    # The data plane never looks at a profile.
    no_profile: Any = None
    bounds = ModelLimits(model=spec.digest, default_profile=no_profile, max_batch_rows=spec.max_rows, **limits)
    return ModelEntry(spec, bounds, state)


def make_registry(*entries: ModelEntry) -> Registry:
    registry = Registry()
    for entry in entries:
        registry.add(entry)
    return registry


def seq_spec(**changes: Any) -> ModelSpec:
    """A model with bucketed lengths 8 and 16 and per-token outputs."""
    return make_spec(**{"name": "seq", "inputs": SEQ_INPUTS, "outputs": SEQ_OUTPUTS} | changes)


@dataclass
class FakeBatcher:
    """Runs each request alone and at once, as an executor would: padded inputs in, its own part of the outputs out.

    ``end`` raises instead; ``outcome`` is that of every answer; ``hold`` keeps requests until they are cancelled.
    """

    works: list[Work] = field(default_factory=list)
    end: Exception | None = None
    outcome: Outcome = Outcome.COMPLETED
    hold: bool = False
    withdrawn: int = 0

    async def infer(self, work: Work) -> WorkResult:
        self.works.append(work)
        if self.end is not None:
            raise self.end
        if self.hold:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.withdrawn += 1
                raise
        declared = {spec.name: spec for spec in work.spec.outputs}
        outputs = [each for each in self._run(work) if each.name in declared]
        for each in outputs:
            each.array = own_part(declared[each.name], each.array, work)
        return WorkResult(outputs, self.outcome)

    def _run(self, work: Work) -> list[Tensor]:
        batched = work.spec.max_batch_size > 0
        inputs = {}
        for tensor, shape in zip(work.inputs, work.padded, strict=True):
            full = np.zeros((work.rows, *shape) if batched else shape, tensor.array.dtype)
            full[tuple(slice(size) for size in tensor.array.shape)] = tensor.array
            inputs[tensor.name] = full
        if work.spec.name == "seq":
            return [
                Tensor("TOKENS", Datatype.INT64, inputs["IDS"]),
                Tensor("SUM", Datatype.INT64, (inputs["IDS"] * inputs["MASK"]).sum(axis=1)),
            ]
        if work.spec.name == "echo":
            return [Tensor("Y", Datatype.FP32, inputs["X"] * 2), Tensor("TAG", Datatype.INT64, inputs["TAG"])]
        # Any other model answers with its inputs, in order, under its outputs' names.
        arrays = list(inputs.values())
        return [Tensor(spec.name, spec.datatype, array) for spec, array in zip(work.spec.outputs, arrays, strict=True)]


def make_plane(registry: Registry, batcher: FakeBatcher, **options: Any) -> DataPlane:
    return DataPlane(registry, batcher, time.monotonic_ns, version="test", **options)


def echo_request(rows: int = 1, **changes: Any) -> InferRequest:
    values: dict[str, Any] = {
        "model": "echo",
        "version": "",
        "id": "",
        "inputs": [
            Tensor("X", Datatype.FP32, np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)),
            Tensor("TAG", Datatype.INT64, np.arange(rows, dtype=np.int64)),
        ],
        "outputs": (),
        "parameters": {},
        "arrival_ns": 1_000 * MS,
        "deadline_ns": None,
    } | changes
    return InferRequest(**values)


def seq_request(rows: int, length: int, **changes: Any) -> InferRequest:
    ids = np.arange(1, rows * length + 1, dtype=np.int64).reshape(rows, length)
    inputs = [Tensor("IDS", Datatype.INT64, ids), Tensor("MASK", Datatype.INT64, np.ones_like(ids))]
    return echo_request(model="seq", inputs=inputs, **changes)
