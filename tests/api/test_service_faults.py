"""What is refused, where, and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.helpers_api import SHA, changed, load_document, service_document, told

M0, M1, G0 = "spec.models.0", "spec.models.1", "spec.workerGroups.0"
LABEL = "must consist of lower-case letters, digits and '-', and start and end with a letter or digit (RFC 1123 label)"
QUANTITY = "must be a Kubernetes quantity of bytes such as 512Mi, 2Gi or 2G"

FIELDS: list[tuple[str, Any, str, str]] = [
    # place to change, value, path of the fault, message
    ("apiVersion", ..., "apiVersion", "required: serving.harness.dev/v1alpha1"),
    ("apiVersion", "v1", "apiVersion", "must be serving.harness.dev/v1alpha1, got the text 'v1'"),
    ("kind", ..., "kind", "required: InferenceService or LatencyProfile"),
    ("kind", "Deployment", "kind", "must be InferenceService or LatencyProfile, got the text 'Deployment'"),
    ("metadata", ..., "metadata", "required"),
    ("metadata.name", ..., "metadata.name", "required"),
    ("metadata.name", "Text", "metadata.name", f"'Text' {LABEL}"),
    ("metadata.name", "-a", "metadata.name", f"'-a' {LABEL}"),
    ("metadata.name", "a.b", "metadata.name", f"'a.b' {LABEL}"),
    ("metadata.name", "", "metadata.name", "must not be empty"),
    ("metadata.name", "a" * 64, "metadata.name", "has 64 characters, at most 63 allowed"),
    ("metadata.name", 5, "metadata.name", 'must be a text, got the integer 5: write it in quotes, "5"'),
    ("metadata.labels", {"a/b": 1}, 'metadata.labels["a/b"]', 'must be a text, got the integer 1: write it in quotes, "1"'),
    ("spec", [], "spec", "must be a mapping, got a list"),
    ("spec.models", [], "spec.models", "has 0 entries, at least 1 needed"),
    ("spec.models", {}, "spec.models", "must be a list, got a mapping"),
    ("spec.models", None, "spec.models", "must be a list, got nothing (null)"),
    ("spec.model", [], "spec.model", "unknown field 'model' (did you mean models?)"),
    ("spec.wibble", 1, "spec.wibble", "unknown field 'wibble'"),
    ("spec.gatewayClassName", "A", "spec.gatewayClassName", f"'A' {LABEL}"),
    (f"{M1}.maxBatchsize", 3, "spec.models[1].maxBatchsize", "unknown field 'maxBatchsize' (did you mean maxBatchSize?)"),
    (f"{M1}.max_batch_size", 3, "spec.models[1].max_batch_size", "unknown field 'max_batch_size' (did you mean maxBatchSize?)"),
    (f"{M1}.maxQueueSize", 3, "spec.models[1].maxQueueSize", "unknown field 'maxQueueSize' (it belongs under batching)"),
    (f"{M1}.name", "a/b", "spec.models[1].name", "'a/b' must consist of letters, digits, '.', '_' and '-', and start and end with a letter or digit"),
    (f"{M1}.name", "..", "spec.models[1].name", "'..' must consist of letters, digits, '.', '_' and '-', and start and end with a letter or digit"),
    (f"{M1}.name", "minilm", "spec.models[1].name", "'minilm' is used before, in models[0]"),
    (f"{M0}.version", 3, "spec.models[0].version", 'must be a text, got the integer 3: write it in quotes, "3"'),
    (f"{M0}.version", "v3", "spec.models[0].version", "'v3' is not a version: give a whole number from 1 up as text, such as \"3\""),
    (f"{M0}.version", "../3", "spec.models[0].version", "'../3' is not a version: give a whole number from 1 up as text, such as \"3\""),
    (f"{M0}.format", "torchexport", "spec.models[0].format", "must be one of TorchExport, TorchScript, Python, Profiled, External, got the text 'torchexport' (did you mean TorchExport?)"),
    (f"{M0}.maxBatchSize", ..., "spec.models[0].maxBatchSize", "required"),
    (f"{M1}.maxBatchSize", "3", "spec.models[1].maxBatchSize", "must be an integer, got the text '3'"),
    (f"{M1}.maxBatchSize", 1.0, "spec.models[1].maxBatchSize", "must be an integer, got the number 1.0"),
    (f"{M1}.maxBatchSize", True, "spec.models[1].maxBatchSize", "must be an integer, got true"),
    (f"{M1}.maxBatchSize", -1, "spec.models[1].maxBatchSize", "-1 is less than the minimum 0"),
    (f"{M1}.maxBatchSize", 65537, "spec.models[1].maxBatchSize", "65537 is more than the maximum 65536"),
    (f"{M1}.maxBatchSize", None, "spec.models[1].maxBatchSize", "must be an integer, got nothing (null)"),
    (f"{M1}.retryOnLoss", "yes", "spec.models[1].retryOnLoss", "must be true or false, got the text 'yes'"),
    (f"{M1}.retryOnLoss", 1, "spec.models[1].retryOnLoss", "must be true or false, got the integer 1"),
    (f"{M1}.weight", 0, "spec.models[1].weight", "0 is less than the minimum 1"),
    (f"{M1}.weight", 1000001, "spec.models[1].weight", "1000001 is more than the maximum 1000000"),
    (f"{M1}.priority", 9, "spec.models[1].priority", "9 is more than the maximum 8"),
    (f"{M1}.deviceMemory", "", "spec.models[1].deviceMemory", "must not be empty"),
    (f"{M1}.deviceMemory", "10 GB", "spec.models[1].deviceMemory", f"'10 GB' {QUANTITY}"),
    (f"{M1}.deviceMemory", "1,5", "spec.models[1].deviceMemory", f"'1,5' {QUANTITY}"),
    (f"{M1}.deviceMemory", "0Gi", "spec.models[1].deviceMemory", "'0Gi' is out of range: 1 byte to 9223372036854775807 bytes"),
    (f"{M0}.sha256", SHA[:-1], "spec.models[0].sha256", f"'{SHA[:59]}…' must be a sha256 of 64 lower-case hexadecimal digits"),
    (f"{M0}.sha256", SHA.upper(), "spec.models[0].sha256", f"'{SHA.upper()[:59]}…' must be a sha256 of 64 lower-case hexadecimal digits"),
    (f"{M1}.objective", {"latencyMilliseconds": 0}, "spec.models[1].objective.latencyMilliseconds", "0 is less than the minimum 1"),
    (f"{M1}.batching", {"policy": "deadline"}, "spec.models[1].batching.policy", "must be one of Deadline, MaxDelay, Immediate, Static, got the text 'deadline' (did you mean Deadline?)"),
    (f"{M1}.inputs.0.shape", [2.0], "spec.models[1].inputs[0].shape[0]", "must be an integer, got the number 2.0"),
    (f"{M1}.inputs.0.datatype", "FLOAT32", "spec.models[1].inputs[0].datatype", "must be one of BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, BF16, FP32, FP64, BYTES, got the text 'FLOAT32'"),
    (f"{M1}.inputs.0.shape", [1] * 9, "spec.models[1].inputs[0].shape", "has 9 entries, at most 8 allowed"),
    (f"{G0}.replicas", 1001, "spec.workerGroups[0].replicas", "1001 is more than the maximum 1000"),
    (f"{G0}.template", {"containers": []}, "spec.workerGroups[0].template.containers", "unknown field 'containers'"),
    (f"{G0}.accelerator", {"resource": "nvidia gpu"}, "spec.workerGroups[0].accelerator.resource", "'nvidia gpu' must be a qualified name such as nvidia.com/gpu"),
    ("spec.limits", {"maxHoldSeconds": 3601}, "spec.limits.maxHoldSeconds", "3601 is more than the maximum 3600"),
]  # fmt: skip

RULES: list[tuple[str, Any, str, str]] = [
    (f"{M0}.storageUri", ..., "spec.models[0].storageUri", "required for format TorchExport"),
    (f"{M0}.storageUri", "models/minilm", "spec.models[0].storageUri", "'models/minilm' has no scheme: write file:models/minilm for a folder"),
    (f"{M0}.storageUri", "ftp://x/y", "spec.models[0].storageUri", "scheme 'ftp' is not known: use file locally, or one of pvc, https, s3, gs, hf on a cluster"),
    (f"{M0}.storageUri", "pvc://models/minilm", "spec.models[0].storageUri", "pvc: is read on a cluster only; on one machine this release reads file: only"),
    (f"{M0}.storageUri", "file://models/minilm", "spec.models[0].storageUri", "'file://models/minilm' names the host 'models': write file:relative/folder or file:///absolute/folder"),
    (f"{M0}.storageUri", "file:", "spec.models[0].storageUri", "'file:' names no folder"),
    (f"{M0}.storageUri", "file:a?b", "spec.models[0].storageUri", "'file:a?b' has a query or fragment: write '?' as %3F and '#' as %23"),
    (f"{M0}.sha256", ..., "spec.models[0].sha256", "required for format TorchExport, since loading a model can run code; without it the runtime must be started with --trust-repository"),
    (f"{M1}.storageUri", "file:x", "spec.models[1].storageUri", "does not apply to format Profiled, which has no artefact"),
    (f"{M1}.sha256", SHA, "spec.models[1].sha256", "does not apply to format Profiled, which has no artefact"),
    (f"{M1}.emulation", ..., "spec.models[1].emulation", "required for format Profiled"),
    (f"{M0}.emulation", {"setupMicroseconds": 1}, "spec.models[0].emulation", "applies to format Profiled only, not to TorchExport"),
    (f"{M1}.emulation", {}, "spec.models[1].emulation", "needs setupMicroseconds and computeMicrosecondsPerRow, or points"),
    (f"{M1}.emulation", {"setupMicroseconds": 0}, "spec.models[1].emulation", "setupMicroseconds and computeMicrosecondsPerRow are both 0: a batch must take some time"),
    (f"{M1}.emulation", {"setupMicroseconds": 1, "points": [{"batchSize": 1, "microseconds": 1}]}, "spec.models[1].emulation.points", "exclude setupMicroseconds and computeMicrosecondsPerRow: give one form"),
    (f"{M1}.emulation", {"points": [{"batchSize": 4, "microseconds": 1}, {"batchSize": 4, "microseconds": 2}]}, "spec.models[1].emulation.points[1].batchSize", "4 does not follow 4: the list must rise strictly"),
    (f"{M0}.executionSizes", [1, 2, 4, 128], "spec.models[0].executionSizes[3]", "128 is larger than maxBatchSize 64"),
    (f"{M0}.executionSizes", [1, 4, 2, 64], "spec.models[0].executionSizes[2]", "2 does not follow 4: the list must rise strictly"),
    (f"{M0}.executionSizes", [1, 32], "spec.models[0].executionSizes[1]", "the last size 32 must equal maxBatchSize 64: a larger batch could not run"),
    (f"{M0}.maxBatchSize", 0, "spec.models[0].executionSizes", "does not apply with maxBatchSize 0 (the model has no batch dimension)"),
    (f"{M0}.inputs", ..., "spec.models[0].inputs", "required for format TorchExport (this release does not read config.pbtxt)"),
    (f"{M1}.outputs", ..., "spec.models[1].outputs", "required for format Profiled (this release does not read config.pbtxt)"),
    (f"{M1}.inputs", [{"name": "x", "datatype": "FP32", "shape": [4]}] * 2, "spec.models[1].inputs[1].name", "'x' is used before, in inputs[0]"),
    (f"{M1}.inputs.0.shape", [0], "spec.models[1].inputs[0].shape[0]", "0 is not a size: give -1 (variable) or at least 1"),
    (f"{M1}.inputs.0.datatype", "BYTES", "spec.models[1].inputs[0].datatype", "BYTES tensors are for Python models only, not for Profiled"),
    (f"{M0}.inputs.0.buckets.dim", 1, "spec.models[0].inputs[0].buckets.dim", "1 is outside of shape [-1] with 1 dimensions"),
    (f"{M0}.inputs.0.shape", [128], "spec.models[0].inputs[0].buckets.dim", "dimension 0 of shape [128] has the fixed size 128: only a variable one (-1) is padded"),
    (f"{M0}.inputs.0.buckets.sizes", [32, 16], "spec.models[0].inputs[0].buckets.sizes[1]", "16 does not follow 32: the list must rise strictly"),
    (f"{M0}.inputs.0", {"name": "i", "datatype": "UINT8", "shape": [-1], "buckets": {"dim": 0, "sizes": [4], "padValue": 256}}, "spec.models[0].inputs[0].buckets.padValue", "256 is outside of UINT8 (0 to 255)"),
    (f"{M0}.outputs.0.trimDims", [0], "spec.models[0].outputs[0].trimDims[0]", "dimension 0 of shape [384] has the fixed size 384: only a variable one (-1) is trimmed"),
    (f"{M0}.outputs.0.trimDims", [2], "spec.models[0].outputs[0].trimDims[0]", "2 is outside of shape [384] with 1 dimensions"),
    (f"{M1}.outputs.0", {"name": "y", "datatype": "FP32", "shape": [-1], "trimDims": [0]}, "spec.models[1].outputs[0].trimDims", "does not apply: no input has buckets, so nothing is padded"),
    (f"{M1}.batching", {"maxQueueDelayMicroseconds": 5}, "spec.models[1].batching.maxQueueDelayMicroseconds", "applies to policy MaxDelay only, not to Deadline"),
    (f"{M1}.batching", {"timeoutAction": "Delay"}, "spec.models[1].batching.timeoutAction", "Delay needs queueTimeoutMilliseconds of at least 1"),
    (f"{M1}.maxWeight", 0, "spec.models[1].maxWeight", "0 is less than the minimum 1"),
    (f"{M1}.maxLatencyMilliseconds", 99, "spec.models[1].maxLatencyMilliseconds", "99 is less than objective.latencyMilliseconds 100"),
    (f"{M1}.objective", {"latencyMilliseconds": 120001}, "spec.models[1].objective.latencyMilliseconds", "120001 is more than limits.maxHoldSeconds 120 allows"),
    (f"{M1}.workerGroups", ["h100"], "spec.models[1].workerGroups[0]", "'h100' is not a worker group of this service (there are: a100)"),
    (f"{M1}.workerGroups", ["a100", "a100"], "spec.models[1].workerGroups[1]", "'a100' is used before, in workerGroups[0]"),
    ("spec.workerGroups", ..., "spec.workerGroups", "required: at least one group"),
    ("spec.workerGroups", [], "spec.workerGroups", "required: at least one group"),
    ("spec.poolRef", {"name": "shared"}, "spec.poolRef", "is reserved and not served in this release: describe the pods in workerGroups"),
    (f"{G0}.autoscaling", {"maxReplicas": 3}, "spec.workerGroups[0].replicas", "excludes autoscaling: give one of them"),
    ("spec.workerGroups.0", {"name": "a", "autoscaling": {"minReplicas": 4, "maxReplicas": 3}}, "spec.workerGroups[0].autoscaling.minReplicas", "4 is greater than maxReplicas 3"),
    (f"{G0}.rollout", {"maxSurge": 0}, "spec.workerGroups[0].rollout", "maxSurge and maxUnavailable are both 0: no pod could be replaced"),
    (f"{G0}.runtime", {"image": "x"}, "spec.workerGroups[0].runtime.image", "applies to kind OpenInference only, not to Harness"),
    (f"{G0}.accelerator", {"resource": "amd.com/gpu", "product": "MI300"}, "spec.workerGroups[0].accelerator.productLabel", "required with product for resource amd.com/gpu"),
    (f"{G0}.accelerator", {"resource": "amd.com/gpu", "productLabel": "a/b"}, "spec.workerGroups[0].accelerator.productLabel", "applies with product only"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "value", "path", "message"), FIELDS + RULES)
def test_each_fault_is_told_alone_with_its_place_and_sentence(place, value, path, message):
    """One thing wrong: exactly one fault, at that field, in these words; and nothing is served."""
    result = load_document(changed(service_document(), place, value))
    assert told(result) == [(path, message)]
    assert result.services == []
    assert result.faults[0].document == 1
    assert result.faults[0].line is not None


def test_the_base_document_is_sound():
    """The document that the tables vary has no fault of its own, locally and, with a cluster's URI, on a cluster."""
    assert told(load_document(service_document())) == []
    on_cluster = changed(service_document(), "spec.models.0.storageUri", "pvc://models/minilm")
    assert told(load_document(on_cluster, local=False)) == []


