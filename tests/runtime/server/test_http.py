"""The metrics port: pages, and that it neither polls nor blocks."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request

import pytest
from harness_runtime.edge.port import BindError
from harness_runtime.http.app import Pages, build_app
from harness_runtime.http.server import HttpServer


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def pages(*, live: bool = True, not_ready: str = "") -> Pages:
    return Pages(lambda: b"a_metric 1\n", lambda: live, lambda: not_ready, lambda: {"models": []})


def fetch_all(shown: Pages, *paths: str) -> list[tuple[int, str]]:
    async def scenario() -> list[tuple[int, str]]:
        server = HttpServer(build_app(shown), "127.0.0.1", 0)
        port = await server.start()
        try:
            return [await asyncio.to_thread(get, port, path) for path in paths]
        finally:
            await server.stop()

    return asyncio.run(scenario())


def test_pages_say_what_the_server_says():
    """Metrics, probes and state on one port; a path that is not there is 404."""
    answers = fetch_all(pages(), "/metrics", "/healthz", "/readyz", "/state", "/nothing")
    assert [status for status, _ in answers] == [200, 200, 200, 200, 404]
    assert answers[0][1] == "a_metric 1\n"
    assert '"models"' in answers[3][1]


def test_readiness_and_liveness_differ():
    """Not ready is no reason to be killed; a dead batcher is (B004, B040)."""
    assert fetch_all(pages(not_ready="model m is LOADING"), "/healthz", "/readyz") == [
        (200, "ok\n"),
        (503, "model m is LOADING\n"),
    ]
    assert fetch_all(pages(live=False), "/healthz")[0][0] == 503


def test_a_taken_port_is_named():
    """The message says which address could not be had."""

    async def scenario() -> None:
        first = HttpServer(build_app(pages()), "127.0.0.1", 0)
        port = await first.start()
        try:
            with pytest.raises(BindError, match=f"127.0.0.1:{port}"):
                await HttpServer(build_app(pages()), "127.0.0.1", port).start()
        finally:
            await first.stop()

    asyncio.run(scenario())


def test_idle_server_has_no_timers():
    """No polling: between requests nothing is scheduled (issue 3, idle CPU < 1 %)."""

    async def scenario() -> int:
        server = HttpServer(build_app(pages()), "127.0.0.1", 0)
        await server.start()
        await asyncio.sleep(0)
        timers = len(asyncio.get_running_loop()._scheduled)
        await server.stop()
        return timers

    assert asyncio.run(scenario()) == 0
