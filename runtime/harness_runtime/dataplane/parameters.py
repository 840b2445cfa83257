"""Parameters of a request: ours, other people's reserved names, and the caller's own (docs/decisions/0003-parameters.md).

Nothing here falls back to a default on a bad value: it is INVALID_ARGUMENT and names the parameter (protocol.md §2).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from harness_core.descriptor import LOWEST_PRIORITY
from harness_core.outcome import Outcome

from harness_runtime.errors import UNIMPLEMENTED, RequestEnded, invalid
from harness_runtime.text import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness_runtime.model import ModelSpec

Value: TypeAlias = bool | int | float | str

TIMEOUT_US_MAX = 2**63 - 1
PRIORITY_MAX = 8
TENANT_CHARACTERS_MAX = 256
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_OURS = frozenset({"timeout", "priority", "weight"})
_SEQUENCE = frozenset({"sequence_id", "sequence_start", "sequence_end"})
_IGNORED = frozenset({"binary_data_output", "binary_data", "binary_data_size", "headers"})
"""Belong to other parts of the protocol; they change nothing here and are not sent back."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a request says of its own scheduling. ``custom``: the caller's own parameters, for the response."""

    timeout_us: int | None
    priority: int
    weight: float
    custom: dict[str, Value]


def read(parameters: Mapping[str, Value], spec: ModelSpec) -> Wishes:
    """Read a request's parameters with the model's defaults.

    Raises:
        RequestEnded: INVALID for a bad value or a sequence; UNIMPLEMENTED for shared memory.
    """
    if not parameters:
        return Wishes(None, spec.priority or LOWEST_PRIORITY, spec.weight, {})
    custom = {}
    for name, value in parameters.items():
        if name in _OURS:
            continue
        if _is_custom(name, value):
            custom[name] = value
    return Wishes(
        timeout_us=_timeout(parameters["timeout"]) if "timeout" in parameters else None,
        priority=_priority(parameters.get("priority", 0), spec),
        weight=_weight(parameters["weight"], spec) if "weight" in parameters else spec.weight,
        custom=custom,
    )


def check_tensor(kind: str, name: str, parameters: Mapping[str, Value]) -> None:
    """Refuse what a tensor's parameters ask for and nobody here does.

    Raises:
        RequestEnded: UNIMPLEMENTED for shared memory or classification.
    """
    for key, value in parameters.items():
        if key.startswith("shared_memory_"):
            raise _unimplemented(f"{kind} {quoted(name)}: parameter {quoted(key)}: shared memory is not supported")
        if key == "classification" and value:
            raise _unimplemented(f"{kind} {quoted(name)}: parameter {quoted(key)}: classification is not supported")


def check_tenant(tenant: str) -> str:
    """The fairness id as sent.

    Raises:
        RequestEnded: INVALID when it is longer than 256 characters (cutting it would make two tenants one).
    """
    if len(tenant) > TENANT_CHARACTERS_MAX:
        raise invalid("tenant", f"fairness id: {len(tenant)} characters, at most {TENANT_CHARACTERS_MAX} are taken")
    return tenant


def _is_custom(name: str, value: Value) -> bool:
    """Whether a parameter is the caller's own; refuses the reserved ones that ask for something."""
    if name in _SEQUENCE:
        # A client's "no sequence" (0, "", false) asks for nothing; a real sequence needs state that no model here keeps.
        if value:
            raise invalid("sequence", f"parameter {quoted(name)}: models here keep no state between requests")
        return False
    if name.startswith("shared_memory_"):
        raise _unimplemented(f"parameter {quoted(name)}: shared memory is not supported")
    if name.startswith("harness_"):
        raise invalid("reserved_parameter", f"parameter {quoted(name)}: names with harness_ are the server's own")
    return not (name in _IGNORED or name.startswith("triton_"))


def _timeout(value: Value) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= TIMEOUT_US_MAX:
        raise invalid("timeout", f"parameter 'timeout': a whole number of microseconds from 1, got {_shown(value)}")
    return value


def _priority(value: Value, spec: ModelSpec) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= PRIORITY_MAX:
        raise invalid("priority", f"parameter 'priority': a whole number from 0 to {PRIORITY_MAX}, got {_shown(value)}")
    return value or spec.priority or LOWEST_PRIORITY


def _weight(value: Value, spec: ModelSpec) -> float:
    number = math.nan
    if isinstance(value, str):
        # Old clients have no double: a number in text, nothing more lenient.
        if len(value) <= 32 and _NUMBER.fullmatch(value):
            number = float(value)
    elif not isinstance(value, bool):
        number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise invalid("weight", f"parameter 'weight': a finite number above 0, got {_shown(value)}")
    return min(number, spec.max_weight)


def _shown(value: Value) -> str:
    return quoted(value) if isinstance(value, str) else str(value)


def _unimplemented(message: str) -> RequestEnded:
    return RequestEnded(Outcome.INVALID, "unimplemented", message, status=UNIMPLEMENTED)