def test_file_uri_and_address_are_local_only():
    """What only one machine can reach is refused for a cluster."""
    document = changed(
        service_document(), "spec.workerGroups.0.runtime", {"kind": "OpenInference", "address": "h:8001"}
    )
    document["spec"]["models"] = [{"name": "m", "format": "External", "maxBatchSize": 4}]
    assert told(load_document(document)) == []
    assert told(load_document(document, local=False)) == [
        ("spec.workerGroups[0].runtime.address", "applies in harness run only; on a cluster use serviceRef")
    ]
    assert told(load_document(service_document(), local=False)) == [
        (
            "spec.models[0].storageUri",
            "file: is read by harness run only; on a cluster use one of pvc, https, s3, gs, hf",
        )
    ]


@pytest.mark.parametrize("trust", [True, None])
def test_checksum_is_optional_with_trust_or_where_it_is_not_known(trust):
    """With trust_repository the checksum may be missing; None leaves the question to whoever loads the model."""
    document = changed(service_document(), "spec.models.0.sha256", ...)
    assert told(load_document(document, trust_repository=trust)) == []


@pytest.mark.parametrize(
    ("runtime", "faults"),
    [
        ({"kind": "OpenInference"}, [("", "kind OpenInference needs one of serviceRef, image and address")]),
        (
            {"kind": "OpenInference", "image": "x", "address": "h:1"},
            [(".address", "excludes image: give exactly one of serviceRef, image and address")],
        ),
        ({"kind": "OpenInference", "address": "h:0"}, [(".address", "'h:0' has no port between 1 and 65535")]),
        ({"kind": "OpenInference", "address": "h"}, [(".address", "'h' must be host:port, such as 127.0.0.1:8001")]),
        ({"kind": "OpenInference", "address": "h:1", "args": ["a"]}, [(".args", "applies with image only")]),
        ({"kind": "OpenInference", "address": "[::1]:8001"}, []),
        ({"kind": "OpenInference", "image": "x", "args": ["--a"], "grpcPort": 9000}, []),
        ({"kind": "OpenInference", "serviceRef": {"name": "triton", "port": 8001}}, []),
    ],
)
def test_open_inference_runtime_has_one_way_to_its_server(runtime, faults):
    """Exactly one of serviceRef, image and address, and only what that way uses."""
    document = changed(service_document(), "spec.workerGroups.0.runtime", runtime)
    document["spec"]["models"] = [{"name": "m", "version": "v1.2", "format": "External", "maxBatchSize": 4}]
    expected = [(f"spec.workerGroups[0].runtime{path}", message) for path, message in faults]
    assert told(load_document(document)) == expected


