"""The model server in a pod: OIP edge, data plane, batcher driver, executor process, profiler.

Follow a request: ``edge.grpc.servicer`` → ``edge.grpc.converters`` → ``dataplane`` → ``batcher`` → ``harness_core.pod.machine``
(decides) → ``batcher`` (carries out) → ``executor`` → back. Knows nothing about Kubernetes.
"""
