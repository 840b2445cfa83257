"""Batches between submission and release, and the slots that they hold."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness_runtime.executor.layout import Placed, read
from harness_runtime.executor.memory import Side
from harness_runtime.ports import JobOutput, JobResult

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from harness_runtime.executor.memory import SlotMemory
    from harness_runtime.ports import Job


@dataclass(slots=True)
class Flight:
    """A submitted batch. ``answer``: who waits for it, for runs outside the listener (None: the listener)."""

    job: Job
    slot: int
    generation: int
    batched: bool
    answer: asyncio.Future[JobResult] | None = None


class Flights:
    """Flights by generation, in the order of submission; one more slot than the batcher has is kept for measurements."""

    def __init__(self, slots: int) -> None:
        self.private_slot = slots
        self._free = set(range(slots))
        self._held: set[int] = set()
        self._flights: dict[int, Flight] = {}
        self._generations = itertools.count(1)

    def __bool__(self) -> bool:
        return bool(self._flights)

    def __iter__(self) -> Iterator[Flight]:
        return iter(self._flights.values())

    def free_slot(self) -> int | None:
        """A slot that no batch and no unread answer holds."""
        return min(self._free, default=None)

    def head(self) -> Flight | None:
        """The batch that runs now or next."""
        return next(iter(self._flights.values()), None)

    def get(self, generation: int) -> Flight | None:
        """The flight of a generation, if it is still under way."""
        return self._flights.get(generation)

    def of_batch(self, batch_id: int) -> Flight | None:
        """The batcher's flight of this batch, if it is still under way."""
        return next((each for each in self if each.answer is None and each.job.batch_id == batch_id), None)

    def next_generation(self) -> int:
        """A number that no batch had before."""
        return next(self._generations)

    def add(self, flight: Flight) -> None:
        """A batch was handed over."""
        self._free.discard(flight.slot)
        self._flights[flight.generation] = flight

    def remove(self, generation: int) -> None:
        """A batch ended without outputs in its slot."""
        flight = self._flights.pop(generation)
        self._give_back(flight.slot)

    def hold(self, generation: int) -> Callable[[], None]:
        """A batch ended and its outputs lie in its slot; the returned function gives the slot back, once."""
        slot = self._flights.pop(generation).slot
        self._held.add(slot)

        def release() -> None:
            if slot in self._held and pending:
                pending.clear()
                self._held.discard(slot)
                self._give_back(slot)

        pending = [slot]
        return release

    def drop_all(self) -> list[Flight]:
        """The process is gone: every flight ends here. Answers that are being read keep their slots until released."""
        lost = list(self._flights.values())
        for flight in lost:
            self.remove(flight.generation)
        return lost

    def _give_back(self, slot: int) -> None:
        if slot != self.private_slot:
            self._free.add(slot)


def read_result(
    memory: SlotMemory, flight: Flight, execution_ns: int, placed: list[Any], release: Callable[[], None]
) -> JobResult:
    """The outputs of a finished batch as views of its slot, rows of padding cut off.

    Raises:
        ValueError: what the child says does not describe what lies in the slot.
    """
    written = memory.generation(flight.slot, Side.OUTPUTS)
    if written != flight.generation:
        raise ValueError(f"slot {flight.slot} holds generation {written}, {flight.generation} was expected")
    region = memory.region(flight.slot, Side.OUTPUTS)
    outputs = []
    for each in map(Placed.from_json, placed):
        array = read(region, each)
        if flight.batched:
            if not each.shape or each.shape[0] != flight.job.execution_size:
                raise ValueError(
                    f"output '{each.name}' has shape {each.shape}, {flight.job.execution_size} rows were run"
                )
            array = array[: flight.job.rows]
        outputs.append(JobOutput(each.name, each.datatype, array))
    return JobResult(flight.job.batch_id, execution_ns, outputs, release=release)
