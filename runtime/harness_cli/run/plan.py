"""From an InferenceService file to the replicas to start."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness_api.inferenceservice import InferenceService
from harness_api.worker_groups import RuntimeKind

from harness_cli.errors import CliError
from harness_cli.run.replica import Replica

BIND = "127.0.0.1"
REPLICAS_MAX = 64
"""Most processes that one command starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of ``harness run`` that shape the processes. ``port_base`` 0: free ports."""

    file: Path
    trust_repository: bool = False
    allow_python_models: bool = False
    port_base: int = 0
    device: str = "auto"
    threads: int | None = None
    replicas: int | None = None


def plan_replicas(service: InferenceService, options: RunOptions) -> list[Replica]:
    """One replica per process to start. Raises CliError for groups that this command cannot run, or too many replicas."""
    counts: list[tuple[str, int]] = []
    for group in service.spec.worker_groups:
        if group.runtime.kind is not RuntimeKind.HARNESS:
            raise CliError(
                f"{options.file}: worker group {group.name!r} has runtime kind {group.runtime.kind}: only the gateway can"
                " serve it; harness run starts Harness runtimes"
            )
        counts.append((group.name, group.initial_replicas if options.replicas is None else options.replicas))
    total = sum(count for _, count in counts)
    if not 1 <= total <= REPLICAS_MAX:
        raise CliError(f"{options.file}: {total} replicas in all, 1 to {REPLICAS_MAX} can be run here")
    if options.port_base and options.port_base + 2 * total > 65536:
        raise CliError(
            f"--port-base {options.port_base}: {total} replicas need ports up to {options.port_base + 2 * total - 1}"
        )
    threads = options.threads or max(1, (os.cpu_count() or 1) // total)
    names = [(group, f"{group}-{i}") for group, count in counts for i in range(count)]
    return [
        Replica(
            name=name,
            group=group,
            command=_command(options, group, threads),
            grpc_port=options.port_base and options.port_base + 2 * k,
            metrics_port=options.port_base and options.port_base + 2 * k + 1,
        )
        for k, (group, name) in enumerate(names)
    ]


def drain_seconds(service: InferenceService) -> float:
    """Longest grace period of the groups."""
    return float(max(group.drain.grace_period_seconds for group in service.spec.worker_groups))


def _command(options: RunOptions, group: str, threads: int) -> Callable[[int, int], Sequence[str]]:
    def argv(grpc_port: int, metrics_port: int) -> Sequence[str]:
        flags = [
            *(["--trust-repository"] if options.trust_repository else []),
            *(["--allow-python-models"] if options.allow_python_models else []),
        ]
        return [
            *(sys.executable, "-m", "harness_runtime.main"),
            *("--service", str(options.file), "--group", group, "--bind", BIND),
            *("--grpc-port", str(grpc_port), "--metrics-port", str(metrics_port)),
            *("--device", options.device, "--threads", str(threads)),
            *flags,
        ]

    return argv
