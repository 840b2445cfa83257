"""Metrics of a pod; names and labels: protocol.md §5 and docs/reference/metrics.md.

``pod`` counts what the batcher reports, ``live`` reads the queue at the scrape, ``windows`` keeps shares of the last seconds.
"""

from harness_runtime.metrics.live import ModelNow, PodNow, models_now
from harness_runtime.metrics.pod import PodMetrics

__all__ = ["ModelNow", "PodMetrics", "PodNow", "models_now"]
