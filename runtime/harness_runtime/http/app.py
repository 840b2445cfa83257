"""Pages of the metrics port, as a starlette application."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request


@dataclass(frozen=True, slots=True)
class Pages:
    """What the pages show, read at the time of the request.

    ``live``: the process should go on (never depends on models or queues). ``not_ready``: why the server is not ready, empty when it is.
    """

    metrics: Callable[[], bytes]
    live: Callable[[], bool]
    not_ready: Callable[[], str]
    state: Callable[[], Mapping[str, Any]]


def build_app(pages: Pages) -> Starlette:
    """``/metrics``, ``/healthz`` (liveness), ``/readyz`` (readiness) and ``/state``."""

    # Coroutines, though they wait for nothing: plain functions would be run in threads, and the state belongs to the loop.
    async def metrics(_: Request) -> Response:
        return Response(pages.metrics(), media_type=CONTENT_TYPE_LATEST)

    async def healthz(_: Request) -> Response:
        live = pages.live()
        return PlainTextResponse("ok\n" if live else "the batcher is dead\n", 200 if live else 503)

    async def readyz(_: Request) -> Response:
        reason = pages.not_ready()
        return PlainTextResponse(f"{reason}\n" if reason else "ok\n", 503 if reason else 200)

    async def state(_: Request) -> Response:
        return Response(json.dumps(pages.state(), indent=2) + "\n", media_type="application/json")

    return Starlette(
        routes=[
            Route("/metrics", metrics),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/state", state),
        ]
    )
