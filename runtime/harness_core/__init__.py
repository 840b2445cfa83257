"""Every decision of Harness Serving, and nothing else.

Pure: standard library only, driven by events that carry ``now`` (integer nanoseconds of a monotonic clock), returning
decisions as data. No I/O, clock, thread, event loop or unseeded randomness; the lint step (import-linter) and
``tests/architecture`` keep it so. Drivers (``harness_runtime.batcher``, later the simulator and the dispatcher) carry
decisions out.
"""
