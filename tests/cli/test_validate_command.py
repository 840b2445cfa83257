"""harness validate: every fault at once, with its place."""

from __future__ import annotations

import json

GOOD = """\
apiVersion: serving.harness.dev/v1alpha1
kind: InferenceService
metadata: {name: s}
spec:
  models:
    - name: m
      format: Profiled
      maxBatchSize: 4
      inputs: [{name: X, datatype: FP32, shape: [4]}]
      outputs: [{name: Y, datatype: FP32, shape: [4]}]
      emulation: {setupMicroseconds: 2000, computeMicrosecondsPerRow: 500}
  workerGroups: [{name: g}]
"""


def test_good_and_bad_files_together(run_harness, tmp_path):
    """All faults of all files, with line and field; exit code 1."""
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(GOOD)
    bad.write_text(GOOD.replace("maxBatchSize: 4", "maxBatchSize: -1").replace("name: s", "name: NOT OK"))
    code, out, _ = run_harness(f"validate -f {good} -f {bad}")
    assert code == 1
    assert "good.yaml: 1 InferenceService(s)" in out
    assert "bad.yaml:8: spec.models[0].maxBatchSize" in out
    assert "bad.yaml:3: metadata.name" in out


def test_json_says_the_same(run_harness, tmp_path):
    """Machine output on stdout alone."""
    bad = tmp_path / "bad.yaml"
    bad.write_text(GOOD.replace("maxBatchSize", "maxBatchsize"))
    code, out, err = run_harness(f"validate -f {bad} --json")
    report = json.loads(out)
    assert code == 1
    assert report["valid"] is False
    assert any(fault["path"].startswith("spec.models[0]") and fault["line"] for fault in report["files"][0]["faults"])
    assert "fault" in err


def test_a_valid_file_exits_with_zero(run_harness, tmp_path):
    """And so does a file checked for a cluster."""
    good = tmp_path / "good.yaml"
    good.write_text(GOOD)
    assert run_harness(f"validate -f {good}")[0] == 0
    assert run_harness(f"validate {good}")[0] == 0
    assert run_harness(f"validate -f {good} --cluster --json")[0] == 0


def test_no_file_is_wrong_usage(run_harness):
    """Both ways to name one are told; exit code 2."""
    code, _, err = run_harness("validate")
    assert code == 2
    assert "harness validate FILE, or harness validate -f FILE" in err


def test_files_are_taken_with_and_without_the_option(run_harness, tmp_path):
    """All of them are checked."""
    for name in "abc":
        (tmp_path / f"{name}.yaml").write_text(GOOD)
    code, out, _ = run_harness(f"validate {tmp_path}/a.yaml {tmp_path}/b.yaml -f {tmp_path}/c.yaml")
    assert code == 0
    assert out.count("1 InferenceService(s)") == 3


def test_a_missing_file_is_a_fault(run_harness, tmp_path):
    """Not a traceback."""
    code, out, _ = run_harness(f"validate -f {tmp_path}/none.yaml")
    assert code == 1
    assert "cannot be read" in out
