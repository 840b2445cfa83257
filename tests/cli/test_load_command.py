"""harness load as a person types it: options, files, exit codes, one-line errors."""

from __future__ import annotations

import importlib.metadata
import io
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import grpc
import numpy as np
import pytest
from harness_cli.load.view import Parts
from harness_cli.main import main
from helpers_oip import FakeServer
from rich.console import Console


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
        (BASE + "--rate -4", "--rate -4: must be a number above 0 requests/s"),
        (BASE + "--rate 0", "--rate 0: must be a number above 0 requests/s"),
        (BASE + "--rate x", "--rate x: is not a number"),
        (BASE + "--rate nan", "--rate nan: must be"),
        (BASE + "--rate 5 --priority -1", "--priority -1: must be at least 0"),
        (BASE + "--rate 5 --seed 1.5", "--seed 1.5: is not a whole number"),
        (BASE + "--rate 5 --arrivals odd", "--arrivals odd: 'odd' is not one of 'constant'"),
        (BASE + "--rate 5 --duration -1", "--duration -1: must be a number above 0 s"),
        (BASE + "--closed 1 --duration 0", "--duration 0: must be"),
        (BASE + "--rate 5 --duration 0", "--duration 0: must be a number above 0 s"),
        (BASE + "--rate 5 --shape 2", "--shape applies to --arrivals gamma"),
        (BASE + "--rate 5 --arrivals gamma --shape 0", "--shape 0: must be a number above 0"),
        (BASE + "--rate 5 --arrivals trace", "needs --trace FILE"),
        (BASE + "--trace none.csv", "none.csv: No such file"),
        (BASE + "--rate 5 --speed 2", "--speed applies to a trace"),
        (BASE + "--closed 2 --rate 5", "--rate does not apply to --closed"),
        (BASE + "--closed 2 --schedule 5:1", "--schedule does not apply"),
        (BASE + "--rate 5 --weight 0", "'0': the value must be above 0"),
        (BASE + "--rate 5 --rows 1.5", "'1.5' is not VALUE"),
        (BASE + "--rate 5 --dim X=0", "--dim: 'X=0'"),
        (BASE + "--rate 5 --dim 3 --input x.npz", "--dim applies to random inputs only"),
        (BASE + "--rate 5 --deadline-ms 0", "--deadline-ms 0: must be at least 0.001 ms"),
        ("load --url nowhere --model m --rate 5", "'nowhere' is not HOST:PORT"),
        ("load --url http://a:1 --model m --rate 5", "is not HOST:PORT"),
        ("load --url a:65536 --model m --rate 5", "'a:65536' is not HOST:PORT with a port of 1 to 65535"),
        ("load --url ::1:80 --model m --rate 5", "an IPv6 host in brackets"),
        (
            "load --url a:1,b:2 --model m --rate 5",
            "holds a comma: the option takes one server and repeats (--url a:1 --url b:2)",
        ),
    ],
)
def test_mistakes_are_one_plain_line(monkeypatch, capsys, words, want):
    """Exit code 2, the option and the value named, no traceback."""
    assert run(monkeypatch, *words.split()) == 2
    captured = capsys.readouterr()
    assert want in " ".join(captured.err.split())
    assert captured.err.startswith("error: ")
    assert "Traceback" not in captured.err


def test_a_closed_port_is_told_at_once(monkeypatch, capsys):
    """Connection refused, in well under the ten seconds that a channel would try; exit code 1."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))  # not listening: the port is refused and nobody else takes it
        url = f"127.0.0.1:{other.getsockname()[1]}"
        began = time.monotonic()
        assert run(monkeypatch, *f"load --url {url} --model m --rate 5".split()) == 1
    assert time.monotonic() - began < 8
    assert f"error: {url}: connection refused: no server listens there" in capsys.readouterr().err


def test_a_port_that_speaks_http_is_told(monkeypatch, capsys):
    """The metrics port in place of the gRPC port: said at once, with the hint."""
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        threading.Thread(target=other.handle_request, daemon=True).start()
        words = f"load --url 127.0.0.1:{other.server_port} --model m --rate 5"
        assert run(monkeypatch, *words.split()) == 1
    assert "not in gRPC; the server's gRPC port is wanted: is this the metrics port?" in capsys.readouterr().err


def test_refused_by_all_is_not_drowned(monkeypatch, capsys):
    """A result that is not valid still says that nothing was answered, and how everything ended."""
    with FakeServer(refuse_every=1) as server:
        words = f"load --url {server.url} --model double --rate 2000 --duration 0.3 --deadline-ms 0.01 --json -"
        assert run(monkeypatch, *words.split()) == 3
    err = capsys.readouterr().err
    assert "NOT VALID" in err
    assert "NOTHING WAS ANSWERED: all" in err.splitlines()[-1]


@pytest.mark.parametrize("width", [30, 44, 60, 120])
def test_numbers_keep_their_units(width):
    """A narrow cell breaks between its parts only; nothing is lost."""
    console = Console(width=width, file=io.StringIO())
    parts = ("poisson", "123.4 requests/s", "max 17.25 ms")
    console.print(Parts(*parts))
    written = console.file.getvalue()
    assert all(part in written for part in parts)
    assert max(map(len, written.splitlines())) <= width
    assert " ".join(written.split()) == "poisson, 123.4 requests/s, max 17.25 ms"


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
