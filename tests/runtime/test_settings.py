"""From an InferenceService and options to the runtime's own values."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import pytest
from harness_api.load import load_text
from harness_core.pod.settings import PolicyName, TimeoutAction
from harness_core.profile import LatencyProfile
from harness_runtime.model import Emulation, ModelFormat, ModelState
from harness_runtime.settings import RuntimeOptions, SettingsError, from_service
from harness_runtime.state import describe_model
from harness_runtime.tensors import Buckets, Datatype, TensorSpec

from tests.api.helpers_api import changed, load_document, profile_document, service_document

CONTENT = b"weights"
SHA = hashlib.sha256(CONTENT).hexdigest()
MS = 1_000_000


@pytest.fixture
def document(tmp_path):
    """The sample service with its artefact in place."""
    path = tmp_path / "models/minilm/3/model.pt2"
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    return changed(service_document(), "spec.models.0.sha256", SHA)


def settings_of(document, base_dir, *profiles, group=None, **options):
    """Load and convert."""
    result = load_document(document, *profiles)
    assert result.faults == []
    options = {"grpc_port": 0, "metrics_port": 0, **options}
    return from_service(
        result.services[0],
        group=group,
        base_dir=base_dir,
        options=RuntimeOptions(**options),
        profiles=result.profiles,
    )


def faults_of(document, base_dir, **options):
    """Faults of the conversion."""
    with pytest.raises(SettingsError) as caught:
        settings_of(document, base_dir, **options)
    return [(fault.path, fault.message) for fault in caught.value.faults]


def test_every_setting_of_the_file_arrives(document, tmp_path):
    """B007: what the resource says is what the machine is set to, converted to nanoseconds and bytes, and it can be seen."""
    document["spec"]["limits"] = {"maxPendingRequests": 100, "maxPendingBytes": 1000, "maxHoldSeconds": 7}
    document["spec"]["workerGroups"][0]["drain"] = {"gracePeriodSeconds": 9}
    document["spec"]["models"][0] |= {
        "objective": {"latencyMilliseconds": 250},
        "maxLatencyMilliseconds": 5000,
        "weight": 3,
        "maxWeight": 6,
        "priority": 2,
        "batching": {
            "policy": "MaxDelay",
            "maxQueueSize": 50,
            "maxQueueBytes": 500,
            "maxQueueDelayMicroseconds": 700,
            "queueTimeoutMilliseconds": 40,
            "timeoutAction": "Delay",
        },
    }
    settings = settings_of(document, tmp_path, bind="127.0.0.2", device="cpu", threads=2, max_message_bytes=4096)
    minilm, emulated = settings.models
    spec, limits = minilm.spec, minilm.limits
    assert (spec.name, spec.version, spec.format) == ("minilm", "3", ModelFormat.TORCH_EXPORT)
    assert spec.path == tmp_path / "models/minilm/3/model.pt2"
    assert spec.inputs == (TensorSpec("input_ids", Datatype.INT64, (-1,), Buckets(0, (16, 32, 64, 128), 0)),)
    assert spec.outputs == (TensorSpec("embedding", Datatype.FP32, (384,)),)
    assert (spec.objective_ns, spec.max_latency_ns) == (250 * MS, 5000 * MS)
    assert (spec.weight, spec.max_weight, spec.priority) == (3.0, 6.0, 2)
    assert (limits.model, limits.max_batch_rows) == (spec.digest, 64)
    assert limits.execution_sizes == spec.execution_sizes == (1, 2, 4, 8, 16, 32, 64)
    assert (limits.policy, limits.timeout_action) == (PolicyName.MAX_DELAY, TimeoutAction.DELAY)
    assert (limits.max_queue_requests, limits.max_queue_bytes) == (50, 500)
    assert (limits.max_queue_delay_ns, limits.queue_timeout_ns) == (700_000, 40 * MS)
    assert minilm.state is ModelState.LOADING
    assert (emulated.spec.version, emulated.spec.path) == ("1", None)
    assert emulated.spec.emulation == Emulation(5000, 1000)
    assert (settings.pod.max_pending_requests, settings.pod.max_pending_bytes) == (100, 1000)
    assert (settings.max_hold_ns, settings.drain_ns) == (7_000 * MS, 9_000 * MS)
    assert (settings.service_name, settings.group) == ("text-embeddings", "a100")
    effective = json.loads(json.dumps(settings.effective()))
    assert "models" not in effective  # /state shows them beside the settings, once
    assert describe_model(settings.models[0])["limits"]["max_queue_delay_ns"] == 700_000
    assert (effective["bind"], effective["threads"], effective["max_message_bytes"]) == ("127.0.0.2", 2, 4096)


def test_unbatched_model(document, tmp_path):
    """MaxBatchSize 0: one request at a time."""
    document = changed(document, "spec.models.1.maxBatchSize", 0)
    limits = settings_of(document, tmp_path).models[1].limits
    assert (limits.max_batch_rows, limits.execution_sizes) == (1, ())


def test_profile_before_measurement(document, tmp_path):
    """The emulation is taken as it is; of other models a full batch is guessed at half of the objective."""
    minilm, emulated = settings_of(document, tmp_path).models
    assert emulated.limits.default_profile == LatencyProfile.linear(5 * MS, MS, 32)
    assert minilm.limits.default_profile.latency_ns(64) == pytest.approx(50 * MS, rel=0.01)
    assert 10 * MS <= minilm.limits.default_profile.latency_ns(1) <= 11 * MS
    points = [{"batchSize": 1, "microseconds": 3000}, {"batchSize": 8, "microseconds": 9000}]
    document = changed(document, "spec.models.1.emulation", {"points": points})
    profile = settings_of(document, tmp_path).models[1].limits.default_profile
    assert (profile.latency_ns(1), profile.latency_ns(8)) == (3 * MS, 9 * MS)


def test_latency_profiles_of_the_file_are_found_by_digest_bucket_and_class(document, tmp_path):
    """The class's own profile goes before one for any class; other classes and unknown digests are told, not silent."""
    digest = settings_of(document, tmp_path).models[0].spec.digest

    def profile(name, us, **spec):
        result = changed(profile_document(), "metadata.name", name)
        result["spec"] = {"modelDigest": digest, "points": [{"size": 1, "p50Microseconds": us}], **spec}
        return result

    settings = settings_of(
        document,
        tmp_path,
        profile("own", 2000, acceleratorClass="cpu", bucket="input_ids=16"),
        profile("any", 9000, bucket="input_ids=16"),
        profile("plain", 5000),
        profile("gpu", 1, acceleratorClass="h100"),
        profile("stranger", 1, modelDigest="0" * 64),
        accelerator_class="cpu",
    )
    limits = settings.models[0].limits
    assert limits.profiles["input_ids=16"].latency_ns(1) == 2 * MS
    assert limits.default_profile.latency_ns(1) == 5 * MS
    assert [notice.partition(":")[0] for notice in settings.notices] == [
        "LatencyProfile gpu",
        "LatencyProfile stranger",
    ]
    with pytest.raises(SettingsError, match="LatencyProfile twin: speaks of the same model, bucket and class"):
        settings_of(document, tmp_path, profile("plain", 5000), profile("twin", 6000))


