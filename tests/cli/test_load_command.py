"""harness load as a person types it: options, files, exit codes, one-line errors."""

from __future__ import annotations

import importlib.metadata
import json
import signal
import subprocess
import sys
import time

import grpc
import numpy as np
import pytest
from harness_cli.main import main
from helpers_oip import FakeServer


def run(monkeypatch, *words: str) -> int:
    """Exit code of `harness WORDS` in this process."""
    monkeypatch.setattr(sys, "argv", ["harness", *words])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_load_to_a_json_file(monkeypatch, capsys, tmp_path):
    """The command of the contract; figures in the file, a table for the person."""
    out = tmp_path / "r.json"
    with FakeServer() as server:
        words = (
            f"load --url {server.url} --model double --rate 100 --duration 0.5 --deadline-ms 500 --json {out}".split()
        )
        code = run(monkeypatch, *words)
    figures = json.loads(out.read_text())
    assert figures["sent"] == len(server.received)
    # On a machine that is busy with other things the generator may be late.
    assert (code, figures["valid"]) in {(0, True), (3, False)}
    assert figures["arrivals"] == "poisson"
    assert f"{figures['on_time_ratio']:.3%} (within 500 ms)" in capsys.readouterr().out


def test_json_on_stdout_is_all_there(monkeypatch, capsys):
    """With `--json -` stdout is one JSON document; the table goes to stderr."""
    with FakeServer() as server:
        assert (
            run(monkeypatch, *f"load --url {server.url} --model double --closed 2 --duration 0.3 --json -".split()) == 0
        )
    captured = capsys.readouterr()
    assert json.loads(captured.out)["loop"] == "closed"
    assert "outcomes" in captured.err


def test_real_inputs_and_trace(monkeypatch, tmp_path):
    """Inputs from a file, arrivals from a trace at another speed, weights and rows."""
    inputs, trace, out = tmp_path / "i.npz", tmp_path / "t.csv", tmp_path / "r.json"
    np.savez(inputs, X=np.arange(40, dtype=np.float32).reshape(10, 4))
    trace.write_text("t_ms\n" + "".join(f"{i * 100}\n" for i in range(11)))
    with FakeServer() as server:
        words = f"load --url {server.url} --model double --trace {trace} --speed 4 --input {inputs} --rows 2 --weight 10:1,1:9 --json {out}"
        assert run(monkeypatch, *words.split()) in {0, 3}
    figures = json.loads(out.read_text())
    assert figures["sent"] == 11
    assert figures["rows"] == 22
    assert [list(request.inputs[0].shape) for request in server.received] == [[2, 4]] * 11


def test_a_late_generator_is_not_believed(monkeypatch, capsys):
    """p99 send lag over a tenth of a 1 ms deadline: exit code 3, said loudly, valid false."""
    with FakeServer() as server:
        words = f"load --url {server.url} --model double --rate 2000 --duration 0.3 --deadline-ms 0.01 --json -".split()
        assert run(monkeypatch, *words) == 3
    captured = capsys.readouterr()
    assert json.loads(captured.out)["valid"] is False
    assert "NOT VALID" in captured.err


def test_the_first_message_of_every_outcome_is_shown(monkeypatch, capsys):
    """Why requests were refused, in the server's words, for people and in the JSON; overload is still a measurement (exit 0 or 3)."""
    with FakeServer(refuse_every=2) as server:
        words = f"load --url {server.url} --model double --rate 50 --duration 0.4 --deadline-ms 500 --json -"
        assert run(monkeypatch, *words.split()) in {0, 3}
    captured = capsys.readouterr()
    assert json.loads(captured.out)["messages"] == {"rejected_capacity": "full"}
    assert "first rejected_capacity: full" in captured.err


