"""The requests that have not ended: the one place that holds their payloads, from arrival to end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness_core.outcome import ANSWERED

from harness_runtime.batcher.endings import error_of
from harness_runtime.ports import WorkResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from harness_core.decision import Ending

    from harness_runtime.errors import RequestEnded
    from harness_runtime.ports import Work
    from harness_runtime.tensors import Tensor


@dataclass(slots=True)
class Waiting:
    """One request.

    ``outputs`` is set when its batch came back and before the machine has said how it ended; ``done_ns`` then says when, and
    ``first`` that it is the first of its batch, by which the way to the answer is measured.
    """

    work: Work
    answer: asyncio.Future[WorkResult | RequestEnded]
    started: bool = False
    outputs: list[Tensor] | None = None
    done_ns: int = 0
    first: bool = False


class Waiters:
    """Open requests by id. Ends are handed over through futures: as values, since nobody may be left to take an exception."""

    def __init__(self) -> None:
        self._open: dict[int, Waiting] = {}
        self._emptied: list[asyncio.Future[None]] = []

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._open

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._open))

    def add(self, request_id: int, work: Work) -> Waiting:
        """A request came."""
        waiting = self._open[request_id] = Waiting(work, asyncio.get_running_loop().create_future())
        return waiting

    def works(self, request_ids: Iterable[int]) -> list[Work]:
        """Payloads of open requests. Raises KeyError for one that is not."""
        return [self._open[request_id].work for request_id in request_ids]

    def alive(self, request_ids: Iterable[int]) -> dict[int, Work]:
        """Payloads of those that are still open, by id."""
        return {request_id: self._open[request_id].work for request_id in request_ids if request_id in self._open}

    def begin(self, request_ids: Iterable[int], now: int) -> list[int]:
        """Their batch began to run: arrival to now in ns, of those that start for the first time."""
        waits = []
        for request_id in request_ids:
            waiting = self._open.get(request_id)
            if waiting is not None and not waiting.started:
                waiting.started = True
                waits.append(now - waiting.work.arrival_ns)
        return waits

    def keep(self, outputs: Mapping[int, list[Tensor]], now: int) -> None:
        """Their batch came back; how each ended is for the machine to say."""
        for index, (request_id, tensors) in enumerate(outputs.items()):
            waiting = self._open[request_id]
            waiting.outputs, waiting.done_ns, waiting.first = tensors, now, index == 0

    def end(self, now: int, ending: Ending) -> tuple[Work, int | None]:
        """Hand over an end; the request's work, and arrival to answer in ns where there was one.

        Raises:
            AssertionError: it is to be answered and has no outputs, or is not open.
        """
        waiting = self._open.get(ending.request_id)
        assert waiting is not None, f"request {ending.request_id} ended twice"  # noqa: S101 - the machine's promise
        result: WorkResult | RequestEnded
        latency_ns = None
        if ending.outcome not in ANSWERED:
            result = error_of(ending, waiting.work.spec.name)
        else:
            assert waiting.outputs is not None, f"request {ending.request_id} has no answer"  # noqa: S101 - as above
            result, latency_ns = WorkResult(waiting.outputs, ending.outcome), now - waiting.work.arrival_ns
        del self._open[ending.request_id]
        if not waiting.answer.done():
            waiting.answer.set_result(result)
        if not self._open:
            self._tell_emptied()
        return waiting.work, latency_ns

    async def wait_empty(self) -> None:
        """Return when no request is open."""
        if self._open:
            emptied = asyncio.get_running_loop().create_future()
            self._emptied.append(emptied)
            await emptied

    def _tell_emptied(self) -> None:
        for emptied in self._emptied:
            if not emptied.done():
                emptied.set_result(None)
        self._emptied.clear()
