"""What ``make demo`` runs: serve a real sentence-embedding model, send it real sentences at a rising rate, check every answer.

    python demo.py [--quick] [--seconds S] [--json FILE] [--device auto|cpu|cuda]

Exit code 0: every answer agreed with the model run alone (cosine at least 0.9999), at least 99 % of the requests were on
time at the moderate rates, and under overload requests were refused before their deadlines. 1: something of that failed.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import export
import minilm
import numpy as np
from demo_figures import HIGH, MODERATE, ON_TIME_MIN, OVERLOAD, Step, deadline_ms_of, faults_of, make_step, profiles_of
from demo_sentences import Sentences, inputs_of
from demo_service import Service, ServiceError
from demo_tables import overload_line, profile_table, steps_table
from harness_cli.errors import CliError
from harness_cli.load.config import LoadConfig
from harness_cli.load.engine import run_load
from harness_cli.load.view import progress_line
from harness_cli.output import Output, write_json
from harness_sim.workloads import RateSchedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from harness_cli.load.report import LoadReport
    from harness_core.profile import LatencyProfile

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus" / "sentences.txt"
MODEL = "minilm"
STEP_S, STEP_QUICK_S = 12.0, 4.0
SENTENCES_QUICK = 1000
CALIBRATION_S, CALIBRATION_QUICK_S = 8.0, 4.0
FULL_BATCHES = 2
"""Full batches per replica that the calibration keeps under way: one runs, one gathers."""
REPEATS = 2
"""How often a step is done again when the machine turns out to be slower, or faster, than it was."""
QUERIES = ("the weather turned bad", "a disease of the skin", "someone was very angry")
QUERY_S = 30.0
PART = 25
"""Sentences that a thread takes at a time for the reference."""
BEST = 3


@dataclass
class Target:
    """What the load is measured by: sentences per second that can be had, and each request's deadline."""

    capacity: float
    deadline_ms: float


