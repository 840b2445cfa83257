"""harness profile: measuring through the executor, the picture, the file."""

from __future__ import annotations

import asyncio
import json
import os

import pytest
from harness_api.load import load_file
from harness_cli.errors import CliError
from harness_cli.profile.measure import measure_model, planned_points
from harness_cli.profile.picture import draw
from harness_cli.profile.resource import resource_name
from harness_core.profile import LatencyProfile, ProfilePoint
from harness_runtime.executor.settings import ExecutorSettings
from harness_runtime.model import Emulation, ModelFormat, ModelSpec
from harness_runtime.profiler import Budget
from harness_runtime.tensors import Datatype, TensorSpec

from tests.cli.documents import emulated_service


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
    assert caught.value.message.startswith("model 'm': there is no file")


SERVICE = "\n" + emulated_service(2000, 500)  # starts with an empty line: faults name lines of the file as it is


@pytest.mark.process
def test_the_command_writes_a_file_that_the_runtime_reads(run_harness, tmp_path):
    """YAML, PNG, a table, JSON on stdout; the objects load without a fault and name the model's digest."""
    service, written, picture = tmp_path / "s.yaml", tmp_path / "p.yaml", tmp_path / "p.png"
    service.write_text(SERVICE)
    code, out, err = run_harness(f"profile -f {service} --output {written} --picture {picture} --budget 1 --json")
    assert code == 0, err
    figures = json.loads(out)
    loaded = load_file(written)
    assert loaded.faults == []
    assert loaded.profiles[0].spec.model_digest == figures["digest"]
    assert [point.size for point in loaded.profiles[0].points] == [1, 4]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert figures["profiles"][""]["fit"]["beta_ns"] > 1_000_000
    assert "S(n)" in err
    threads = max(1, (os.cpu_count() or 1) // 2)  # as harness run would give each of the file's two replicas
    assert figures["threads"] == threads
    assert f", {threads} thread" in loaded.profiles[0].metadata.annotations["serving.harness.dev/measured"]


def test_a_file_that_is_there_is_not_replaced(run_harness, tmp_path):
    """Exit code 2 before anything is measured, for the profile and for the picture; --force replaces them."""
    service, written, picture = tmp_path / "s.yaml", tmp_path / "p.yaml", tmp_path / "p.png"
    service.write_text(SERVICE)
    written.write_text("mine")
    code, _, err = run_harness(f"profile -f {service} --output {written} --budget 1")
    assert code == 2
    assert "p.yaml is there already: --force replaces it" in "".join(err.splitlines())
    assert written.read_text() == "mine"
    picture.write_text("mine")
    code, _, err = run_harness(f"profile -f {service} --output {tmp_path}/new.yaml --picture {picture}")
    assert code == 2
    assert "p.png is there already" in "".join(err.splitlines())
    code, _, err = run_harness(f"profile -f {service} --output {written} --budget 1 --force")
    assert code == 0, err
    assert load_file(written).faults == []


@pytest.mark.parametrize(
    ("words", "want"),
    [
        ("profile -f {tmp}/none.yaml", "none.yaml"),
        ("profile -f {tmp}/s.yaml --model other", "'other' is not one of them"),
        ("profile -f {tmp}/s.yaml --group other", "'other' is not a worker group"),
        ("profile -f {tmp}/s.yaml --device tpu", "--device: 'tpu' is not one of auto, cpu, cuda"),
        ("profile {tmp}/s.yaml --picture {tmp}/y.foo", "y.foo: the name must end in .png, .svg or .pdf"),
        ("profile {tmp}/s.yaml --picture {tmp}/no/y.svg", "y.svg: there is no directory"),
        ("profile {tmp}/s.yaml --output {tmp}", "is a directory"),
        ("profile {tmp}/s.yaml --output {tmp}/x.svg --picture {tmp}/x.svg", "is the file of --output too"),
        ("profile {tmp}/s.yaml --output {tmp}/s.yaml --model other", "'other' is not one of them"),
        ("profile", "no file is given: harness profile FILE"),
        ("run", "no file is given: harness run FILE, or harness run -f FILE"),
        ("run {tmp}/s.yaml -f {tmp}/s.yaml", "one file is taken, 2 are given"),
        ("run {tmp}/s.yaml --device gpu", "--device: 'gpu' is not one of auto, cpu, cuda"),
        ("run {tmp}/s.yaml --port-base abc", "--port-base abc: is not a whole number"),
        ("run {tmp}/s.yaml --port-base 70000", "--port-base 70000: must be at most 65535"),
        ("run -f {tmp}/none.yaml", "none.yaml"),
        ("run -f {tmp}/s.yaml --replicas 100", "100 replicas in all, 1 to 64"),
        ("run -f {tmp}/s.yaml --port-base 65535", "need ports up to"),
        ("run -f {tmp}/bad.yaml", "bad.yaml:9: spec.models[0].maxBatchSize"),
        ("run -f {tmp}/foreign.yaml", "only the gateway can serve it"),
    ],
)
def test_mistakes_are_plain_lines(run_harness, tmp_path, words, want):
    """Field, limit and value; exit code 2; no traceback."""
    (tmp_path / "s.yaml").write_text(SERVICE)
    (tmp_path / "bad.yaml").write_text(SERVICE.replace("maxBatchSize: 4", "maxBatchSize: -4"))
    foreign = "workerGroups: [{name: g, runtime: {kind: OpenInference, address: 'localhost:9'}}]"
    external = SERVICE.replace("workerGroups: [{name: g, replicas: 2}]", foreign).replace(
        "format: Profiled", "format: External"
    )
    external = "".join(line for line in external.splitlines(keepends=True) if "emulation" not in line)
    (tmp_path / "foreign.yaml").write_text(external)
    code, _, err = run_harness(words.format(tmp=tmp_path))
    assert code == 2
    assert err.startswith("error: ")
    assert want in " ".join(err.split())
    assert "Traceback" not in err


def test_names_are_what_kubernetes_takes():
    """Buckets have characters that names may not have; names end before 64 characters."""
    assert resource_name("MiniLM_v2", "input_ids=64,mask=64", "") == "minilm-v2-input-ids-64-mask-64"
    assert len(resource_name("m" * 63, "b" * 200, "c")) <= 63


def test_the_picture_is_a_png(tmp_path):
    """Several buckets, with and without p99."""
    points = [ProfilePoint(size, 5_000_000 + size * 10**6, 6_000_000 + size * 10**6, 7) for size in (1, 2, 4, 8)]
    path = tmp_path / "p.png"
    draw(path, "m", {"": LatencyProfile.from_points(points), "X=8": LatencyProfile.linear(10**6, 10**5, 8)})
    assert path.read_bytes().startswith(b"\x89PNG")
