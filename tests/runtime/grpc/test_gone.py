"""What gRPC logs of answers to clients that have gone."""

from __future__ import annotations

import logging
import sys

from grpc import aio
from harness_runtime.edge.grpc.gone import is_fault


def record_of(error: Exception | None) -> logging.LogRecord:
    info = None
    if error is not None:
        try:
            raise error
        except Exception:  # noqa: BLE001
            info = sys.exc_info()
    return logging.LogRecord("grpc._cython.cygrpc", logging.ERROR, __file__, 1, "raised", (), info)


def test_only_writes_to_clients_that_have_gone_are_left_out():
    """Every other record of gRPC, with an exception or without, is kept."""
    assert not is_fault(record_of(aio.InternalError("Failed execute_batch")))
    assert is_fault(record_of(RuntimeError("a fault")))
    assert is_fault(record_of(None))
