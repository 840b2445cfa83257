"""Warm-up and measurement through a real emulated executor, and its rules with a twin."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from harness_runtime.lanes import declared_buckets
from harness_runtime.model import Emulation
from harness_runtime.ports import JobResult, LoadError
from harness_runtime.profiler import Budget, measure, measured_sizes
from harness_runtime.tensors import Buckets, Datatype, TensorSpec

from tests.runtime.executor.helpers import make_spec, python_model, running


class Twin:
    """An executor that answers at once; ``refuse`` says why a batch fails, or None."""

    def __init__(self, refuse=lambda _job: None):
        self.jobs = []
        self.released = 0
        self._refuse = refuse

    async def run(self, job):
        self.jobs.append(job)
        return JobResult(0, 1000 * job.execution_size, error=self._refuse(job), release=self._release)

    def _release(self):
        self.released += 1


@pytest.mark.parametrize(
    ("max_batch_size", "execution_sizes", "want"),
    [(0, (), (1,)), (1, (), (1,)), (8, (), (1, 2, 4, 8)), (12, (), (1, 2, 4, 8, 12)), (32, (4, 32), (4, 32))],
)
def test_sizes_are_those_the_model_will_run_at(max_batch_size, execution_sizes, want):
    assert measured_sizes(make_spec(max_batch_size=max_batch_size, execution_sizes=execution_sizes)) == want


@pytest.mark.process
async def test_the_profile_is_that_of_the_accelerator():
    """l(b) = 2 + 1 b ms is found at every size, and the fit finds its two parts."""
    spec = make_spec(emulation=Emulation(setup_us=2000, compute_us_per_row=1000))
    async with running(spec) as rig:
        profile = (await measure(rig.executor, spec, declared_buckets(spec)))[""]
    assert [point.size for point in profile.points] == [1, 2, 4, 8]
    for point in profile.points:
        assert point.samples >= 3
        assert (2 + point.size) * 1e6 <= point.p50_ns <= (2 + point.size) * 1.5e6
        assert point.p99_ns >= point.p50_ns


async def test_every_size_of_every_bucket_runs_before_ready():
    """Warm-up once and at least three counted runs, each with the bucket's shape; all results are given back."""
    tokens = Buckets(dim=0, sizes=(16, 32))
    spec = replace(
        make_spec(max_batch_size=2),
        inputs=(TensorSpec("ids", Datatype.INT64, (-1,), tokens), TensorSpec("mask", Datatype.INT64, (-1,), tokens)),
    )
    twin = Twin()
    profiles = await measure(twin, spec, declared_buckets(spec))
    assert list(profiles) == ["ids=16,mask=16", "ids=32,mask=32"]
    for length in (16, 32):
        for size in (1, 2):
            shapes = [[each.shape for each in job.inputs] for job in twin.jobs]
            assert shapes.count([(size, length)] * 2) >= 4
    assert twin.released == len(twin.jobs)
    assert profiles["ids=16,mask=16"].latency_ns(2) == 2000


async def test_without_time_the_warm_up_is_the_one_sample():
    """A spent budget still runs every size once: ready means that it ran."""
    twin = Twin()
    profiles = await measure(twin, make_spec(), [], Budget(total_ns=0))
    assert [job.execution_size for job in twin.jobs] == [1, 2, 4, 8]
    assert [point.samples for point in profiles[""].points] == [1, 1, 1, 1]


async def test_a_model_that_refuses_zeros_is_tried_with_ones():
    """An empty mask may be a fault to a model; zero is the only value that every index allows."""
    twin = Twin(lambda job: "division by zero" if not job.inputs[0].parts[0].any() else None)
    profiles = await measure(twin, make_spec(max_batch_size=1), [])
    assert profiles[""].points[0].samples >= 3


async def test_a_failing_warm_up_names_size_and_bucket():
    """Ready means that a real inference passed after the load."""
    spec = replace(make_spec(), inputs=(TensorSpec("x", Datatype.FP32, (-1,), Buckets(0, (16,))),))
    twin = Twin(lambda job: "boom" if job.execution_size == 4 else None)
    with pytest.raises(LoadError, match=r"^the warm-up run of 4 rows in bucket x=16 failed: boom"):
        await measure(twin, spec, declared_buckets(spec))


@pytest.mark.process
async def test_a_model_lost_in_its_warm_up_is_a_load_error(tmp_path):
    """A run that ends the process is no profile."""
    spec = python_model(tmp_path, "os._exit(9)")
    async with running(spec) as rig:
        with pytest.raises(LoadError, match=r"could not be made: the executor process ended with status 9"):
            await measure(rig.executor, spec, [])


@pytest.mark.parametrize("datatype", list(Datatype))
async def test_inputs_exist_for_every_datatype(datatype):
    """Variable dimensions without buckets are measured at a small size; a model without a batch dimension at its own shape."""
    spec = make_spec(datatype=datatype, shape=(-1, 3), max_batch_size=0)
    twin = Twin()
    assert list(await measure(twin, spec, [])) == ["x=8"]
    assert {job.inputs[0].shape for job in twin.jobs} == {(8, 3)}
    assert isinstance(twin.jobs[0].inputs[0].parts[0], np.ndarray)
