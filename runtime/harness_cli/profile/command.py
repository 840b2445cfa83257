"""``harness profile``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness_cli.errors import FAILED, CliError
from harness_cli.output import Output
from harness_cli.profile.targets import check_targets
from harness_cli.usage import FileOption, NamedFile, check_device, choose_file

if TYPE_CHECKING:
    from harness_core.profile import LatencyProfile
    from harness_runtime.model import ModelSpec
    from harness_runtime.settings import RuntimeOptions, RuntimeSettings
    from rich.table import Table

SAMPLES = 50
"""Runs per size where the budget allows: enough for a p99 that is more than the maximum of a handful."""


def profile(
    named: NamedFile = None,
    file: FileOption = None,
    model: Annotated[str | None, typer.Option(help="Name of the model (default: the file's only one).")] = None,
    group: Annotated[str | None, typer.Option(help="Worker group (default: the file's only one).")] = None,
    output: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the LatencyProfile objects.")] = Path(
        "profile.yaml"
    ),
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also draw l(b), S(n) and U(n): .png, .svg or .pdf.")
    ] = None,
    budget: Annotated[
        float, typer.Option(min=1, help="Seconds to measure; every size runs at least twice whatever it costs.")
    ] = 60.0,
    accelerator_class: Annotated[str, typer.Option(help="Class that the profile is for (default: any).")] = "",
    trust_repository: Annotated[
        bool, typer.Option("--trust-repository", help="Load models without a sha256 in the file.")
    ] = False,
    allow_python_models: Annotated[
        bool, typer.Option("--allow-python-models", help="Run models of format Python.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    threads: Annotated[
        int | None, typer.Option(min=1, help="Compute threads (default: cores / replicas, as harness run).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON line on stdout.")] = False,
) -> None:
    """Measure the latency l(b) of a model at every execution size and shape bucket.

    Writes LatencyProfile objects: put them beside the InferenceService (in one file, or kubectl apply) and the pod plans
    with them. S(n) = n·l(1)/l(n) is the speedup of a batch, U(n) the utilisation.
    """
    from harness_runtime.settings import RuntimeOptions

    source = choose_file("profile", named, file or [])
    check_device(device)
    options = RuntimeOptions(
        trust_repository=trust_repository, allow_python_models=allow_python_models, device=device, threads=threads
    )
    settings = _settings(source, group, options)
    spec = _choose(settings, model)
    check_targets(output, picture, force=force)
    _Profiling(Output(json=json), settings, budget).run(spec, output, picture, accelerator_class)


def _settings(file: Path, group: str | None, options: RuntimeOptions) -> RuntimeSettings:
    from harness_runtime.settings import SettingsError, from_service

    from harness_cli.run.plan import default_threads, replicas_of
    from harness_cli.service_file import listed, read_service

    found = read_service(file, trust_repository=options.trust_repository)
    options = replace(options, threads=options.threads or default_threads(replicas_of(found.service)))
    try:
        return from_service(found.service, group=group, base_dir=file.resolve().parent, options=options)
    except SettingsError as error:
        raise CliError(listed(f"{file} cannot be profiled here", file, error.faults)) from None


class _Profiling:
    """One run of the command."""

    def __init__(self, output: Output, settings: RuntimeSettings, budget_s: float) -> None:
        self._output = output
        self._settings = settings
        self._budget_s = budget_s

    def run(self, spec: ModelSpec, file: Path, picture: Path | None, accelerator_class: str) -> None:
        from harness_runtime.executor.settings import ExecutorSettings
        from harness_runtime.profiler import Budget

        from harness_cli.profile.measure import measure_model, planned_points
        from harness_cli.profile.picture import draw
        from harness_cli.profile.resource import note, resources, to_yaml

        settings, output = self._settings, self._output
        executor = ExecutorSettings(
            device=settings.device, threads=settings.threads, allow_python_models=settings.allow_python_models
        )
        budget = Budget(total_ns=round(self._budget_s * 1e9), samples=SAMPLES)
        with _progress(output, planned_points(spec)) as told:
            measured = asyncio.run(measure_model(spec, executor, budget, told))
        title = f"{spec.name} version {spec.version} on {measured.device or settings.device}"
        objects = resources(spec, measured.profiles, accelerator_class, note(measured.device, settings.threads))
        with _writing(file):
            file.write_text(to_yaml(objects), encoding="utf-8")
        if picture is not None:
            with _writing(picture):
                draw(picture, title, measured.profiles)
        for bucket, found in measured.profiles.items():
            output.say(_table(f"{title}, {bucket or 'all shapes'}", found))
        output.say(f"wrote {file}" + (f" and {picture}" if picture else ""))
        output.emit(
            _figures(spec, measured.device, measured.profiles)
            | {"threads": settings.threads, "file": str(file), "picture": picture and str(picture)}
        )


def _choose(settings: RuntimeSettings, model: str | None) -> ModelSpec:
    specs = {entry.spec.name: entry.spec for entry in settings.models}
    if model is None and len(specs) == 1:
        return next(iter(specs.values()))
    if model not in specs:
        named = f"{model!r} is not one of them" if model else "--model must name one of them"
        raise CliError(f"worker group {settings.group!r} has the models {', '.join(specs)}: {named}")
    return specs[model]


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CliError(f"{path}: {error.strerror or error}", exit_code=FAILED) from None


@contextlib.contextmanager
def _progress(output: Output, points: int) -> Iterator[Callable[[int, int], None]]:
    from rich.progress import Progress

    if not output.live:
        yield lambda _points, _size: None
        return
    with Progress(console=output.console, transient=True) as bars:
        task = bars.add_task("loading", total=points)
        yield lambda begun, size: bars.update(task, completed=begun - 1, description=f"measuring size {size}")


def _table(title: str, profile: LatencyProfile) -> Table:
    from rich.table import Table

    fit = profile.fit()
    caption = f"fit: {fit.beta_ns / 1e6:.3f} + {fit.alpha_ns / 1e6:.4f}·b ms (off by {fit.max_rel_err:.0%} at most)"
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    for column in ("size", "p50 ms", "p99 ms", "samples", "rows/s", "S(n)", "U(n)"):
        table.add_column(column, justify="right")
    for point in profile.points:
        table.add_row(
            str(point.size),
            f"{point.p50_ns / 1e6:.3f}",
            "-" if point.p99_ns is None else f"{point.p99_ns / 1e6:.3f}",
            str(point.samples),
            f"{point.size * 1e9 / point.p50_ns:.0f}",
            f"{profile.speedup(point.size):.2f}",
            f"{profile.utilisation(point.size):.2f}",
        )
    return table


def _figures(spec: ModelSpec, device: str, profiles: Mapping[str, LatencyProfile]) -> dict[str, Any]:
    from harness_runtime.state import describe_profile

    found = {bucket: describe_profile(profile) for bucket, profile in profiles.items()}
    return {"model": spec.name, "version": spec.version, "digest": spec.digest, "device": device, "profiles": found}
