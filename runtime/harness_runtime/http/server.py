"""Serves an ASGI application on the loop that is already running.

uvicorn's protocol without uvicorn's own server: that one wakes ten times a second and takes over the signals.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from harness_runtime.edge.port import bind_error

if TYPE_CHECKING:
    from starlette.applications import Starlette

KEEP_ALIVE_S = 75
"""Idle connections stay open for longer than the usual scrape interval of a minute."""


class HttpServer:
    """One listening socket. ``port`` 0: a free one."""

    def __init__(self, app: Starlette, bind: str, port: int) -> None:
        self._bind = bind
        self._port = port
        self._config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            ws="none",
            timeout_keep_alive=KEEP_ALIVE_S,
            server_header=False,
        )
        self._state = ServerState()
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen; the port.

        Raises:
            BindError: the address cannot be bound.
        """
        self._config.load()
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self._protocol, self._bind, self._port)
        except OSError as error:
            raise bind_error(self._bind, self._port, error) from error
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Close the socket and every connection; an answer under way is still sent."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(list(self._state.tasks), timeout=1.0)

    def _protocol(self) -> H11Protocol:
        return H11Protocol(config=self._config, server_state=self._state, app_state={})
