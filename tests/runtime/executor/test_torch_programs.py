"""torch.export archives and TorchScript in the executor, against the same model run alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from harness_runtime.executor.runners.faults import is_out_of_memory, say
from harness_runtime.model import ModelFormat
from harness_runtime.ports import LoadError
from harness_runtime.tensors import Datatype, TensorSpec, numpy_dtype

from tests.runtime.executor.helpers import make_job, make_spec, python_model, running

pytestmark = [pytest.mark.process, pytest.mark.torch]


def export(path, module, example, *, dynamic=True):
    """Write a torch.export archive with a dynamic batch dimension."""
    import torch

    shapes = ({0: torch.export.Dim("batch", min=1, max=64)},) if dynamic else None
    torch.export.save(torch.export.export(module.eval(), (example,), dynamic_shapes=shapes), path)


def network(torch):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4))


@pytest.mark.parametrize("format", [ModelFormat.TORCH_EXPORT, ModelFormat.TORCH_SCRIPT])
async def test_answers_are_those_of_the_model_alone(tmp_path, format):
    """Parity to 1e-6, also for members merged from several requests and with rows of padding."""
    import torch

    model = network(torch)
    path = tmp_path / "model.pt2"
    if format is ModelFormat.TORCH_EXPORT:
        export(path, model, torch.zeros(2, 4))
    else:
        torch.jit.trace(model, torch.zeros(2, 4)).save(str(path))
    spec = make_spec(format=format, path=path)
    x = np.random.default_rng(1).normal(size=(5, 4)).astype("<f4")
    with torch.inference_mode():
        alone = model(torch.from_numpy(x)).numpy()
    async with running(spec) as rig:
        assert rig.executor.device == "cpu"
        for size in (5, 8):
            result, outputs = await rig.ask(make_job(spec, x[:2], x[2:3], x[3:], size=size))
            assert result.error is None
            assert np.abs(outputs["y"] - alone).max() <= 1e-6


async def test_every_datatype_that_torch_has(tmp_path):
    """The same bits in and out, BF16 and FP16 included."""
    import torch

    class Echo(torch.nn.Module):
        def forward(self, x):
            return x.clone()

    specs = []
    names = [each for each in Datatype if each is not Datatype.BYTES]
    for datatype in names:
        from harness_runtime.executor.runners.torch_program import _TORCH

        path = tmp_path / f"{datatype}.pt2"
        export(path, Echo(), torch.zeros(2, 4, dtype=_TORCH[datatype]))
        specs.append(make_spec(str(datatype), datatype=datatype, format=ModelFormat.TORCH_EXPORT, path=path))
    async with running(*specs) as rig:
        for datatype, spec in zip(names, specs, strict=True):
            x = (np.arange(8).reshape(2, 4) % 2).astype(numpy_dtype(datatype))
            result, outputs = await rig.ask(make_job(spec, x, size=4))
            assert result.error is None
            assert outputs["y"].tolist() == x.tolist(), datatype


async def test_views_come_out_row_major(tmp_path):
    """B020, server side: a model that returns a transposed view and an expanded view; further outputs have no name and are left out."""
    import torch

    class Views(torch.nn.Module):
        def forward(self, x):
            return x.transpose(1, 2), x[:, :1, :1].expand(-1, 3, 4), x.sum()

    path = tmp_path / "model.pt2"
    export(path, Views(), torch.zeros(2, 2, 3))
    spec = replace(
        make_spec(format=ModelFormat.TORCH_EXPORT, path=path, shape=(2, 3)),
        outputs=(TensorSpec("t", Datatype.FP32, (3, 2)), TensorSpec("e", Datatype.FP32, (3, 4))),
    )
    x = np.arange(12, dtype="<f4").reshape(2, 2, 3)
    async with running(spec) as rig:
        result, outputs = await rig.ask(make_job(spec, x))
        assert result.error is None
        assert outputs["t"].tolist() == x.transpose(0, 2, 1).tolist()
        assert outputs["e"].tolist() == np.broadcast_to(x[:, :1, :1], (2, 3, 4)).tolist()


async def test_a_wrong_declaration_is_told_at_the_first_run(tmp_path):
    """Datatype and number of outputs are checked against what came."""
    import torch

    path = tmp_path / "model.pt2"
    export(path, network(torch), torch.zeros(2, 4))
    spec = make_spec("a", format=ModelFormat.TORCH_EXPORT, path=path, out_datatype=Datatype.FP64)
    two = make_spec("b", format=ModelFormat.TORCH_EXPORT, path=path)
    two = replace(two, outputs=(*two.outputs, TensorSpec("z", Datatype.FP32, (4,))))
    x = np.ones((1, 4), dtype="<f4")
    async with running(spec, two) as rig:
        result, _ = await rig.ask(make_job(spec, x))
        assert result.error == "output 'y': declared FP64, the model returned FP32"
        result, _ = await rig.ask(make_job(two, x))
        assert "output 'z' is declared" in result.error


async def test_an_unreadable_archive_is_a_load_error(tmp_path):
    """Whatever torch says of it, in one line; strings have no place in torch."""
    path = tmp_path / "model.pt2"
    path.write_bytes(b"not an archive")
    async with running() as rig:
        for each in (ModelFormat.TORCH_EXPORT, ModelFormat.TORCH_SCRIPT):
            with pytest.raises(LoadError, match=r"^\w+: .+"):
                await rig.executor.load(make_spec(format=each, path=path))
        with pytest.raises(LoadError, match="datatype BYTES, which a TorchExport model cannot have"):
            await rig.executor.load(make_spec(format=ModelFormat.TORCH_EXPORT, path=path, datatype=Datatype.BYTES))


async def test_a_device_that_is_not_there_is_a_load_error(tmp_path):
    """``--device cuda`` without one is an error, never the CPU in silence."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    path = tmp_path / "model.pt2"
    export(path, network(torch), torch.zeros(2, 4))
    async with running(device="cuda") as rig:
        with pytest.raises(LoadError, match="torch finds no CUDA device"):
            await rig.executor.load(make_spec(format=ModelFormat.TORCH_EXPORT, path=path))


