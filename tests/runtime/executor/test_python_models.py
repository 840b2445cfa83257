"""What a model may return and raise, through the real process (protocol.md §4, §6; B003, B020)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from harness_runtime.ports import LoadError
from harness_runtime.tensors import Datatype, TensorSpec

from tests.runtime.executor.helpers import make_job, make_spec, python_model, running

pytestmark = pytest.mark.process

X = np.arange(12, dtype="<f4").reshape(3, 4)


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("return {'y': x * 2}", X * 2),
        ("return {'y': np.asfortranarray(x)}", X),
        ("return {'y': np.ascontiguousarray(x.T).T}", X),
        ("return {'y': np.broadcast_to(x[:, :1], x.shape)}", np.broadcast_to(X[:, :1], X.shape)),
        ("return {'y': x[:, ::-1]}", X[:, ::-1]),
        ("return {'y': np.repeat(x, 2, axis=0)[::2]}", X),
        ("return {'y': x.astype('>f4')}", X),
        ("return {'y': x, 'not declared': 3}", X),
    ],
)
async def test_any_memory_layout_comes_out_row_major(tmp_path, body, want):
    """B020: transposed, expanded, strided and big-endian answers are converted, never misread."""
    spec = python_model(tmp_path, body)
    async with running(spec) as rig:
        result, outputs = await rig.ask(make_job(spec, X[:1], X[1:]))
        assert result.error is None
        assert outputs["y"].tolist() == want.tolist()


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("return {'z': x}", "output 'y' is declared and the model did not return it; it returned: 'z'"),
        ("return {}", "it returned: none"),
        ("return x", "must return a dict of numpy arrays by output name, got ndarray"),
        ("return {'y': x.tolist()}", "output 'y': declared FP32, the model returned a list instead of a numpy array"),
        ("return {'y': x.astype('f8')}", "output 'y': declared FP32, the model returned FP64"),
        ("return {'y': x.astype('c8')}", "output 'y': declared FP32, the model returned complex64"),
        ("return {'y': x[:2]}", "output 'y': a batch of 4 rows was run, the model returned shape [2, 4]"),
        ("return {'y': np.concatenate([x, x])}", "a batch of 4 rows was run, the model returned shape [8, 4]"),
        ("return {'y': x.sum()}", "a batch of 4 rows was run, the model returned shape []"),
        ("return {'y': x[:, :3]}", "declared shape [4] behind the batch dimension, the model returned [3]"),
        ("return {'y': x[:, None]}", "declared shape [4] behind the batch dimension, the model returned [1, 4]"),
        ("raise ValueError('row 2 is negative')", "ValueError: row 2 is negative"),
        ("raise ValueError('long ' * 1000)", "ValueError: long long"),
        ("sys.exit('bye')", "SystemExit: bye"),
        ("assert False", "AssertionError"),
    ],
)
async def test_a_faulty_answer_is_an_error_of_that_batch_only(tmp_path, body, want):
    """The error says what was expected and what came, without a traceback; the process lives and its other model answers."""
    faulty, good = python_model(tmp_path, body), make_spec("good")
    async with running(faulty, good) as rig:
        pid = rig.executor.pid
        result, outputs = await rig.ask(make_job(faulty, X, size=4))
        assert want in result.error
        assert len(result.error) <= 500
        assert "Traceback" not in result.error
        assert not result.out_of_memory
        assert outputs == {}
        for _ in range(3):  # slots came back
            result, _ = await rig.ask(make_job(good, X))
            assert result.error is None
        assert rig.executor.pid == pid


async def test_lack_of_memory_is_told_apart(tmp_path):
    """RESOURCE_EXHAUSTED needs to know; the process frees what it can and lives on."""
    spec = python_model(tmp_path, "if x[0, 0] < 0: raise MemoryError()\nreturn {'y': x}")
    async with running(spec) as rig:
        result, _ = await rig.ask(make_job(spec, -1 - X))
        assert result.out_of_memory
        assert result.error == "MemoryError"
        result, _ = await rig.ask(make_job(spec, X))
        assert not result.out_of_memory
        assert result.error is None


async def test_an_answer_larger_than_the_slot_is_an_error(tmp_path):
    """Names the output, the need and the limit."""
    spec = python_model(tmp_path, "return {'y': np.zeros((len(x), 4096), 'f4')}", out_shape=(-1,))
    async with running(spec, slot_bytes_max=4096) as rig:
        result, _ = await rig.ask(make_job(spec, X[:1]))
        assert "the model's outputs do not fit" in result.error
        assert "'y' they need 16384 bytes, the limit is 4096" in result.error


async def test_strings_in_and_out(tmp_path):
    """BYTES elements of any length, empty ones too; str is encoded; something else is an error."""
    body = "return {'y': np.array([[str(len(e)) for e in row] for row in x])}"
    spec = python_model(tmp_path, body, datatype=Datatype.BYTES, shape=(2,))
    wrong = python_model(
        tmp_path,
        "return {'y': np.array([[1.5, None]], dtype=object)}",
        name="wrong",
        datatype=Datatype.BYTES,
        shape=(2,),
    )
    async with running(spec, wrong) as rig:
        x = np.array([[b"", b"a\x00b"], [b"\xff" * 300, b"x"]], dtype=object)
        result, outputs = await rig.ask(make_job(spec, x, size=3))
        assert result.error is None
        assert outputs["y"].tolist() == [[b"0", b"3"], [b"300", b"1"]]
        result, _ = await rig.ask(make_job(wrong, x[:1]))
        assert "elements of BYTES must be bytes or str, got float" in result.error


async def test_a_model_that_prints_disturbs_nobody(tmp_path, capfd):
    """Standard output of the server carries its events: a model's prints go to standard error."""
    spec = python_model(tmp_path, "print('hello from the model', flush=True)\nreturn {'y': x}")
    async with running(spec) as rig:
        result, _ = await rig.ask(make_job(spec, X))
        assert result.error is None
    out, err = capfd.readouterr()
    assert "hello" not in out
    assert "hello from the model" in err


async def test_python_models_are_refused_unless_allowed(tmp_path):
    """Their code runs in the pod: only when the runtime was started for it. BF16 has no numpy type: refused as well."""
    spec = python_model(tmp_path, "return {'y': x}")
    async with running(allow_python_models=False) as rig:
        with pytest.raises(LoadError, match="not allowed"):
            await rig.executor.load(spec)
    async with running() as rig:
        with pytest.raises(LoadError, match="tensor 'y' has datatype BF16"):
            await rig.executor.load(replace(spec, outputs=(TensorSpec("y", Datatype.BF16, (4,)),)))


async def test_the_model_is_given_its_configuration(tmp_path):
    """Plain values: name, version, tensors, sizes."""
    body = "c = self.config\nreturn {'y': np.full_like(x, c['max_batch_size'] + len(c['inputs']) + c['inputs'][0]['shape'][0])}"
    spec = python_model(tmp_path, body)
    async with running(spec) as rig:
        _, outputs = await rig.ask(make_job(spec, X[:1]))
        assert outputs["y"].tolist() == [[13.0] * 4]


async def test_an_empty_tensor_is_harmless(tmp_path):
    """B014: no elements in a row, no fault."""
    spec = python_model(tmp_path, "return {'y': x}", shape=(-1,))
    async with running(spec) as rig:
        result, outputs = await rig.ask(make_job(spec, np.zeros((2, 0), dtype="<f4")))
        assert result.error is None
        assert outputs["y"].shape == (2, 0)
