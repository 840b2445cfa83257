"""``harness run``."""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from typing import Annotated

import typer
from rich.live import Live
from rich.markup import escape

from harness_cli.output import Output
from harness_cli.run.options import BIND, RunOptions
from harness_cli.run.replica import LOG_LINES, Replica
from harness_cli.run.supervisor import Supervisor, SupervisorSettings
from harness_cli.usage import FileOption, NamedFile, check_device, choose_file

SCRAPE_S = 1.0
_QUIET = ("level=info", "level=debug")
KILL_MARGIN_S = 10.0
"""Beyond the grace period, as Kubernetes is asked to give (terminationGracePeriodSeconds)."""


def run(
    named: NamedFile = None,
    file: FileOption = None,
    trust_repository: Annotated[
        bool,
        typer.Option(
            "--trust-repository", help="Load TorchExport and TorchScript models without a sha256 in the file."
        ),
    ] = False,
    allow_python_models: Annotated[
        bool, typer.Option("--allow-python-models", help="Run models of format Python: code from the model repository.")
    ] = False,
    port_base: Annotated[
        int,
        typer.Option(min=0, max=65535, help="Replica k listens on N+2k (gRPC) and N+2k+1 (metrics); 0: free ports."),
    ] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Annotated[
        int | None, typer.Option(min=1, help="Compute threads per replica (default: cores / replicas).")
    ] = None,
    bind: Annotated[str, typer.Option(metavar="ADDRESS", help="Address that the replicas listen on.")] = BIND,
    max_message_bytes: Annotated[
        int | None, typer.Option(min=1024, help="Largest message in either direction (64 MiB).")
    ] = None,
    accelerator_class: Annotated[
        str, typer.Option(help="Class whose LatencyProfiles apply beside those for any.")
    ] = "",
    replicas: Annotated[
        int | None, typer.Option(min=1, help="Replicas of each worker group, instead of the file's.")
    ] = None,
    duration: Annotated[
        float | None, typer.Option(min=0, help="Drain and end this many seconds after all are ready.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show all that the replicas log, not only warnings and errors.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON line per event on stdout; text goes to stderr.")
    ] = False,
) -> None:
    """Serve a file's models on this machine: one runtime process per replica, each on its own port.

    A crashed replica is started again with growing pauses, on the same ports. Ctrl-C or SIGTERM drains all of them and
    ends with exit code 0. The replicas are separate servers: clients choose among their addresses (harness load takes
    several --url). One address in front of the pool comes with the gateway.
    """
    from harness_cli.run.plan import drain_seconds, plan_replicas
    from harness_cli.service_file import located, read_service

    path = choose_file("run", named, file or [])
    check_device(device)
    options = RunOptions(
        file=path, trust_repository=trust_repository, allow_python_models=allow_python_models, port_base=port_base,
        device=device, threads=threads, bind=bind, max_message_bytes=max_message_bytes,
        accelerator_class=accelerator_class, replicas=replicas,
    )  # fmt: skip
    found = read_service(path, trust_repository=trust_repository)
    output = Output(json=json)
    for notice in found.notices:
        output.say(f"note: {escape(located(path, notice))}")
    settings = SupervisorSettings(drain_s=drain_seconds(found.service) + KILL_MARGIN_S)
    title = f"{found.service.metadata.name} ({path})"
    session = _Session(output, title, plan_replicas(found.service, options), settings, verbose=verbose)
    asyncio.run(session.run(duration))


class _Session:
    """One run of the command: supervisor, scraper and screen around the same replicas."""

    def __init__(
        self, output: Output, title: str, replicas: list[Replica], settings: SupervisorSettings, *, verbose: bool
    ) -> None:
        self._output = output
        self._verbose = verbose
        self._title = title
        self._replicas = replicas
        self._held: deque[tuple[Replica, str]] = deque(maxlen=LOG_LINES * len(replicas))
        """Warnings of replicas that are not ready yet: one that never gets there ends the command with its own words."""
        self._supervisor = Supervisor(replicas, self._event, self._log, settings)

    async def run(self, duration: float | None) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        companions = [asyncio.create_task(self._after_ready(duration))]
        if self._output.live:
            companions.append(asyncio.create_task(self._screen()))
        try:
            await self._supervisor.run()
        finally:
            for companion in companions:
                companion.cancel()
            await asyncio.gather(*companions, return_exceptions=True)
            self._output.emit({"event": "all_stopped"})

    def _stop(self) -> None:
        self._release()
        self._output.say("draining …")
        self._supervisor.stop()

    def _event(self, replica: Replica, event: str) -> None:
        self._output.emit({"event": event, **replica.describe()})
        if event == "ready":
            self._release(replica)
        if event == "crashed" and replica.was_ready:
            self._output.say(f"{replica.name} ended unexpectedly (exit code {replica.exit_code}); it is started again")

    def _log(self, replica: Replica, line: str) -> None:
        if not self._verbose and any(level in line for level in _QUIET):
            return
        if self._verbose or replica.was_ready:
            self._output.say(f"[dim]{replica.name}[/] {escape(line)}")
        else:
            self._held.append((replica, line))

    def _release(self, replica: Replica | None = None) -> None:
        """Show what was held back of this replica; None: of all."""
        held = list(self._held)
        self._held.clear()
        for other, line in held:
            if replica is None or other is replica:
                self._output.say(f"[dim]{other.name}[/] {escape(line)}")
            else:
                self._held.append((other, line))

    async def _after_ready(self, duration: float | None) -> None:
        await self._supervisor.wait_ready()
        addresses = [replica.grpc for replica in self._replicas]
        self._output.emit(
            {"event": "all_ready", "addresses": addresses, "replicas": [r.describe() for r in self._replicas]}
        )
        for replica in self._replicas:
            self._output.say(f"{replica.name} is ready: gRPC {replica.grpc}, metrics http://{replica.metrics}/metrics")
        if duration is not None:
            await asyncio.sleep(duration)
            self._supervisor.stop()

    async def _screen(self) -> None:
        """Scrape and redraw once a second."""
        from harness_cli.run.scrape import Window, fetch
        from harness_cli.run.view import live_table

        windows = {replica.name: Window() for replica in self._replicas}

        async def scrape(replica: Replica) -> None:
            found = await fetch(replica.metrics) if replica.metrics else None
            if found is not None:
                windows[replica.name].add(found)

        with Live(console=self._output.console, auto_refresh=False, transient=False) as live:
            while True:
                await asyncio.gather(*(scrape(replica) for replica in self._replicas))
                figures = {name: window.figures() for name, window in windows.items()}
                live.update(live_table(live.console, self._title, self._replicas, figures), refresh=True)
                await asyncio.sleep(SCRAPE_S)
