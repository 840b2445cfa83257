"""``grpc.health.v1`` over the data plane's readiness.

Names: "" and the service's own name (the whole server), and one per model. Liveness is not told here: a process that
answers is alive.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from grpc_health.v1 import health, health_pb2

from harness_runtime.edge.grpc.servicer import SERVICE

if TYPE_CHECKING:
    from harness_runtime.dataplane import DataPlane

_STATES = {
    True: health_pb2.HealthCheckResponse.SERVING,
    False: health_pb2.HealthCheckResponse.NOT_SERVING,
}


class Health(health.aio.HealthServicer):  # type: ignore[misc, name-defined] # its stubs forget aio
    """Answers from the data plane at the time of the question; watchers hear of changes through :meth:`refresh`."""

    def __init__(self, plane: DataPlane) -> None:
        super().__init__()
        self._plane = plane
        self._forced: dict[str, bool] = {}
        self._watches: set[asyncio.Task[None]] = set()
        self._ended = False

    def force(self, service: str, serving: bool) -> None:
        """Give a name a state of its own, whatever the data plane says."""
        self._forced[service] = serving

    async def refresh(self) -> None:
        """Take over the present state of every name."""
        ready = self._plane.server_ready()
        states = {name: self._plane.model_ready(name) for name in self._plane.model_names()}
        states |= {"": ready, SERVICE: ready} | self._forced
        for name, serving in states.items():
            await self.set(name, _STATES[serving])

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Any) -> Any:  # noqa: N802 - the protocol's name
        """State of one name, as it is now: a loop that died a moment ago is seen."""
        await self.refresh()
        return await super().Check(request, context)

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:  # noqa: N802 - the protocol's name
        """States of one name until the client leaves or the server stops."""
        if self._ended:
            return
        watch = asyncio.get_running_loop().create_task(super().Watch(request, context))
        self._watches.add(watch)
        try:
            await asyncio.wait({watch})
            if not watch.cancelled():
                watch.result()
        finally:
            watch.cancel()
            self._watches.discard(watch)

    def end_watches(self) -> None:
        """End every watch with what it has told: none of them ends by itself, and each would hold up the end of the server."""
        self._ended = True
        for watch in self._watches:
            watch.cancel()
