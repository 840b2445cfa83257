"""Figures of a replica from its Prometheus endpoint, over the last few seconds."""

from __future__ import annotations

import asyncio
import urllib.request
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

from prometheus_client.parser import text_string_to_metric_families

WINDOW = 10
"""Scrapes over which rates and percentiles are taken."""
TIMEOUT_S = 2.0
ON_TIME = "completed"
NOT_SERVED_FOR = frozenset({"cancelled", "invalid"})
"""Outcomes that are the caller's own doing and say nothing of the service."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """Sums over all models of one replica at one time. Buckets: upper bound in seconds → cumulative count."""

    queue: float = 0
    in_flight: float = 0
    busy: float | None = None
    batches: float = 0
    batch_rows: float = 0
    outcomes: dict[str, float] = field(default_factory=dict)
    latency: dict[float, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Figures:
    """What the table shows; None: nothing happened in the window."""

    queue: int
    in_flight: int
    busy: float | None
    mean_batch_rows: float | None
    on_time_ratio: float | None
    requests_per_scrape: float
    p50_ms: float | None
    p99_ms: float | None


def parse(text: str) -> Scrape:
    """Read the exposition format. Raises ValueError when it is not one."""
    sums: dict[str, float] = {}
    outcomes: dict[str, float] = {}
    latency: dict[float, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "harness_requests_total":
                outcome = sample.labels.get("outcome", "")
                outcomes[outcome] = outcomes.get(outcome, 0) + sample.value
            elif sample.name == "harness_inference_latency_seconds_bucket":
                bound = float(sample.labels["le"])
                latency[bound] = latency.get(bound, 0) + sample.value
            else:
                sums[sample.name] = sums.get(sample.name, 0) + sample.value
    return Scrape(
        queue=sums.get("harness_queue_requests", 0),
        in_flight=sums.get("harness_inflight_batches", 0),
        busy=sums.get("harness_busy_ratio"),
        batches=sums.get("harness_batch_rows_count", 0),
        batch_rows=sums.get("harness_batch_rows_sum", 0),
        outcomes=outcomes,
        latency=latency,
    )


class Window:
    """The last scrapes of one replica."""

    def __init__(self) -> None:
        self._scrapes: deque[Scrape] = deque(maxlen=WINDOW)

    def add(self, scrape: Scrape) -> None:
        """Append; a counter that went back (the process restarted) starts the window anew."""
        if self._scrapes and sum(scrape.outcomes.values()) < sum(self._scrapes[-1].outcomes.values()):
            self._scrapes.clear()
        self._scrapes.append(scrape)

    def figures(self) -> Figures | None:
        """Over the window; None before the first scrape."""
        if not self._scrapes:
            return None
        first, last = self._scrapes[0], self._scrapes[-1]
        batches = last.batches - first.batches
        ended = {name: count - first.outcomes.get(name, 0) for name, count in last.outcomes.items()}
        served = sum(count for name, count in ended.items() if name not in NOT_SERVED_FOR)
        buckets = {bound: count - first.latency.get(bound, 0) for bound, count in last.latency.items()}
        return Figures(
            queue=round(last.queue),
            in_flight=round(last.in_flight),
            busy=last.busy,
            mean_batch_rows=(last.batch_rows - first.batch_rows) / batches if batches else None,
            on_time_ratio=ended.get(ON_TIME, 0) / served if served else None,
            requests_per_scrape=sum(ended.values()) / max(1, len(self._scrapes) - 1),
            p50_ms=quantile_ms(buckets, 0.5),
            p99_ms=quantile_ms(buckets, 0.99),
        )


def quantile_ms(buckets: dict[float, float], share: float) -> float | None:
    """A quantile of a cumulative histogram (bounds in seconds), in ms, by straight lines inside a bucket; None when empty."""
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0
    if total <= 0:
        return None
    below = [(0.0, 0.0), *((bound, buckets[bound]) for bound in bounds)]
    for (low, before), (high, upto) in pairwise(below):
        if upto >= share * total:
            # The last bucket has no upper bound: its lower one is all that is known.
            inside = (share * total - before) / (upto - before) if upto > before else 0.0
            return 1000 * (low if high == float("inf") else low + (high - low) * inside)
    return None


async def fetch(address: str) -> Scrape | None:
    """Scrape ``host:port``; None when it does not answer or not in the format."""
    try:
        return parse(await asyncio.to_thread(_get, f"http://{address}/metrics"))
    except (OSError, ValueError, KeyError):
        return None


def _get(url: str) -> str:
    # Straight to a process of our own on this machine: no proxy of the environment may come between.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=TIMEOUT_S) as answer:
        text: str = answer.read().decode()
    return text
