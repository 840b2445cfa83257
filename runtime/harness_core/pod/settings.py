"""Settings of the pod's state machine, as plain values. Parsed at the edge (``harness_runtime.settings``), passed down."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness_core.profile import LatencyProfile


class PolicyName(StrEnum):
    """Batching policies of a pod, by the name used in ``spec.models[].batching.policy``."""

    DEADLINE = "Deadline"
    MAX_DELAY = "MaxDelay"
    IMMEDIATE = "Immediate"
    STATIC = "Static"


class TimeoutAction(StrEnum):
    """What happens when a request has waited ``queue_timeout_ns`` (Triton's names)."""

    REJECT = "Reject"
    DELAY = "Delay"


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """One model as the pod's machine knows it; all its lanes share these bounds.

    ``profiles`` maps bucket name → latency profile; a bucket without an entry uses ``default_profile``.
    ``max_batch_rows`` is at least 1 (an unbatched model has 1). ``execution_sizes`` ascending; empty: every size.
    ``queue_timeout_ns`` 0: none. ``max_queue_delay_ns`` applies to MaxDelay only.
    """

    model: str
    default_profile: LatencyProfile
    profiles: Mapping[str, LatencyProfile] = field(default_factory=dict)
    policy: PolicyName = PolicyName.DEADLINE
    max_batch_rows: int = 1
    max_batch_bytes: int = 1 << 30
    execution_sizes: tuple[int, ...] = ()
    objective_ns: int = 100_000_000
    max_queue_requests: int = 4096
    max_queue_bytes: int = 256 << 20
    max_queue_delay_ns: int = 0
    queue_timeout_ns: int = 0
    timeout_action: TimeoutAction = TimeoutAction.REJECT


@dataclass(frozen=True, slots=True)
class PodLimits:
    """Bounds of the whole pod.

    ``dispatch_delay_ns``: measured time from a decision to the start of the run and from its
    end to the answer; ``staging``: hand one batch to the executor while another runs, ``staging_lead_ns`` before the running one is expected to
    end (late binding, design.md §2.5). ``timer_grain_ns``: how much later than asked the driver's timers may fire (0 in virtual time).
    """

    max_pending_requests: int = 16384
    max_pending_rows: int = 1 << 20
    max_pending_bytes: int = 1 << 30
    dispatch_delay_ns: int = 0
    staging: bool = True
    staging_lead_ns: int = 1_000_000
    timer_grain_ns: int = 0
