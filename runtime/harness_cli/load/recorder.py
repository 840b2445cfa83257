"""What happened to each request, in arrays that cost tens of bytes a request."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

MESSAGE_CHARS_MAX = 300
"""Of the one message that is kept per outcome."""
OPEN = -1
"""Outcome index of a request that has not ended."""


@dataclass(frozen=True, slots=True)
class Records:
    """Columns over requests in the order of sending.

    Times are ns from the start of the load; ``done_ns`` is -1 and ``outcome`` OPEN for a request without an end;
    ``outcome`` indexes ``outcomes``.
    """

    intended_ns: npt.NDArray[np.int64]
    sent_ns: npt.NDArray[np.int64]
    done_ns: npt.NDArray[np.int64]
    outcome: npt.NDArray[np.int16]
    answered: npt.NDArray[np.bool_]
    weight: npt.NDArray[np.float64]
    outcomes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.intended_ns)

    @property
    def latency_ns(self) -> npt.NDArray[np.int64]:
        """From intended send to end: what a user would have waited, whatever the generator's own delay."""
        return self.done_ns - self.intended_ns

    @property
    def lag_ns(self) -> npt.NDArray[np.int64]:
        """How late the generator itself was."""
        return self.sent_ns - self.intended_ns

    def on_time(self, deadline_ns: int | None) -> npt.NDArray[np.bool_]:
        """Answered within the deadline of the intended send time."""
        return self.answered if deadline_ns is None else self.answered & (self.latency_ns <= deadline_ns)


class Recorder:
    """Collects; appending and ending are a few machine words each. ``deadline_ns`` only feeds the running count."""

    def __init__(self, deadline_ns: int | None) -> None:
        self._intended = array("q")
        self._sent = array("q")
        self._done = array("q")
        self._outcome = array("h")
        self._answered = array("b")
        self._weight = array("d")
        self._names: dict[str, int] = {}
        self.messages: dict[str, str] = {}
        """Outcome → the first message that came with it."""
        self._deadline_ns = deadline_ns
        self.ended = 0
        self.on_time = 0

    @property
    def sent(self) -> int:
        """Requests sent so far."""
        return len(self._intended)

    @property
    def in_flight(self) -> int:
        """Requests sent and not ended."""
        return len(self._intended) - self.ended

    def start(self, intended_ns: int, sent_ns: int, weight: float) -> int:
        """A request goes out; gives its index."""
        self._intended.append(intended_ns)
        self._sent.append(sent_ns)
        self._weight.append(weight)
        self._done.append(-1)
        self._outcome.append(OPEN)
        self._answered.append(0)
        return len(self._intended) - 1

    def end(self, index: int, done_ns: int, outcome: str, *, answered: bool, message: str = "") -> None:
        """The request's one end."""
        if message and outcome not in self.messages:
            text = " ".join(message.split())
            self.messages[outcome] = text if len(text) <= MESSAGE_CHARS_MAX else text[: MESSAGE_CHARS_MAX - 1] + "…"
        self._done[index] = done_ns
        self._outcome[index] = self._names.setdefault(outcome, len(self._names))
        self._answered[index] = answered
        self.ended += 1
        if answered and (self._deadline_ns is None or done_ns - self._intended[index] <= self._deadline_ns):
            self.on_time += 1

    def records(self) -> Records:
        """The columns so far, copied."""
        return Records(
            intended_ns=np.array(self._intended, np.int64),
            sent_ns=np.array(self._sent, np.int64),
            done_ns=np.array(self._done, np.int64),
            outcome=np.array(self._outcome, np.int16),
            answered=np.array(self._answered, np.bool_),
            weight=np.array(self._weight, np.float64),
            outcomes=tuple(self._names),
        )
