"""Log lines: one a record, key=value, tracebacks inside."""

from __future__ import annotations

import logging
import shlex
import sys

import numpy as np
import pytest
from harness_runtime.executor.runners.faults import own_frames
from harness_runtime.logs import LineFormatter


def line_of(**changes) -> dict[str, str]:
    record = logging.LogRecord(
        "here", logging.WARNING, "f.py", 1, "said %s", ('"a"\nb',), changes.pop("exc_info", None)
    )
    vars(record).update(changes)
    line = LineFormatter(executor=7).format(record)
    assert "\n" not in line
    return dict(part.split("=", 1) for part in shlex.split(line))


def test_a_record_is_one_line_of_keys_and_values():
    """Any log collector splits it; the fields of the process are on every line."""
    found = line_of()
    assert {name: found[name] for name in ("level", "logger", "executor")} == {
        "level": "warning",
        "logger": "here",
        "executor": "7",
    }
    assert found["msg"].replace('"', "") == r"said a\nb"
    assert found["time"].startswith("20")


def test_a_traceback_is_part_of_its_line():
    """That of exc_info, or the text that was logged for it; an empty one is left out."""
    try:
        raise ValueError("boom")
    except ValueError:
        found = line_of(exc_info=sys.exc_info())
    assert "ValueError: boom" in found["trace"]
    assert line_of(trace="File x, line 3")["trace"] == "File x, line 3"
    assert "trace" not in line_of(trace="")


def test_only_the_models_own_frames_are_told(tmp_path):
    """Frames of installed packages and of ours say nothing of a model; without any of its own there is nothing to tell."""
    path = tmp_path / "model.py"
    code = compile("def predict(np, x):\n    return np.linalg.inv(x)\n", str(path), "exec")
    names: dict = {}
    exec(code, names)
    with pytest.raises(np.linalg.LinAlgError) as caught:
        names["predict"](np, np.zeros((2, 2)))
    told = own_frames(caught.value)
    assert f'File "{path}", line 2, in predict' in told
    assert "linalg" not in told
    assert own_frames(ValueError("never raised")) == ""
