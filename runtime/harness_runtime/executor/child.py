"""The executor process: reads jobs from the control channel, runs them one after the other, writes answers into the slot.

Started by ``link`` as ``python -m harness_runtime.executor.child``. Ends when the channel closes or the parent dies. Blocks in
the kernel while idle: no polling.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import logging
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness_runtime import logs
from harness_runtime.executor import wire
from harness_runtime.executor.checks import write_outputs
from harness_runtime.executor.layout import Placed, read
from harness_runtime.executor.memory import WITHDRAWN, Side, SlotMemory
from harness_runtime.executor.runners import make_runner
from harness_runtime.executor.runners.base import DeviceLostError, ModelFaultError
from harness_runtime.executor.runners.faults import is_out_of_memory, own_frames, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness_runtime.executor.runners.base import Runner
    from harness_runtime.model import ModelSpec

log = logging.getLogger("harness_runtime.executor.child")

_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29
_TIMER_SLACK_NS = 1_000
"""Default is 50 µs: as much again as the whole hand-over, and an error of every emulated run."""


@dataclass(slots=True)
class Loaded:
    """A model in this process."""

    spec: ModelSpec
    runner: Runner


class Worker:
    """State of the process: models, memory, channel."""

    def __init__(self, channel: socket.socket, memory: SlotMemory, config: dict[str, Any]) -> None:
        self._channel = channel
        self._memory = memory
        self._config = config
        self._models: dict[str, Loaded] = {}

    def serve(self) -> None:
        """Answer messages until the channel closes or the parent says stop."""
        self._send(["ready", os.getpid()])
        while True:
            data = self._channel.recv(wire.MESSAGE_BYTES_MAX)
            if not data:
                return
            kind, *rest = wire.decode(data)
            if kind == "job":
                self._job(*rest)
            elif kind == "load":
                self._load(wire.spec_from_json(rest[0]))
            elif kind == "unload":
                self._unload(rest[0])
            elif kind == "stop":
                return

    def _send(self, message: list[Any]) -> None:
        self._channel.send(wire.encode(message))

    def _load(self, spec: ModelSpec) -> None:
        try:
            runner = make_runner(spec, self._config)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a model may raise anything
            _log_fault(f"model {spec.name} version {spec.version} does not load", error)
            _free_memory()
            self._send(["loaded", spec.digest, "", say(error)])
            return
        self._models[spec.digest] = Loaded(spec, runner)
        self._send(["loaded", spec.digest, runner.device, None])

    def _unload(self, digest: str) -> None:
        self._models.pop(digest, None)
        _free_memory()
        self._send(["unloaded", digest])

    def _job(self, generation: int, slot: int, digest: str, size: int, inputs: list[Any]) -> None:
        start_ns = time.monotonic_ns()
        written = self._memory.generation(slot, Side.INPUTS)
        if written == WITHDRAWN:
            self._send(["withdrawn", generation])
            return
        self._send(["started", generation])
        placed: list[Placed] = []
        reason, out_of_memory = None, False
        try:
            if written != generation:
                raise RuntimeError(f"slot {slot} holds generation {written}, the job says {generation}")
            placed = self._run(slot, digest, size, inputs, start_ns)
        except DeviceLostError as error:
            self._send(["failing", f"the device can run nothing any more: {say(error)}"])
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a model may raise anything
            # One bad batch hurts only itself, whatever a model raises; the traceback is for the log, not for callers.
            model = self._models.get(digest)
            _log_fault(f"model {model.spec.name if model else digest}: a batch of {size} rows failed", error)
            reason, out_of_memory = say(error), is_out_of_memory(error)
        if out_of_memory:
            _free_memory()
        self._memory.set_generation(slot, Side.OUTPUTS, generation)
        execution_ns = time.monotonic_ns() - start_ns
        metas = [each.to_json() for each in placed]
        self._send(["done", generation, execution_ns, metas, reason, out_of_memory])

    def _run(self, slot: int, digest: str, size: int, inputs: list[Any], start_ns: int) -> list[Placed]:
        model = self._models.get(digest)
        if model is None:
            raise ModelFaultError("the model is not loaded in this executor")
        region = self._memory.region(slot, Side.INPUTS)
        arrays = {each.name: read(region, each) for each in map(Placed.from_json, inputs)}
        produced = model.runner.run(arrays, size)
        placed = write_outputs(self._memory.region(slot, Side.OUTPUTS), model.spec, produced, size)
        model.runner.settle(start_ns, size)
        return placed


def _log_fault(what: str, error: BaseException) -> None:
    """One line with the model's own frames; all frames, most of them a framework's, only for who asked for more."""
    log.warning("%s: %s", what, say(error), extra={"trace": own_frames(error)})
    if not isinstance(error, ModelFaultError):
        log.debug("%s: every frame", what, exc_info=error)


def _free_memory() -> None:
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _bind_to_parent(parent: int) -> None:
    # The signal comes when the parent's *thread* that started this process ends: for an event loop on the main thread, the parent.
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_TIMERSLACK, _TIMER_SLACK_NS, 0, 0, 0)
    if os.getppid() != parent:
        # It died before the signal was armed.
        raise SystemExit("the parent is gone")


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of the process."""
    parser = argparse.ArgumentParser(description="executor process of the harness runtime; started by it")
    parser.add_argument("--control", type=int, required=True)
    parser.add_argument("--memory", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    options = parser.parse_args(argv)
    _bind_to_parent(options.parent)
    with socket.socket(fileno=options.control) as channel:
        kind, config = wire.decode(channel.recv(wire.MESSAGE_BYTES_MAX))
        if kind != "config":
            raise SystemExit(f"expected the configuration, got '{kind}'")
        logs.configure(config["log_level"], executor=os.getpid())
        worker = Worker(channel, SlotMemory(options.memory, config["slots"], config["region_bytes"]), config)
        try:
            worker.serve()
        except Exception:
            log.exception("the executor process ends")
            raise SystemExit(1) from None


if __name__ == "__main__":
    main()