def test_two_models_of_one_artefact_stay_apart(document, tmp_path):
    """Queues and states are kept by digest: equal models under two names must not share one."""
    document["spec"]["models"].append({**document["spec"]["models"][1], "name": "twin"})
    digests = [entry.spec.digest for entry in settings_of(document, tmp_path).models]
    assert len(set(digests)) == 3


def test_models_of_other_groups_are_left_out(document, tmp_path):
    """A process loads what is placed on its group, and only that is looked for on disk."""
    document["spec"]["workerGroups"].append({"name": "small"})
    document["spec"]["models"][0]["workerGroups"] = ["a100"]
    settings = settings_of(document, tmp_path / "elsewhere", group="small")
    assert [entry.spec.name for entry in settings.models] == ["emulated"]
    assert faults_of(document, tmp_path) == [("--group", "required: the service has the worker groups a100, small")]
    assert faults_of(document, tmp_path, group="big") == [
        ("--group", "'big' is not a worker group of service 'text-embeddings' (there are: a100, small)")
    ]


def test_groups_of_other_servers_are_refused(document, tmp_path):
    """This process is no proxy for another server."""
    document["spec"]["models"] = [{"name": "m", "format": "External", "maxBatchSize": 4}]
    document["spec"]["workerGroups"][0]["runtime"] = {"kind": "OpenInference", "address": "h:1"}
    assert faults_of(document, tmp_path) == [
        (
            "spec.workerGroups[0].runtime.kind",
            "OpenInference servers bring their own process; this one runs kind Harness",
        )
    ]


def test_all_faults_are_told_together(document, tmp_path):
    """Options and artefacts of all models in one go, each with its place."""
    document["spec"]["models"].append({**document["spec"]["models"][0], "name": "other", "version": "9"})
    document["spec"]["models"].append({**document["spec"]["models"][0], "name": "py", "format": "Python"})
    found = faults_of(document, tmp_path, device="tpu", threads=0, grpc_port=70000, max_message_bytes=1)
    assert [path for path, _ in found] == [
        "--grpc-port",
        "--threads",
        "--max-message-bytes",
        "--device",
        "spec.models[2].version",
        "spec.models[3].format",
    ]
    assert found[0][1] == "70000 is outside of 0 to 65535"
    assert faults_of(document, tmp_path, grpc_port=8001, metrics_port=8001)[0] == (
        "--metrics-port",
        "8001 is the gRPC port already",
    )


def test_trust_comes_from_the_runtime_not_from_the_file(document, tmp_path):
    """A file read without knowing of trust is still refused here when a checksum is missing."""
    document = changed(document, "spec.models.0.sha256", ...)
    result = load_text(json.dumps(document))
    options = RuntimeOptions()
    with pytest.raises(SettingsError, match=r"spec.models\[0\].sha256: required for format TorchExport"):
        from_service(result.services[0], group=None, base_dir=tmp_path, options=options)
    trusting = RuntimeOptions(trust_repository=True)
    settings = from_service(result.services[0], group="a100", base_dir=tmp_path, options=trusting)
    assert settings.trust_repository


def test_import_needs_no_torch():
    """The slim runtime reads its settings without torch or grpc."""
    code = "import sys, harness_runtime.settings; print([m for m in ('torch', 'grpc') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
