"""Book of all requests that have not ended: every one ends exactly once (design.md §2.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_core.decision import Ending
from harness_core.invariants import check
from harness_core.queue import Place

if TYPE_CHECKING:
    from harness_core.outcome import Outcome
    from harness_core.queue import Entry


class Ledger:
    """Open requests by id, their sums, and the endings that the next decision carries."""

    __slots__ = ("_endings", "_entries", "bytes", "rows")

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._endings: list[Ending] = []
        self.rows = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, request_id: int) -> bool:
        return request_id in self._entries

    def find(self, request_id: int) -> Entry | None:
        """The open request of this id."""
        return self._entries.get(request_id)

    def all(self) -> list[Entry]:
        """Every open request, in order of admission."""
        return list(self._entries.values())

    def open(self, entry: Entry) -> None:
        """Take a request that was admitted."""
        self._entries[entry.id] = entry
        self.rows += entry.rows
        self.bytes += entry.bytes

    def end(
        self,
        entry: Entry,
        outcome: Outcome,
        reason: str,
        *,
        needed_ns: int | None = None,
        had_ns: int | None = None,
        retry_after_ns: int | None = None,
        message: str = "",
    ) -> None:
        """End an open request. The caller has taken it out of its queue or batch."""
        check(entry.place is not Place.ENDED, f"request {entry.id} ended twice")
        entry.place = Place.ENDED
        del self._entries[entry.id]
        self.rows -= entry.rows
        self.bytes -= entry.bytes
        self._endings.append(Ending(entry.id, outcome, reason, needed_ns, had_ns, retry_after_ns, message))

    def refuse(self, ending: Ending) -> None:
        """Note the end of a request that was never admitted."""
        self._endings.append(ending)

    def take_endings(self) -> tuple[Ending, ...]:
        """The endings since the last call."""
        endings = tuple(self._endings)
        self._endings.clear()
        return endings
