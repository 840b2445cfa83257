"""The gRPC edge: one grpc.aio server with the OIP service, health and reflection."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health, health_pb2_grpc

from harness_runtime.edge.grpc import gone
from harness_runtime.edge.grpc.health import Health
from harness_runtime.edge.grpc.reflection import add_reflection
from harness_runtime.edge.grpc.servicer import SERVICE, Servicer
from harness_runtime.edge.port import BindError, bind_error

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from harness_runtime.dataplane import DataPlane
    from harness_runtime.edge.port import EdgeSettings

INT32_MAX = 2**31 - 1


class GrpcEdge:
    """Adapter of :class:`harness_runtime.edge.port.Edge`. Start and stop belong on the event loop that serves."""

    def __init__(self, plane: DataPlane, settings: EdgeSettings) -> None:
        self._plane = plane
        self._settings = settings
        self._server: grpc.aio.Server | None = None
        self._health = Health(plane)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False

    async def start(self) -> int:
        """Listen on the configured address; the port.

        Raises:
            BindError: the address cannot be bound.
        """
        settings = self._settings
        gone.quiet()
        server = grpc.aio.server(options=_options(settings))
        server.add_generic_rpc_handlers((Servicer(self._plane, settings.hop, settings.max_message_bytes).handler(),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        add_reflection(server, (SERVICE, health.SERVICE_NAME))
        host = f"[{settings.bind}]" if ":" in settings.bind else settings.bind
        address = f"{host}:{settings.port}"
        try:
            port: int = server.add_insecure_port(address)
        except RuntimeError:
            port = 0
        if port == 0:
            raise _reason(settings.bind, settings.port)
        await self._health.refresh()
        await server.start()
        self._server = server
        self._plane.subscribe(self._refresh_health)
        return port

    def set_serving(self, service: str, serving: bool) -> None:
        """State of a name in the health service; it overrides what the data plane says of it."""
        self._health.force(service, serving)
        self._refresh_health()

    async def drain(self) -> None:
        """Report NOT_SERVING for every name from now on; calls are still taken and answered."""
        await self._health.enter_graceful_shutdown()

    async def stop(self, grace_s: float) -> None:
        """Take no new calls, let running ones end for at most ``grace_s`` seconds, then cancel them."""
        self._stopping = True
        self._health.end_watches()
        if self._server is not None:
            await self._server.stop(grace_s)
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _refresh_health(self) -> None:
        if not self._stopping and self._server is not None:
            self._spawn(self._health.refresh())

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        # The loop keeps only weak references to tasks.
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _reason(host: str, port: int) -> BindError:
    """Why gRPC cannot listen there. It does not tell, so the system is asked."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
                probe.listen(1)
    except OSError as error:
        return bind_error(host, port, error)
    return bind_error(host, port, OSError(0, "gRPC refuses the address"))


def _options(settings: EdgeSettings) -> list[tuple[str, int]]:
    """Options of the gRPC core, each with its reason."""
    limit = settings.max_message_bytes
    return [
        # The servicer refuses what is over the limit and names limit and hop (scenario B024); the core's own refusal can
        # name neither, so it stands behind, at four times the limit, and keeps memory bounded.
        ("grpc.max_receive_message_length", min(4 * limit + (1 << 20), INT32_MAX)),
        # The servicer has measured the response.
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", settings.max_concurrent_streams),
        # Two servers on one port would each get a part of the calls without a word.
        ("grpc.so_reuseport", 0),
        # Finds a client whose host is gone, so that its requests are withdrawn.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        # Clients that keep connections warm with pings every ten seconds are welcome, also between calls.
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
        # HTTP/2's 16 KiB frames cost a third more on large inputs (scheduling.md §7).
        ("grpc.http2.max_frame_size", 131_072),
    ]
