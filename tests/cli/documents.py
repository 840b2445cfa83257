"""Service files of the command-line tests."""

from __future__ import annotations


def emulated_service(setup_us: int, per_row_us: int) -> str:
    """Model m, an emulated accelerator run at 1 and 4 rows, on two replicas of group g."""
    return f"""\
apiVersion: serving.harness.dev/v1alpha1
kind: InferenceService
metadata: {{name: s}}
spec:
  models:
    - name: m
      format: Profiled
      maxBatchSize: 4
      executionSizes: [1, 4]
      inputs: [{{name: X, datatype: FP32, shape: [4]}}]
      outputs: [{{name: Y, datatype: FP32, shape: [4]}}]
      emulation: {{setupMicroseconds: {setup_us}, computeMicrosecondsPerRow: {per_row_us}}}
  workerGroups: [{{name: g, replicas: 2}}]
"""
