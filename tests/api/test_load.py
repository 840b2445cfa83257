"""Files: several documents, files that cannot be read, notices."""

from __future__ import annotations

import json
import subprocess
import sys

from harness_api.batching import BatchPolicy
from harness_api.load import load_file, load_text
from harness_api.scheduling import Goal
from harness_api.yaml_source import BYTES_MAX

from tests.api.helpers_api import SHA, changed, load_document, profile_document, service_document, told

EXAMPLE = f"""\
apiVersion: serving.harness.dev/v1alpha1
kind: InferenceService
metadata: {{name: text-embeddings, namespace: search}}
spec:
  gatewayClassName: default
  models:
  - name: minilm
    version: "3"
    format: TorchExport
    storageUri: file:models/minilm
    sha256: {SHA}
    maxBatchSize: 64
    executionSizes: [1, 2, 4, 8, 16, 32, 64]
    inputs: [{{name: input_ids, datatype: INT64, shape: [-1], buckets: {{dim: 0, sizes: [16, 32, 64, 128], padValue: 0}}}}]
    outputs: [{{name: embedding, datatype: FP32, shape: [384]}}]
    objective: {{latencyMilliseconds: 100, onTimePermille: 990}}
    maxLatencyMilliseconds: 120000
    weight: 1
    priority: 0
    batching: {{policy: Deadline, maxQueueSize: 4096, maxQueueBytes: 268435456, queueTimeoutMilliseconds: 0, timeoutAction: Reject}}
    retryOnLoss: true
    deviceMemory: 2Gi
    workerGroups: [a100]
  workerGroups:
  - name: a100
    autoscaling: {{minReplicas: 1, maxReplicas: 8, behavior: {{scaleDown: {{stabilizationWindowSeconds: 300}}}}}}
    accelerator: {{resource: nvidia.com/gpu, product: NVIDIA-A100-SXM4-80GB, productLabel: nvidia.com/gpu.product}}
    runtime: {{kind: Harness}}
    template: {{metadata: {{labels: {{team: search}}}}, spec: {{containers: [{{name: runtime}}]}}}}
    rollout: {{maxSurge: 1, maxUnavailable: 0}}
    drain: {{gracePeriodSeconds: 60}}
  scheduling: {{policy: PricedFrontrun, goal: Latency}}
  limits: {{maxPendingRequests: 16384, maxPendingBytes: 1073741824, maxHoldSeconds: 120}}
"""


def test_example_of_the_specification():
    """kubernetes.md §1's example is valid as it stands there (local URI, one of the alternatives where it names several)."""
    result = load_text(EXAMPLE)
    assert result.faults == []
    (service,) = result.services
    model = service.spec.models[0]
    assert model.batching.policy is BatchPolicy.DEADLINE
    assert model.effective_max_weight == 1
    assert service.spec.worker_groups[0].initial_replicas == 1
    assert service.spec.effective_goal is Goal.LATENCY


def test_settings_without_effect_on_one_machine_are_told():
    """Every setting of the example that does nothing in harness run is a notice with its line; a cluster gets none."""
    told_paths = [(notice.path, notice.line) for notice in load_text(EXAMPLE).notices]
    assert told_paths == [
        ("spec.models[0].objective.onTimePermille", 16),
        ("spec.models[0].retryOnLoss", 21),
        ("spec.models[0].deviceMemory", 22),
        ("spec.workerGroups[0].autoscaling", 26),
        ("spec.workerGroups[0].accelerator", 27),
        ("spec.workerGroups[0].template", 29),
        ("spec.workerGroups[0].rollout", 30),
        ("spec.scheduling", 32),
    ]
    on_cluster = load_text(EXAMPLE.replace("file:models/minilm", "pvc://models/minilm"), local=False)
    assert (on_cluster.faults, on_cluster.notices) == ([], [])


def test_defaults_are_no_notices():
    """Only what the file says is told, never a default."""
    assert load_document(service_document()).notices == []


