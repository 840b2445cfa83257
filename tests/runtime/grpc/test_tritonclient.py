"""tritonclient over gRPC, unchanged, against a real edge (issue 3, Must hold)."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness_runtime.tensors import Datatype, TensorSpec

from tests.runtime.dataplane.builders import FakeBatcher, make_entry, make_plane, make_registry, make_spec
from tests.runtime.grpc.running import RunningEdge

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        importlib.util.find_spec("tritonclient") is None,
        reason="tritonclient is not installed (dependency group test)",
    ),
]
SCRIPT = Path(__file__).with_name("tritonclient_script.py")


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """What the script saw, of the models echo and text."""
    text = make_spec(
        name="text",
        inputs=(TensorSpec("X", Datatype.BYTES, (2,)),),
        outputs=(TensorSpec("Y", Datatype.BYTES, (2,)),),
    )
    registry = make_registry(make_entry(make_spec(), execution_sizes=(1, 2, 4, 8)), make_entry(text))
    with RunningEdge(make_plane(registry, FakeBatcher())) as edge:
        command = [sys.executable, str(SCRIPT), edge.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_state_metadata_and_configuration(seen):
    """perf_analyzer and every Triton client start with these calls."""
    assert (seen["live"], seen["ready"], seen["models"], seen["version"]) == (True, True, [True, False], True)
    assert seen["server"]["name"] == "harness-runtime"
    assert seen["metadata"]["inputs"] == [
        {"name": "X", "datatype": "FP32", "shape": ["-1", "4"]},
        {"name": "TAG", "datatype": "INT64", "shape": ["-1"]},
    ]
    config = seen["config"]
    assert (config["name"], config["max_batch_size"]) == ("echo", 8)
    assert config["input"][0] == {"name": "X", "data_type": "TYPE_FP32", "dims": ["4"]}
    assert config["dynamic_batching"]["preferred_batch_size"] == [1, 2, 4, 8]


def test_inference_with_everything_a_client_can_say(seen):
    """Outputs in the order asked for, id and own parameters back, timeout and priority taken."""
    assert (seen["outputs"], seen["id"]) == (["TAG", "Y"], "r1")
    assert seen["parameters"] == {"k": {"string_param": "b"}, "n": {"int64_param": "3"}}
    assert seen["y"] == [[0, 2, 4, 6], [8, 10, 12, 14]]
    assert seen["tag"] == [0, 1]


def test_b020_a_clients_memory_layout_does_not_matter(seen):
    """B020: Fortran order and strides on the client's side give the numbers of the array."""
    assert seen["fortran"] == [[2, 4, 6, 8], [10, 12, 14, 16]]
    assert seen["strided"] == [[2, 4, 6, 8]]


def test_text_callbacks_and_asyncio(seen):
    """BYTES tensors, async_infer and the asyncio client."""
    assert seen["texts"] == [["one", "zwei"]]
    assert seen["callback"] == seen["asyncio"] == [[0, 2, 4, 6]]


def test_b023_errors_keep_their_codes(seen):
    """B023: the client sees NOT_FOUND and INVALID_ARGUMENT with our message."""
    assert seen["unknown"] == ["StatusCode.NOT_FOUND", "model 'nope' is not served here"]
    assert seen["rows"] == ["StatusCode.INVALID_ARGUMENT", "input 'X': 9 rows, the model's maxBatchSize is 8"]
    assert seen["sequence"][0] == "StatusCode.INVALID_ARGUMENT"
