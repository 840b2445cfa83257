"""Journal of a machine: what happened and what was decided, as values that JSON holds; and its replay (design.md §2.1).

An entry is ``[kind, now_ns, payload]``. Kinds are the machine's event methods, and ``decide`` with the decision as payload. A fresh
machine that is fed the events of a journal gives the same decisions: :func:`replay` checks that.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from harness_core.decision import BatchPlan, BatchResult, Decision, Ending
from harness_core.descriptor import LaneKey, RequestDescriptor
from harness_core.outcome import BatchReason, Outcome
from harness_core.pod.settings import ModelLimits, PodLimits, PolicyName, TimeoutAction
from harness_core.profile import LatencyProfile, ProfilePoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from harness_core.pod.machine import PodMachine

JournalEntry: TypeAlias = list[Any]


class Journal:
    """Hands entries to ``sink`` as they happen; without one it keeps them in ``entries`` (tests, short captures).

    A driver that records for long gives a sink that writes and bounds; the core keeps nothing then.
    """

    def __init__(self, sink: Callable[[JournalEntry], None] | None = None) -> None:
        self.entries: list[JournalEntry] = []
        self._sink = sink or self.entries.append

    def event(self, kind: str, now: int, payload: Any = None) -> None:
        """Note an event; ``payload`` is its argument."""
        self._sink([kind, now, _encode(payload)])

    def decision(self, now: int, decision: Decision) -> None:
        """Note what ``decide`` returned."""
        self._sink(["decide", now, _encode(decision)])


@dataclass(frozen=True, slots=True)
class Difference:
    """A replayed decision that is not the recorded one; ``index`` is its entry."""

    index: int
    recorded: Decision
    replayed: Decision


def replay(entries: Iterable[JournalEntry], machine_of: Callable[[PodLimits], PodMachine]) -> list[Difference]:
    """Feed a journal to a fresh machine (made by ``machine_of`` from the recorded limits) and compare its decisions.

    Raises:
        ValueError: the journal does not begin with the machine's limits, or holds an unknown kind.
    """
    differences: list[Difference] = []
    machine: PodMachine | None = None
    for index, (kind, now, payload) in enumerate(entries):
        if kind == "limits":
            machine = machine_of(PodLimits(**payload))
            continue
        if machine is None:
            raise ValueError("a journal begins with the machine's limits")
        if kind == "decide":
            recorded, replayed = _decision(payload), machine.decide(now)
            if recorded != replayed:
                differences.append(Difference(index, recorded, replayed))
        else:
            _feed(machine, kind, now, payload)
    return differences


def _feed(machine: PodMachine, kind: str, now: int, payload: Any) -> None:
    match kind:
        case "add_model" | "update_model":
            getattr(machine, kind)(now, _limits(payload))
        case "on_arrival":
            machine.on_arrival(now, RequestDescriptor(**(payload | {"lane": LaneKey(**payload["lane"])})))
        case "on_done":
            batch_id, result = payload
            failures = {int(member): message for member, message in result["member_failures"].items()}
            machine.on_done(now, batch_id, BatchResult(**(result | {"member_failures": failures})))
        case "remove_model" | "on_cancel" | "on_started" | "on_executor_lost" | "set_dispatch_delay":
            getattr(machine, kind)(now, payload)
        case "on_executor_up" | "on_drain":
            getattr(machine, kind)(now)
        case _:
            raise ValueError(f"unknown kind of journal entry: {kind!r}")


def _encode(value: Any) -> Any:
    """Dataclasses, enums, tuples and profiles as what JSON holds."""
    match value:
        case LatencyProfile():
            return [asdict(point) for point in value.points]
        case ModelLimits():
            fields = {name: getattr(value, name) for name in ModelLimits.__slots__}
            return {name: _encode(field) for name, field in fields.items()}
        case BatchPlan() | BatchResult() | Decision() | Ending() | LaneKey() | PodLimits() | RequestDescriptor():
            return {name: _encode(getattr(value, name)) for name in type(value).__slots__}
        case dict():
            # JSON keys are strings.
            return {str(key): _encode(item) for key, item in value.items()}
        case tuple() | list():
            return [_encode(item) for item in value]
        case Outcome() | BatchReason() | PolicyName() | TimeoutAction():
            return value.value
        case None | bool() | int() | float() | str():
            return value
        case _:
            return {str(key): _encode(item) for key, item in value.items()}


def _profile(points: list[dict[str, Any]]) -> LatencyProfile:
    return LatencyProfile.from_points(ProfilePoint(**point) for point in points)


def _limits(payload: dict[str, Any]) -> ModelLimits:
    return ModelLimits(
        **(
            payload
            | {
                "default_profile": _profile(payload["default_profile"]),
                "profiles": {bucket: _profile(points) for bucket, points in payload["profiles"].items()},
                "policy": PolicyName(payload["policy"]),
                "execution_sizes": tuple(payload["execution_sizes"]),
                "timeout_action": TimeoutAction(payload["timeout_action"]),
            }
        )
    )


def _decision(payload: dict[str, Any]) -> Decision:
    return Decision(
        launches=tuple(
            BatchPlan(
                **(
                    plan
                    | {
                        "lane": LaneKey(**plan["lane"]),
                        "members": tuple(plan["members"]),
                        "reason": BatchReason(plan["reason"]),
                    }
                )
            )
            for plan in payload["launches"]
        ),
        endings=tuple(Ending(**(end | {"outcome": Outcome(end["outcome"])})) for end in payload["endings"]),
        wake_at_ns=payload["wake_at_ns"],
    )
