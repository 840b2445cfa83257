"""Settings of the executor, as plain values; parsed at the edge (``harness_runtime.settings``)."""

from __future__ import annotations

from dataclasses import dataclass

SECOND_NS = 1_000_000_000
DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    """How the executor process is run. Times are nanoseconds."""

    device: str = "auto"
    """``auto`` (CUDA when torch sees a device, else CPU), ``cpu`` or ``cuda``."""
    threads: int | None = None
    """Threads of torch inside an operator; None: torch's own choice (one per core)."""
    allow_python_models: bool = False
    """Python models run code of the repository; without this they are refused at load."""
    slots: int = 2
    """Batches submitted and unreleased at a time: one running and one staged (design.md §2.5)."""
    slot_bytes_max: int = 1 << 30
    """Bound of a batch's inputs, and of its outputs, in bytes. Memory is taken only as it is written to. The default is 16
    messages of the default largest size (64 MiB). A model whose full batch cannot fit is refused at load."""
    start_timeout_ns: int = 120 * SECOND_NS
    """From the start of the process to its first sign of life."""
    load_timeout_ns: int = 900 * SECOND_NS
    """For one model. Generous: weights may come from a slow disk. Also bounds a run of which nothing is known (``expected_ns`` 0:
    a first run may compile)."""
    watchdog_factor: float = 10.0
    """A run is killed after this many times its expected latency …"""
    watchdog_floor_ns: int = 30 * SECOND_NS
    """… but never before this: a machine that swaps or throttles is slow, not dead."""
    restart_backoff_ns: int = SECOND_NS // 10
    """Wait before the second start in a row; doubles with every further one. The first restart is immediate."""
    restart_backoff_max_ns: int = 30 * SECOND_NS
    steady_ns: int = 10 * SECOND_NS
    """A process that was up for so long makes the next restart a first one again."""
    stop_grace_ns: int = 2 * SECOND_NS
    """An idle process is asked to end, and killed after this; a running batch is not waited for."""

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise ValueError(f"device must be one of {', '.join(DEVICES)}, got '{self.device}'")
        for name in ("slots", "slot_bytes_max", "start_timeout_ns", "load_timeout_ns"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads must be at least 1, got {self.threads}")
