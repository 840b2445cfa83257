"""What /state and the log say of a server: each thing once."""

from __future__ import annotations

import json

from harness_core.pod.settings import ModelLimits
from harness_core.profile import LatencyProfile
from harness_runtime.model import Emulation, ModelEntry, ModelFormat, ModelSpec
from harness_runtime.settings import RuntimeSettings
from harness_runtime.state import describe_model
from harness_runtime.tensors import Datatype, TensorSpec

FAST, SLOW = LatencyProfile.linear(10**6, 10**5, 8), LatencyProfile.linear(10**7, 10**5, 8)


def entry(**limits) -> ModelEntry:
    tensor = (TensorSpec("X", Datatype.FP32, (4,)),)
    spec = ModelSpec(
        name="m", version="3", digest="d", format=ModelFormat.PROFILED, path=None, max_batch_size=8, execution_sizes=(1, 8),
        inputs=tensor, outputs=tensor, objective_ns=10**8, max_latency_ns=None, weight=1.0, max_weight=1.0, priority=0,
        emulation=Emulation(1000, 100),
    )  # fmt: skip
    return ModelEntry(spec, ModelLimits(model="d", max_batch_rows=8, **limits))


def test_a_profile_is_shown_once():
    """The profiles in force by bucket; the default one by the bucket it belongs to, or in full when it is none of them."""
    shown = describe_model(entry(default_profile=SLOW, profiles={"a": FAST, "b": SLOW}))
    assert list(shown["profiles"]) == ["a", "b"]
    assert (shown["default_bucket"], shown["default_profile"]) == ("b", None)
    assert "profiles" not in shown["limits"]
    alone = describe_model(entry(default_profile=SLOW))
    assert alone["profiles"] == {}
    assert alone["default_bucket"] is None
    assert alone["default_profile"]["fit"]["beta_ns"] > 0


def test_the_log_of_a_start_is_short():
    """Model, policy, sizes and limits, without profiles; the settings of the process do not repeat the models."""
    settings = RuntimeSettings(service_name="s", group="g", models=(entry(default_profile=SLOW),), threads=2)
    said = settings.summary()
    assert "threads 2" in said
    assert "model m version 3: Deadline, batches to 8, sizes 1,8, objective 100 ms, queue 4096 requests" in said
    assert len(said) < 300
    effective = json.loads(json.dumps(settings.effective()))
    assert effective["pod"]["max_pending_requests"] == 16384
    assert "models" not in effective
