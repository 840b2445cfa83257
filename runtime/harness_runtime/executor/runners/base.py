"""What the child's loop asks of a runner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from harness_runtime.tensors import Datatype


@dataclass(frozen=True, slots=True)
class Produced:
    """One output as a model returned it, not yet checked.

    ``datatype`` is None where the model's type is none of ours; ``type_name`` is then what to tell the user. ``write`` copies the
    values into a row-major array of ``shape``, whatever their own layout. BYTES outputs come as ``elements`` instead.
    """

    name: str
    datatype: Datatype | None
    type_name: str
    shape: tuple[int, ...]
    write: Callable[[npt.NDArray[Any]], None]
    elements: npt.NDArray[Any] | None = None


class Runner(Protocol):
    """A loaded model."""

    device: str
    """Where it runs, for people: ``cpu``, a GPU's name, ``emulated``."""

    def run(self, inputs: Mapping[str, npt.NDArray[Any]], size: int) -> list[Produced]:
        """Run ``size`` rows. ``inputs`` are views of the slot: valid during the call only. May raise anything."""

    def settle(self, start_ns: int, size: int) -> None:
        """Return when the run that began at ``start_ns`` (monotonic clock) is over; outputs have been written."""


class ModelFaultError(Exception):
    """A model contradicts its declaration; the message is for the user."""


class DeviceLostError(Exception):
    """The device's context can run nothing any more; only a new process helps."""
