"""``harness-runtime``: serves one worker group's models of an InferenceService on this machine."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from harness_api.load import load_file

from harness_runtime import logs
from harness_runtime.edge.port import BindError
from harness_runtime.executor.settings import DEVICES
from harness_runtime.settings import RuntimeOptions, SettingsError, from_service

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness_api.base import Fault
    from harness_api.load import LoadResult

    from harness_runtime.settings import RuntimeSettings

log = logging.getLogger(__name__)

USERS_MISTAKE = 2


def _fail(message: str) -> NoReturn:
    sys.stderr.write(f"harness-runtime: {message}\n")
    raise SystemExit(USERS_MISTAKE)


def _fail_with(what: str, faults: Sequence[Fault]) -> NoReturn:
    """One fault on the same line, several on lines of their own."""
    separator = " " if len(faults) == 1 else "\n  "
    _fail(f"{what}:{separator}" + "\n  ".join(map(str, faults)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="harness-runtime",
        description="Serve the models of an InferenceService over the Open Inference Protocol. "
        "Prints one JSON line per life event on stdout, logs on stderr.",
    )
    add, default = parser.add_argument, RuntimeOptions()
    add("--service", type=Path, required=True, metavar="FILE", help="YAML with the InferenceService")
    add("--group", metavar="NAME", help="worker group to serve; may be left out when there is only one")
    add("--bind", default=default.bind, metavar="ADDRESS", help="address to listen on (%(default)s)")
    add("--grpc-port", type=int, default=default.grpc_port, metavar="N", help="0: a free one (%(default)s)")
    add("--metrics-port", type=int, default=default.metrics_port, metavar="N", help="0: a free one (%(default)s)")
    add("--allow-python-models", action="store_true", help="run code of the model repository")
    add("--trust-repository", action="store_true", help="load formats that can run code when they are read")
    add("--device", choices=DEVICES, default=default.device, help="where models run (%(default)s)")
    add("--threads", type=int, metavar="N", help="threads of torch inside an operator (default: torch's own choice)")
    add(
        "--max-message-bytes",
        type=int,
        default=default.max_message_bytes,
        metavar="N",
        help="largest message in either direction (%(default)s)",
    )
    add("--accelerator-class", default="", metavar="NAME", help="class whose LatencyProfiles apply")
    add("--announce", type=int, default=logs.STDOUT, metavar="FD", help="write the life events to this descriptor")
    add("--verbose", action="store_true", help="log more")
    return parser


def _read_service(arguments: argparse.Namespace) -> LoadResult:
    path: Path = arguments.service
    loaded = load_file(path, trust_repository=arguments.trust_repository or None)
    if loaded.faults:
        _fail_with(str(path), loaded.faults)
    if len(loaded.services) != 1:
        _fail(f"{path} holds {len(loaded.services)} InferenceServices, exactly one is needed")
    return loaded


def _settings(arguments: argparse.Namespace) -> RuntimeSettings:
    loaded = _read_service(arguments)
    options = RuntimeOptions(
        bind=arguments.bind,
        grpc_port=arguments.grpc_port,
        metrics_port=arguments.metrics_port,
        allow_python_models=arguments.allow_python_models,
        trust_repository=arguments.trust_repository,
        device=arguments.device,
        threads=arguments.threads,
        max_message_bytes=arguments.max_message_bytes,
        accelerator_class=arguments.accelerator_class,
    )
    for notice in loaded.notices:
        # Nothing to be warned of: the same file serves a cluster. harness run tells them once for all replicas.
        log.info("note: %s", notice)
    try:
        return from_service(
            loaded.services[0],
            group=arguments.group,
            base_dir=arguments.service.resolve().parent,
            options=options,
            profiles=loaded.profiles,
        )
    except SettingsError as error:
        _fail_with(f"{arguments.service} cannot be served here", error.faults)


async def _serve(settings: RuntimeSettings, announce_fd: int) -> int:
    # gRPC's core writes lines of its own beside our log, also for what we report ourselves (a port that is taken).
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Late: a mistake in the settings is told before gRPC is loaded.
    from harness_runtime.server import serve  # noqa: PLC0415

    return await serve(settings, logs.announcer(announce_fd))


def main(argv: Sequence[str] | None = None) -> int:
    """Run; the exit code: 0 after a drain, 1 after a failure, 2 for a user's mistake."""
    arguments = _parser().parse_args(argv)
    logs.configure(logging.DEBUG if arguments.verbose else logging.INFO)
    settings = _settings(arguments)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(settings, arguments.announce))
    except BindError as error:
        _fail(str(error))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """The loop of uvloop where it is installed: a tenth less CPU per call (scheduling.md §7)."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return asyncio.new_event_loop
    make: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return make


if __name__ == "__main__":
    raise SystemExit(main())
