"""The fixtures of scenarios.md as Python models, written into a model repository of the test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from pathlib import Path

ECHO_SOURCE = '''
import os
import time

import numpy as np


class Model:
    """Y = 2 * X, TAG unchanged; each forward's rows are noted in $HARNESS_TEST_FORWARDS."""

    def __init__(self, config):
        self.config = config

    def predict(self, inputs):
        log = os.environ.get("HARNESS_TEST_FORWARDS")
        if log:
            with open(log, "a", encoding="ascii") as file:
                file.write(f"{len(inputs['X'])}\\n")
        self.before(inputs)
        outputs = {"Y": 2 * inputs["X"], "TAG": inputs["TAG"]}
        return self.after(outputs)

    def before(self, inputs):
        BEFORE

    def after(self, outputs):
        AFTER
'''

SEQ_SOURCE = '''
import numpy as np


class Model:
    """Per-row masked mean of IDS, and per-token values."""

    def __init__(self, config):
        self.config = config

    def predict(self, inputs):
        mask = inputs["MASK"].astype(np.float32)
        ids = inputs["IDS"].astype(np.float32)
        mean = (ids * mask).sum(axis=1) / np.maximum(mask.sum(axis=1), 1)
        return {"MEAN": mean.astype(np.float32)[:, None], "TOKENS": ids * mask}
'''

ECHO_SIGNATURE = {
    "inputs": [
        {"name": "X", "datatype": "FP32", "shape": [4]},
        {"name": "TAG", "datatype": "INT64", "shape": [1]},
    ],
    "outputs": [
        {"name": "Y", "datatype": "FP32", "shape": [4]},
        {"name": "TAG", "datatype": "INT64", "shape": [1]},
    ],
}

SEQ_SIGNATURE = {
    "inputs": [
        {"name": "IDS", "datatype": "INT64", "shape": [-1]},
        {"name": "MASK", "datatype": "INT64", "shape": [-1]},
    ],
    "outputs": [
        {"name": "MEAN", "datatype": "FP32", "shape": [1]},
        {"name": "TOKENS", "datatype": "FP32", "shape": [-1]},
    ],
}


def echo_source(before: str = "pass", after: str = "return outputs") -> str:
    """Source of an echo model with a body run before and after the forward."""
    return ECHO_SOURCE.replace("BEFORE", before.replace("\n", "\n        ")).replace(
        "AFTER", after.replace("\n", "\n        ")
    )


def write_model(repository: Path, name: str, source: str, version: str = "1") -> None:
    """Put one Python model into the repository."""
    folder = repository / name / version
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(source, encoding="utf-8")


def model(name: str, repository: Path, **fields: Any) -> dict[str, Any]:
    """One entry of ``spec.models``: Python, batches of 8, echo's signature unless told otherwise."""
    entry: dict[str, Any] = {
        "name": name,
        "format": "Python",
        "storageUri": f"file://{repository}/{name}",
        "maxBatchSize": 8,
        "objective": {"latencyMilliseconds": 5000},
        **ECHO_SIGNATURE,
    }
    entry.update(fields)
    return entry


def emulated(name: str, setup_us: int, per_row_us: int, max_batch: int = 32, **fields: Any) -> dict[str, Any]:
    """One entry of ``spec.models``: an emulated accelerator with l(b) = setup + b * per_row."""
    entry: dict[str, Any] = {
        "name": name,
        "format": "Profiled",
        "maxBatchSize": max_batch,
        "objective": {"latencyMilliseconds": 50},
        "inputs": [{"name": "X", "datatype": "FP32", "shape": [4]}],
        "outputs": [{"name": "Y", "datatype": "FP32", "shape": [4]}],
        "emulation": {"setupMicroseconds": setup_us, "computeMicrosecondsPerRow": per_row_us},
    }
    entry.update(fields)
    return entry


def write_service(folder: Path, *models: dict[str, Any], **spec: Any) -> Path:
    """Write an InferenceService of these models and return its file."""
    service = {
        "apiVersion": "serving.harness.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "scenario"},
        "spec": {"models": list(models), "workerGroups": [{"name": "cpu", "replicas": 1}], **spec},
    }
    path = folder / "service.yaml"
    path.write_text(yaml.safe_dump(service, sort_keys=False), encoding="utf-8")
    return path
