"""harness profile: measuring through the executor, the picture, the file."""

from __future__ import annotations

import asyncio

import pytest
from harness_cli.errors import CliError
from harness_cli.profile.measure import measure_model, planned_points
from harness_cli.profile.picture import draw
from harness_core.profile import LatencyProfile, ProfilePoint
from harness_runtime.executor.settings import ExecutorSettings
from harness_runtime.model import Emulation, ModelFormat, ModelSpec
from harness_runtime.profiler import Budget
from harness_runtime.tensors import Datatype, TensorSpec


def make_spec(**changes) -> ModelSpec:
    """An emulated accelerator of 2 + 0.5·b ms."""
    tensors = (TensorSpec("X", Datatype.FP32, (4,)),), (TensorSpec("Y", Datatype.FP32, (4,)),)
    want = {
        "name": "m", "version": "1", "digest": "d" * 64, "format": ModelFormat.PROFILED, "path": None, "max_batch_size": 8,
        "execution_sizes": (1, 4, 8), "inputs": tensors[0], "outputs": tensors[1], "objective_ns": 10**8,
        "max_latency_ns": None, "weight": 1.0, "max_weight": 1.0, "priority": 0, "emulation": Emulation(2000, 500),
    }  # fmt: skip
    return ModelSpec(**(want | changes))


@pytest.mark.process
def test_measures_what_the_accelerator_takes():
    """Each execution size once, never faster than the emulated latency; every run is told."""
    told = []
    spec = make_spec()
    budget = Budget(total_ns=2 * 10**9)
    found = asyncio.run(
        measure_model(spec, ExecutorSettings(), budget, lambda points, size: told.append((points, size)))
    )
    points = found.profiles[""].points
    assert [point.size for point in points] == [1, 4, 8]
    assert all(point.p50_ns >= 2_000_000 + 500_000 * point.size for point in points)
    assert planned_points(spec) == 3
    assert {points for points, _ in told} == {1, 2, 3}


@pytest.mark.process
def test_a_model_that_cannot_be_loaded_is_one_line(tmp_path):
    """No traceback for a missing or refused artefact."""
    spec = make_spec(format=ModelFormat.PYTHON, path=tmp_path / "model.py", emulation=None)
    with pytest.raises(CliError, match="model 'm'") as caught:
        asyncio.run(measure_model(spec, ExecutorSettings(), Budget(), lambda *_: None))
    assert caught.value.exit_code == 1


def test_the_picture_is_a_png(tmp_path):
    """Several buckets, with and without p99."""
    points = [ProfilePoint(size, 5_000_000 + size * 10**6, 6_000_000 + size * 10**6, 7) for size in (1, 2, 4, 8)]
    path = tmp_path / "p.png"
    draw(path, "m", {"": LatencyProfile.from_points(points), "X=8": LatencyProfile.linear(10**6, 10**5, 8)})
    assert path.read_bytes().startswith(b"\x89PNG")
