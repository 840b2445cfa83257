"""Documents to vary: kubernetes.md §1's example as plain values, and helpers that change one place."""

from __future__ import annotations

import copy
import json
from typing import Any

from harness_api.load import LoadResult, load_text

SHA = "0123456789abcdef" * 4


def service_document() -> dict[str, Any]:
    """The example of kubernetes.md §1 as ``harness run`` takes it, with a second, emulated model."""
    return {
        "apiVersion": "serving.harness.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": {"name": "text-embeddings", "namespace": "search"},
        "spec": {
            "models": [
                {
                    "name": "minilm",
                    "version": "3",
                    "format": "TorchExport",
                    "storageUri": "file:models/minilm",
                    "sha256": SHA,
                    "maxBatchSize": 64,
                    "executionSizes": [1, 2, 4, 8, 16, 32, 64],
                    "inputs": [
                        {
                            "name": "input_ids",
                            "datatype": "INT64",
                            "shape": [-1],
                            "buckets": {"dim": 0, "sizes": [16, 32, 64, 128], "padValue": 0},
                        }
                    ],
                    "outputs": [{"name": "embedding", "datatype": "FP32", "shape": [384]}],
                },
                {
                    "name": "emulated",
                    "format": "Profiled",
                    "maxBatchSize": 32,
                    "inputs": [{"name": "x", "datatype": "FP32", "shape": [4]}],
                    "outputs": [{"name": "y", "datatype": "FP32", "shape": [4]}],
                    "emulation": {"setupMicroseconds": 5000, "computeMicrosecondsPerRow": 1000},
                },
            ],
            "workerGroups": [{"name": "a100", "replicas": 2}],
        },
    }


def profile_document() -> dict[str, Any]:
    """A declared LatencyProfile."""
    return {
        "apiVersion": "serving.harness.dev/v1alpha1",
        "kind": "LatencyProfile",
        "metadata": {"name": "minilm-cpu"},
        "spec": {
            "modelDigest": SHA,
            "points": [{"size": 1, "p50Microseconds": 6000}, {"size": 8, "p50Microseconds": 13000, "samples": 50}],
        },
    }


def changed(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy in which the place ``a.b.0.c`` holds ``value``; ``...`` removes it."""
    result = copy.deepcopy(document)
    *parents, last = path.split(".")
    place: Any = result
    for part in parents:
        place = place[int(part)] if isinstance(place, list) else place[part]
    key: Any = int(last) if isinstance(place, list) else last
    if value is ...:
        del place[key]
    else:
        place[key] = value
    return result


def load_document(*documents: Any, local: bool = True, trust_repository: bool | None = False) -> LoadResult:
    """Load documents by way of text."""
    text = "\n---\n".join(json.dumps(document) for document in documents)
    return load_text(text, local=local, trust_repository=trust_repository)


def told(result: LoadResult) -> list[tuple[str, str]]:
    """Paths and messages of the faults."""
    return [(fault.path, fault.message) for fault in result.faults]