def test_weight_is_told_where_the_policy_does_not_weigh():
    """Only Deadline reads weights on one machine."""
    document = changed(service_document(), "spec.models.1.weight", 5)
    assert load_document(document).notices == []
    document["spec"]["models"][1]["batching"] = {"policy": "Immediate"}
    (notice,) = load_document(document).notices
    assert str(notice) == (
        "spec.models[1].weight: has no effect on one machine with policy Immediate: only Deadline weighs requests"
    )


def test_several_documents_and_their_faults():
    """Good documents are kept beside bad ones; faults name document and line; names are unique by kind and namespace."""
    bad = changed(service_document(), "metadata.name", "B")
    twin = service_document()
    other = changed(service_document(), "metadata.namespace", "else")
    result = load_document(service_document(), bad, profile_document(), twin, other)
    assert [service.metadata.namespace for service in result.services] == ["search", "else"]
    assert len(result.profiles) == 1
    assert [(fault.document, fault.line, fault.path) for fault in result.faults] == [
        (2, 3, "metadata.name"),
        (4, 7, "metadata.name"),
    ]


def test_latency_profile():
    """Measured points go before declared ones; their order and percentiles are checked."""
    document = profile_document()
    (profile,) = load_document(document).profiles
    assert [point.p50_microseconds for point in profile.points] == [6000, 13000]
    document["status"] = {"points": [{"size": 1, "p50Microseconds": 5000, "p99Microseconds": 7000, "samples": 9}]}
    (profile,) = load_document(document).profiles
    assert [point.p50_microseconds for point in profile.points] == [5000]
    document["status"] = {
        "points": [{"size": 2, "p50Microseconds": 5, "p99Microseconds": 4}, {"size": 1, "p50Microseconds": 1}]
    }
    assert told(load_document(document)) == [
        ("status.points[1].size", "1 does not follow 2: the list must rise strictly"),
        ("status.points[0].p99Microseconds", "4 is less than p50Microseconds 5"),
    ]
    del document["status"], document["spec"]["points"]
    assert told(load_document(document)) == [("spec.points", "required: neither spec nor status has points")]


def test_files_that_cannot_be_read_are_faults(tmp_path):
    """Missing, a folder, too large, not UTF-8, empty: one fault each, nothing raised."""
    large, binary, empty = tmp_path / "large.yaml", tmp_path / "binary.yaml", tmp_path / "empty.yaml"
    large.write_bytes(b"#" * (BYTES_MAX + 1))
    binary.write_bytes(b"a: 1\nb: \xff\n")
    empty.write_text("# nothing\n---\n")
    expected = {
        tmp_path / "missing.yaml": ("cannot be read: No such file or directory", None),
        tmp_path: ("cannot be read: Is a directory", None),
        large: ("is larger than 1048576 bytes", None),
        binary: ("is not a text in UTF-8", 2),
        empty: ("holds no document: expected InferenceService or LatencyProfile", None),
    }
    for path, want in expected.items():
        (fault,) = load_file(path).faults
        assert (fault.message, fault.line) == want
    assert load_file("nul\0").faults[0].message.startswith("cannot be read")


def test_json_and_byte_order_mark_are_read(tmp_path):
    """JSON is YAML, and editors on some systems write a byte order mark."""
    path = tmp_path / "service.json"
    path.write_text("\ufeff" + json.dumps(service_document(), indent=2), encoding="utf-8")
    assert load_file(path, trust_repository=False).faults == []


def test_faults_of_the_text_spoil_their_document():
    """A document with a key given twice is not used, however good the rest is."""
    result = load_text(EXAMPLE + "  gatewayClassName: other\n")
    assert result.services == []
    (fault,) = result.faults
    assert (str(fault), fault.line) == ("spec.gatewayClassName: is given twice (first on line 5)", 34)


def test_import_stays_light():
    """The API's types need neither torch, grpc, kubernetes nor numpy."""
    code = (
        "import sys, harness_api.load, harness_api.reference;"
        "print([m for m in ('torch', 'grpc', 'kubernetes', 'numpy', 'kopf') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
