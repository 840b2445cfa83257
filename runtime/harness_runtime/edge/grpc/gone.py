"""Keeps answers that nobody waits for any more out of the log.

A client may cancel, or reach its deadline, while its answer is being written. gRPC then logs the failed write with a
traceback, as an error of the server, once for each such call: in an overload that is hundreds a second.
"""

from __future__ import annotations

import logging

from grpc import aio

LOGGER = "grpc._cython.cygrpc"


def is_fault(record: logging.LogRecord) -> bool:
    """Whether a record of gRPC tells of anything but an answer to a client that has gone."""
    return not (record.exc_info and isinstance(record.exc_info[1], aio.InternalError))


def quiet() -> None:
    """Drop such records, in this process. Calling it again changes nothing."""
    logging.getLogger(LOGGER).addFilter(is_fault)
