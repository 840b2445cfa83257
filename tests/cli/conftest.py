from __future__ import annotations

import sys
from pathlib import Path

import pytest

# Helpers stand beside the tests; importlib mode puts no test folder on the path.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def run_harness(monkeypatch, capsys):
    """Run `harness WORDS` in this process; gives exit code, stdout, stderr."""
    from harness_cli.main import main

    def run(words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["harness", *words.split()])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
