"""From an InferenceService file to the replicas to start."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from harness_api.inferenceservice import InferenceService
from harness_api.worker_groups import RuntimeKind

from harness_cli.errors import CliError
from harness_cli.run.options import RunOptions
from harness_cli.run.replica import Replica

REPLICAS_MAX = 64
"""Most processes that one command starts."""


def default_threads(replicas: int) -> int:
    """Compute threads of one of ``replicas`` processes that share this machine: cores / replicas, at least 1."""
    return max(1, (os.cpu_count() or 1) // max(1, replicas))


def replicas_of(service: InferenceService) -> int:
    """Replicas that ``harness run`` starts for the service, all groups together."""
    groups = [group for group in service.spec.worker_groups if group.runtime.kind is RuntimeKind.HARNESS]
    return sum(group.initial_replicas for group in groups)


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
    threads = options.threads or default_threads(total)
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
        return [
            *(sys.executable, "-m", "harness_runtime.main"),
            *("--service", str(options.file), "--group", group),
            *("--grpc-port", str(grpc_port), "--metrics-port", str(metrics_port)),
            *("--threads", str(threads), *options.flags()),
        ]

    return argv