async def test_lack_of_memory_in_torch_is_told_apart(tmp_path):
    """By type, and by words where torch raises a plain RuntimeError (the allocator of the CPU: a real one here)."""
    body = "import torch\nif x[0, 0] < 0: raise torch.OutOfMemoryError('CUDA out of memory.')\ntorch.empty(1 << 60)\nreturn {'y': x}"
    spec = python_model(tmp_path, body)
    async with running(spec) as rig:
        x = np.ones((1, 4), dtype="<f4")
        for sign in (-1, 1):
            result, _ = await rig.ask(make_job(spec, (sign * x).astype("<f4")))
            assert result.out_of_memory, result.error


def test_native_stacks_do_not_reach_callers():
    """One sentence of bounded length."""
    error = RuntimeError("index out of range\nException raised from foo at bar.cpp:12\nframe #0: …")
    assert say(error) == "RuntimeError: index out of range"
    assert not is_out_of_memory(error)


@pytest.mark.gpu
async def test_cuda_gives_the_answers_of_the_cpu(tmp_path):
    """Copies through pinned memory on a stream of our own. Skipped without a device."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    model = network(torch)
    path = tmp_path / "model.pt2"
    export(path, model, torch.zeros(2, 4))
    spec = make_spec(format=ModelFormat.TORCH_EXPORT, path=path)
    x = np.random.default_rng(1).normal(size=(5, 4)).astype("<f4")
    with torch.inference_mode():
        alone = model(torch.from_numpy(x)).numpy()
    async with running(spec, device="cuda") as rig:
        for size in (5, 8, 6):
            _, outputs = await rig.ask(make_job(spec, x, size=size))
            assert np.abs(outputs["y"] - alone).max() <= 1e-4
