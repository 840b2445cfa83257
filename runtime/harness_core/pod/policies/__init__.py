"""Batching policies of a pod: which requests of one lane would run next, and from when (``base.Policy``).

A policy is a strategy without state of its own: it reads one lane and a moment and gives a candidate; the machine chooses
among lanes, carries out and counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harness_core.pod.policies.deadline import Deadline
from harness_core.pod.policies.immediate import Immediate
from harness_core.pod.policies.max_delay import MaxDelay
from harness_core.pod.policies.static import Static
from harness_core.pod.settings import PolicyName

if TYPE_CHECKING:
    from harness_core.pod.policies.base import Policy

_POLICIES: Final[dict[PolicyName, Policy]] = {
    PolicyName.DEADLINE: Deadline(),
    PolicyName.MAX_DELAY: MaxDelay(),
    PolicyName.IMMEDIATE: Immediate(),
    PolicyName.STATIC: Static(),
}


def policy_of(name: PolicyName) -> Policy:
    """The policy of this name."""
    return _POLICIES[name]