def test_models_match_the_kind_of_their_groups():
    """External models need foreign servers, ours need Harness; a group without models is told."""
    document = service_document()
    document["spec"]["workerGroups"] += [
        {"name": "triton", "runtime": {"kind": "OpenInference", "address": "h:1"}},
        {"name": "idle"},
    ]
    document["spec"]["models"][0]["workerGroups"] = ["a100"]
    document["spec"]["models"][1]["workerGroups"] = ["triton"]
    document["spec"]["models"].append(
        {"name": "ext", "format": "External", "maxBatchSize": 1, "workerGroups": ["a100"]}
    )
    assert told(load_document(document)) == [
        ("spec.models[1].format", "Profiled needs worker groups of kind Harness, but group 'triton' is of kind OpenInference (use External there)"),
        ("spec.models[2].format", "External needs worker groups of kind OpenInference, but group 'a100' is of kind Harness"),
        ("spec.workerGroups[2]", "no model is placed on group 'idle'"),
    ]  # fmt: skip


def test_policies_that_wait_for_a_batch_need_a_batch_dimension():
    """MaxDelay and Static make no sense for an unbatched model."""
    document = changed(service_document(), "spec.models.1.maxBatchSize", 0)
    document["spec"]["models"][1]["batching"] = {"policy": "MaxDelay"}
    assert told(load_document(document)) == [
        ("spec.models[1].batching.policy", "MaxDelay waits for a batch to fill, but maxBatchSize is 0")
    ]


