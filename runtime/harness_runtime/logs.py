"""Logs: one line per event on stderr, ``key=value``; life events for whoever started us: one JSON line each on stdout."""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

STDOUT = 1


class LineFormatter(logging.Formatter):
    """``time=… level=… logger=… msg="…"``: readable, and split by any log collector.

    ``fields`` come before ``msg`` on every line. A traceback is part of its line, as ``trace="…"`` with escaped line breaks: that of
    ``exc_info``, or what was logged as ``extra={"trace": text}``.
    """

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03d"

    def __init__(self, **fields: Any) -> None:
        super().__init__()
        self._fields = "".join(f" {name}={value}" for name, value in fields.items())

    def format(self, record: logging.LogRecord) -> str:
        """One line; quotes and line breaks of message and traceback are escaped."""
        head = f"time={self.formatTime(record)} level={record.levelname.lower()} logger={record.name}{self._fields}"
        line = f"{head} msg={_escaped(record.getMessage())}"
        trace = getattr(record, "trace", "")
        if record.exc_info and not trace:
            trace = self.formatException(record.exc_info)
        return f"{line} trace={_escaped(trace)}" if trace else line


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def configure(level: int = logging.INFO, **fields: Any) -> None:
    """Send every log line of the process to stderr; ``fields`` stand on each of them."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(**fields))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # One line per connection and request says nothing here; metrics do.
    for noisy in ("uvicorn", "grpc", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def announcer(fd: int = STDOUT) -> Callable[..., None]:
    """A function ``announce(event, **fields)`` that writes one JSON line to ``fd``; a reader that went away is no fault of ours."""
    working = True

    def announce(event: str, **fields: Any) -> None:
        nonlocal working
        line = (json.dumps({"event": event, **fields}) + "\n").encode()
        while line and working:
            try:
                line = line[os.write(fd, line) :]
            except OSError:
                working = False

    return announce
