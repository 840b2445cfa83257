"""The pod's batcher: a driver around the core's pod machine.

``driver`` (events in, decisions out) ← ``waiters`` (open requests, payloads, answers), ``flight`` (a batch with the executor),
``assembly`` (merge and split), ``endings`` (errors), ``delay`` (measured hand-over times), ``observer`` (the seam to the metrics).
"""

from harness_runtime.batcher.driver import Batcher
from harness_runtime.batcher.observer import Observer

__all__ = ["Batcher", "Observer"]