class Demo:
    """One run of the demo."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._out = Output(json=options.json == "-")
        self._step_s = options.seconds or (STEP_QUICK_S if options.quick else STEP_S)
        # One core's worth is left to the client; each replica has one thread on a machine of two cores.
        self._threads = max(1, ((os.cpu_count() or 2) - 1) // 2)

    def run(self) -> int:
        """All of it; the exit code."""
        start = time.monotonic()
        self._announce()
        service_file = self._export()
        sentences = self._prepare()
        log = export.BUILD / "service.log"
        with Service(service_file, threads=self._threads, device=self._options.device, log=log) as service:
            self._wait(service)
            profiles = profiles_of(service.state())
            self._say(profile_table(profiles, export.MAX_BATCH))
            deadline_ms = deadline_ms_of(profiles, sentences.main_bucket, export.MAX_BATCH)
            target = Target(self._calibrate(service, sentences), deadline_ms)
            self._say(
                f"Capacity {target.capacity:.0f} sentences/s. Deadline {deadline_ms} ms:"
                f" four full batches of {sentences.main_bucket} tokens.\n"
            )
            steps = self._rise(service, sentences, profiles[sentences.main_bucket], target)
            self._say(steps_table(steps, sentences.main_bucket))
            self._say(overload_line(steps[-1]))
            self._search(service, sentences)
        faults = faults_of(steps)
        self._write(steps, profiles, target, faults)
        answers = sum(step.answered for step in steps)
        for fault in faults:
            self._say(f"[bold red]FAILED[/] {fault}")
        if not faults:
            self._say(
                f"[bold green]OK[/] {answers} answers agree with the model run alone"
                f" (least cosine {min(step.cosine_min or 0.0 for step in steps):.6f});"
                f" {time.monotonic() - start:.0f} s in all."
            )
        return 1 if faults else 0

    # -- before the load -----------------------------------------------------------------------------------------------

    def _announce(self) -> None:
        weights = minilm.checked_weights()
        self._say(
            "[bold]Harness Serving demo[/]: all-MiniLM-L6-v2, real weights, two replicas on this machine.\n"
            "1. export the encoder to a torch.export program, and run it alone over the corpus as the reference\n"
            "2. start `harness run` with two replicas, on free ports; each measures its latency by batch size\n"
            f"3. measure the capacity, then send sentences at {MODERATE[0]:.0%} to {OVERLOAD:.0%} of it, each with a deadline\n"
            "4. compare every answer with the reference; table, picture, semantic search\n"
            f"Nothing is downloaded now; the weights ({weights.stat().st_size / 1e6:.0f} MB, sha256 checked) and torch came with"
            " `make venv`."
        )

    def _export(self) -> Path:
        start, fresh = time.monotonic(), export.is_fresh()
        file = export.build_all()
        self._say(f"Export: {'up to date' if fresh else f'made in {time.monotonic() - start:.1f} s'} ({_shown(file)})")
        return file

    def _prepare(self) -> Sentences:
        texts = CORPUS.read_text(encoding="utf-8").splitlines()
        texts = texts[:SENTENCES_QUICK] if self._options.quick else texts
        ids = minilm.tokenise(minilm.load_tokenizer(), texts)
        start = time.monotonic()
        alone = self._reference(ids)
        lengths = [minilm.bucket_of(len(each)) for each in ids]
        self._say(
            f"Corpus: {len(texts)} sentences from WordNet; padded to "
            + ", ".join(f"{size} tokens: {lengths.count(size)}" for size in minilm.BUCKETS)
            + f". Reference: {time.monotonic() - start:.1f} s."
        )
        return Sentences(texts, ids, alone)

    def _reference(self, ids: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.float32]:
        """Every sentence by itself through the plain torch module, in this process, unpadded; a thread per core."""
        import torch
        from rich.progress import track

        encoder = minilm.load_encoder()
        # A sentence is too little work to be shared among cores.
        torch.set_num_threads(1)
        parts = [ids[k : k + PART] for k in range(0, len(ids), PART)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            answers = pool.map(partial(minilm.embed_alone, encoder), parts)
            shown = track(
                answers,
                "model alone",
                len(parts),
                console=self._out.console,
                transient=True,
                disable=not self._out.live,
            )
            return np.concatenate(list(shown))

    def _wait(self, service: Service) -> None:
        start = time.monotonic()
        with self._out.console.status("starting two replicas: load, warm up, measure …") as status:
            service.wait_ready(lambda event: status.update(f"starting two replicas: {event}"))
        self._say(f"Two replicas ready in {time.monotonic() - start:.1f} s: {', '.join(service.addresses)}")

    def _calibrate(self, service: Service, sentences: Sentences) -> float:
        """Sentences per second with full batches: clients that each wait for their answer, no deadline."""
        order, samples = sentences.in_turn()
        report = self._load(
            LoadConfig(
                urls=service.addresses,
                model=MODEL,
                closed=FULL_BATCHES * export.MAX_BATCH * len(service.addresses),
                duration_s=CALIBRATION_QUICK_S if self._options.quick else CALIBRATION_S,
                samples=samples,
                keep_answers=True,
            )
        )
        sentences.take(order, report)
        return int(report.records.answered.sum()) / report.elapsed_s

    # -- the load ------------------------------------------------------------------------------------------------------

    def _rise(self, service: Service, sentences: Sentences, profile: LatencyProfile, target: Target) -> list[Step]:
        steps = []
        for load in (*MODERATE, HIGH):
            step = self._step(service, sentences, profile, load, target)
            for _ in range(REPEATS):
                if not step.moderate or step.on_time_ratio >= ON_TIME_MIN:
                    break
                # On a shared machine the capacity is not what it was: another program may have begun to run.
                target.capacity = self._calibrate(service, sentences)
                self._say(f"  not on time; the capacity is {target.capacity:.0f} sentences/s now: once more")
                step = replace(self._step(service, sentences, profile, load, target), repeated=step.repeated + 1)
            steps.append(step)
        load = OVERLOAD
        for _ in range(REPEATS + 1):
            overload = self._step(service, sentences, profile, load, target)
            if overload.refused:
                break
            # There is more capacity than was measured.
            load *= OVERLOAD
        return [*steps, overload]

    def _step(
        self, service: Service, sentences: Sentences, profile: LatencyProfile, load: float, target: Target
    ) -> Step:
        rate = load * target.capacity
        order, samples = sentences.in_turn()
        before = service.totals()
        report = self._load(
            LoadConfig(
                urls=service.addresses,
                model=MODEL,
                schedule=RateSchedule.constant(rate, self._step_s),
                deadline_ns=round(target.deadline_ms * 1e6),
                samples=samples,
                keep_answers=True,
                seed=round(100 * load),
            )
        )
        counted = service.totals().since(before)
        step = make_step(load, report, counted, profile, sentences.take(order, report))
        self._say(
            f"{rate:5.0f} requests/s for {self._step_s:g} s: {step.on_time_ratio:7.2%} on time,"
            f" {step.batch_rows:4.1f} rows a batch, {step.refused} refused"
        )
        return step

    def _load(self, config: LoadConfig) -> LoadReport:
        with progress_line(self._out, deadline=config.deadline_ns is not None) as show:
            report = run_load(config, show)
        if report.interrupted:
            raise KeyboardInterrupt
        return report

    # -- afterwards ----------------------------------------------------------------------------------------------------

    def _search(self, service: Service, sentences: Sentences) -> None:
        """Queries through the service, against the vectors that the service gave during the load."""
        known = sorted(sentences.served)
        matrix = np.stack([sentences.served[k] for k in known])
        self._say(f"\nSemantic search over the {len(known)} sentences embedded by the service:")
        ids = minilm.tokenise(minilm.load_tokenizer(), QUERIES)
        for query, tokens in zip(QUERIES, ids, strict=True):
            scores = matrix @ _embed_one(service.addresses[0], tokens)
            best = np.argsort(-scores)[:BEST]
            found = "; ".join(f"{sentences.texts[known[k]]} ({scores[k]:.2f})" for k in best)
            self._say(f"  [bold]{query}[/] → {found}")

    def _write(
        self,
        steps: Sequence[Step],
        profiles: dict[int, LatencyProfile],
        target: Target,
        faults: list[str],
    ) -> None:
        from demo_picture import draw

        picture = export.BUILD / "demo.png"
        draw(picture, steps, profiles, target.capacity, target.deadline_ms)
        self._say(f"\nPicture: {_shown(picture)}")
        figures: dict[str, Any] = {
            "ok": not faults,
            "faults": faults,
            "capacity_per_second": target.capacity,
            "deadline_ms": target.deadline_ms,
            "threads": self._threads,
            "steps": [step.as_json() for step in steps],
        }
        self._out.emit(figures)
        if self._options.json not in {None, "-"}:
            write_json(Path(self._options.json), figures)

    def _say(self, what: Any) -> None:
        self._out.say(what)


def _embed_one(address: str, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """One plain ModelInfer call, as any client makes it."""
    import grpc
    from harness_proto.grpc import inference_pb2 as pb
    from harness_proto.grpc.inference_pb2_grpc import GRPCInferenceServiceStub

    request = pb.ModelInferRequest(model_name=MODEL)
    for name, array in inputs_of(ids).items():
        request.inputs.add(name=name, datatype="INT64", shape=array.shape)
        request.raw_input_contents.append(array.tobytes())
    with grpc.insecure_channel(address) as channel:
        answer = GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=QUERY_S)
    return np.frombuffer(answer.raw_output_contents[0], np.float32)


def _shown(path: Path) -> str:
    return os.path.relpath(path)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Serve a real model, send it traffic with deadlines, check every answer."
    )
    parser.add_argument("--quick", action="store_true", help="a short run for continuous integration")
    parser.add_argument("--seconds", type=float, help=f"length of each step ({STEP_S:g}; quick: {STEP_QUICK_S:g})")
    parser.add_argument("--json", metavar="FILE", help="write the figures as JSON; - is stdout")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where the replicas compute")
    options = parser.parse_args()
    if options.seconds is not None and not options.seconds >= 1:
        parser.error(f"--seconds must be at least 1, got {options.seconds:g}")
    return options


def _end(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Command line."""
    signal.signal(signal.SIGTERM, _end)
    try:
        return Demo(_arguments()).run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (minilm.WeightsError, ServiceError) as fault:
        print(f"error: {fault}", file=sys.stderr)
    except CliError as fault:
        print(f"error: {fault.message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