def test_bf16_is_not_for_python_models():
    """There is no bfloat16 in numpy (protocol.md §4)."""
    document = changed(service_document(), "spec.models.0.format", "Python")
    document["spec"]["models"][0]["outputs"][0]["datatype"] = "BF16"
    assert told(load_document(document)) == [
        ("spec.models[0].outputs[0].datatype", "BF16 tensors are not for Python models (numpy has no such type)")
    ]


def test_at_most_eight_levels_of_priority_and_weight():
    """The scheduler walks at most 8 (priority, weight) levels a service."""
    document = service_document()
    emulated = document["spec"]["models"][1]
    document["spec"]["models"] = [{**emulated, "name": f"m{i}", "weight": i + 1} for i in range(8)]
    assert told(load_document(document)) == []
    document["spec"]["models"].append({**emulated, "name": "m8", "priority": 1})
    assert told(load_document(document)) == [
        ("spec.models", "have 9 different levels of (priority, weight), at most 8 are allowed")
    ]


def test_max_weight_caps_not_below_the_default():
    """The cap must allow the model's own weight."""
    document = changed(service_document(), "spec.models.1.weight", 5)
    document["spec"]["models"][1]["maxWeight"] = 4
    assert told(load_document(document)) == [("spec.models[1].maxWeight", "4 is less than weight 5")]


def test_one_run_reports_everything():
    """Faults of fields, of rules inside an object and of rules across objects are told together, in the file's order."""
    document = service_document()
    document["spec"]["models"][0]["maxBatchSize"] = "64"
    document["spec"]["models"][1] |= {"name": "other", "batching": {"timeoutAction": "Delay"}, "maxQueueSize": 1}
    document["spec"]["models"].append({**service_document()["spec"]["models"][1], "executionSizes": [1, 64]})
    document["spec"]["models"].append({**service_document()["spec"]["models"][1], "workerGroups": ["x"]})
    document["spec"]["workerGroups"].append({"name": "a100"})
    assert sorted(path for path, _ in told(load_document(document))) == [
        "spec.models[0].maxBatchSize",
        "spec.models[1].batching.timeoutAction",
        "spec.models[1].maxQueueSize",
        "spec.models[2].executionSizes[1]",
        "spec.models[3].name",
        "spec.models[3].workerGroups[0]",
        "spec.workerGroups[1].name",
    ]
