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
    """``time=… level=… logger=… msg="…"``: readable, and split by any log collector. A traceback follows on its own lines."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03d"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        """One line; quotes and line breaks of the message are escaped."""
        time = self.formatTime(record)
        text = json.dumps(record.message, ensure_ascii=False)
        return f"time={time} level={record.levelname.lower()} logger={record.name} msg={text}"

    def usesTime(self) -> bool:  # noqa: N802 - the base class's name
        """Always: the line begins with it."""
        return True


def configure(level: int = logging.INFO) -> None:
    """Send every log line of the process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
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