@pytest.mark.parametrize(
    ("code", "want"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, 1),
        (grpc.StatusCode.NOT_FOUND, 1),
        (grpc.StatusCode.UNAVAILABLE, 1),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 0),
    ],
)
def test_a_test_in_which_nothing_was_served_says_so(monkeypatch, capsys, code, want):
    """Exit code 1 and a loud line when every request was refused for what it was; all refused for lack of room is a result."""
    with FakeServer(refuse_all=(code, "no [good] " + "x" * 500)) as server:
        words = f"load --url {server.url} --model double --closed 1 --duration 0.2 --json -"
        assert run(monkeypatch, *words.split()) == want
    captured = capsys.readouterr()
    [message] = json.loads(captured.out)["messages"].values()
    assert message.startswith("no [good] xxx")
    assert len(message) == 300
    assert f"first {code.name}: no [good] xxx" in captured.err
    assert ("NOTHING WAS SERVED: all" in captured.err) == (want == 1)


def test_without_a_deadline_nothing_is_called_on_time(monkeypatch, capsys):
    """The share of answers stands in its place."""
    with FakeServer() as server:
        words = f"load --url {server.url} --model double --closed 1 --duration 0.2"
        assert run(monkeypatch, *words.split()) == 0
    out = capsys.readouterr().out
    assert "100.000% of all; no deadline was set" in out
    assert "on time" not in out


BASE = "load --url 127.0.0.1:1 --model m "


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (BASE, "must say how much to send"),
        (BASE + "--rate 5 --schedule 5:1", "--schedule or --rate"),
        (BASE + "--schedule 5:x", "'5:x' is not RATE:SECONDS"),
        (BASE + "--rate -1", "at least 0"),
        (BASE + "--rate 5 --duration 0", "positive number of seconds"),
        (BASE + "--rate 5 --shape 2", "--shape applies to --arrivals gamma"),
        (BASE + "--rate 5 --arrivals gamma --shape 0", "gamma shape must be positive, got 0"),
        (BASE + "--rate 5 --arrivals trace", "needs --trace FILE"),
        (BASE + "--trace none.csv", "none.csv: No such file"),
        (BASE + "--rate 5 --speed 2", "--speed applies to a trace"),
        (BASE + "--closed 2 --rate 5", "--rate does not apply to --closed"),
        (BASE + "--closed 2 --schedule 5:1", "--schedule does not apply"),
        (BASE + "--rate 5 --weight 0", "'0': the value must be above 0"),
        (BASE + "--rate 5 --rows 1.5", "'1.5' is not VALUE"),
        (BASE + "--rate 5 --dim X=0", "--dim: 'X=0'"),
        (BASE + "--rate 5 --dim 3 --input x.npz", "--dim applies to random inputs only"),
        (BASE + "--rate 5 --deadline-ms 0", "deadline must be at least 1"),
        ("load --url nowhere --model m --rate 5", "'nowhere' is not HOST:PORT"),
        ("load --url http://a:1 --model m --rate 5", "is not HOST:PORT"),
    ],
)
def test_mistakes_are_one_plain_line(monkeypatch, capsys, words, want):
    """Exit code 2, the option and the value named, no traceback."""
    assert run(monkeypatch, *words.split()) == 2
    captured = capsys.readouterr()
    assert want in " ".join(captured.err.split())
    assert captured.err.startswith("error: ")
    assert "Traceback" not in captured.err


def test_version_and_help_do_not_load_the_heavy_parts():
    """`harness --version` starts without gRPC, torch and matplotlib."""
    code = (
        "import sys\nfrom harness_cli.main import main\nsys.argv = ['harness', '--version']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted({'grpc', 'torch', 'matplotlib'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.splitlines() == [importlib.metadata.version("harness-serving"), "[]"]


@pytest.mark.process
def test_an_interrupted_test_reports_what_it_has():
    """Ctrl-C ends the sending: figures so far on stdout, not valid, exit code 3, no traceback."""
    with FakeServer() as server:
        words = f"load --url {server.url} --model double --rate 50 --duration 60 --deadline-ms 500 --json -".split()
        process = subprocess.Popen(
            [sys.executable, "-m", "harness_cli.main", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        until = time.monotonic() + 30
        while not server.received and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 3
    figures = json.loads(out)
    assert 0 < figures["sent"] < 3000
    assert "the test was interrupted" in figures["faults"]
    assert "Traceback" not in err
