"""Recorded request traces: CSV files, plain or gzip, with a column of arrival times in milliseconds."""

from __future__ import annotations

import csv
import gzip
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import numpy.typing as npt

TIME_COLUMN = "t_ms"


class TraceError(ValueError):
    """A trace file cannot be used; the message names file, line and column."""


def read_trace(path: Path) -> npt.NDArray[np.int64]:
    """Arrival times in int ns, ascending, the first at 0.

    ``path`` names a CSV file (``.gz``: compressed) whose header has a column ``t_ms``. Raises TraceError, OSError.
    """
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
                times = _times(file, path)
        else:
            with path.open(encoding="utf-8", newline="") as file:
                times = _times(file, path)
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError) as error:
        raise TraceError(f"{path}: not a CSV file: {error}") from None
    if not times:
        raise TraceError(f"{path}: no arrivals")
    ascending = np.sort(np.array(times, np.float64))
    relative: npt.NDArray[np.int64] = np.rint((ascending - ascending[0]) * 1e6).astype(np.int64)
    return relative


def _times(lines: Iterable[str], path: Path) -> list[float]:
    rows = csv.DictReader(lines)
    if TIME_COLUMN not in (rows.fieldnames or ()):
        raise TraceError(f"{path}: the header has no column {TIME_COLUMN!r}, found {list(rows.fieldnames or ())}")
    times = []
    for row in rows:
        try:
            value = float(row[TIME_COLUMN])
        except (TypeError, ValueError):
            value = float("nan")
        if not np.isfinite(value):
            raise TraceError(f"{path}, line {rows.line_num}: {TIME_COLUMN} is not a number: {row[TIME_COLUMN]!r}")
        times.append(value)
    return times
