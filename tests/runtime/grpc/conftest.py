"""One running edge a module, with the models echo and seq and a batcher whose behaviour a test may set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.runtime.dataplane.builders import (
    FakeBatcher,
    make_entry,
    make_plane,
    make_registry,
    make_spec,
    seq_spec,
)
from tests.runtime.grpc.running import MIB, RunningEdge

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def _edge() -> Iterator[tuple[RunningEdge, FakeBatcher]]:
    batcher = FakeBatcher()
    registry = make_registry(make_entry(make_spec()), make_entry(make_spec(version="2")), make_entry(seq_spec()))
    with RunningEdge(make_plane(registry, batcher), max_message_bytes=MIB) as edge:
        yield edge, batcher


@pytest.fixture
def batcher(_edge: tuple[RunningEdge, FakeBatcher]) -> FakeBatcher:
    fresh = FakeBatcher()
    vars(_edge[1]).update(vars(fresh))
    return _edge[1]


@pytest.fixture
def edge(_edge: tuple[RunningEdge, FakeBatcher], batcher: FakeBatcher) -> RunningEdge:
    return _edge[0]
