"""A call through the data plane, with a batcher that runs it at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pytest
from harness_core.outcome import Outcome
from harness_runtime.errors import RequestEnded
from harness_runtime.model import ModelState
from harness_runtime.tensors import Datatype, Tensor, TensorSpec

from tests.runtime.dataplane.builders import (
    MS,
    FakeBatcher,
    echo_request,
    make_entry,
    make_plane,
    make_registry,
    make_spec,
    seq_request,
    seq_spec,
)

if TYPE_CHECKING:
    from harness_runtime.model import ModelSpec
    from harness_runtime.ports import InferRequest


def plane_of(batcher: FakeBatcher, *specs, **options):
    return make_plane(make_registry(*(make_entry(spec) for spec in specs)), batcher, **options)


def test_work_says_what_the_machine_needs():
    """Rows, bytes, times, weight, priority and tenant reach the batcher as the request and the model say them."""
    batcher = FakeBatcher()
    plane = plane_of(batcher, make_spec(max_weight=5.0))
    parameters = {"timeout": 20_000, "weight": "3", "priority": 2}
    asyncio.run(plane.infer(echo_request(2, parameters=parameters, tenant="team-a")))
    (work,) = batcher.works
    assert (work.rows, work.bytes, work.weight, work.priority, work.tenant) == (2, 48, 3.0, 2, "team-a")
    assert (work.arrival_ns, work.target_ns, work.limit_ns) == (1000 * MS, 1020 * MS, 1020 * MS)


def test_an_answer_carries_id_version_and_own_parameters():
    """B018, B023: the caller's id and parameters, the version really used, tensor parameters on the namesake output."""
    request = echo_request(id="a", parameters={"k": 1, "timeout": 5000})
    request.inputs[1].parameters["id"] = "123"
    answer = asyncio.run(plane_of(FakeBatcher(), make_spec(version="7")).infer(request))
    assert (answer.model, answer.version, answer.id, answer.parameters) == ("echo", "7", "a", {"k": 1})
    assert [(tensor.name, tensor.parameters) for tensor in answer.outputs] == [("Y", {}), ("TAG", {"id": "123"})]
    assert answer.outputs[0].array.tolist() == [[0, 2, 4, 6]]


def test_a_late_answer_says_so():
    """protocol.md §3: OK with harness_late."""
    answer = asyncio.run(plane_of(FakeBatcher(outcome=Outcome.LATE), make_spec()).infer(echo_request()))
    assert answer.parameters == {"harness_late": True}
    assert answer.outcome is Outcome.LATE


@pytest.mark.parametrize("length", [1, 8, 11])
def test_padding_is_cut_off_the_answer(length):
    """A trimmed output has the request's own length, whatever the bucket was; others stay whole."""
    batcher = FakeBatcher()
    request = seq_request(2, length, outputs=("SUM", "TOKENS"))
    answer = asyncio.run(plane_of(batcher, seq_spec()).infer(request))
    ids = request.inputs[0].array
    assert [tensor.name for tensor in answer.outputs] == ["SUM", "TOKENS"]
    assert answer.outputs[0].array.tolist() == ids.sum(axis=1).tolist()
    assert answer.outputs[1].array.tolist() == ids.tolist()
    assert batcher.works[0].padded[0] == ((8,) if length <= 8 else (16,))


def test_refusals_never_reach_the_batcher_and_are_counted_once():
    """Everything declared is checked before anything is queued; unknown models share one label."""
    heard = []
    batcher = FakeBatcher()
    plane = plane_of(batcher, make_spec(), on_refused=lambda *end: heard.append(end))
    bad = echo_request()
    bad.inputs[0].array = np.zeros((1, 5), np.float32)
    for request in (bad, echo_request(model="nope"), echo_request(parameters={"timeout": 0})):
        with pytest.raises(RequestEnded):
            asyncio.run(plane.infer(request))
    assert batcher.works == []
    assert heard == [
        ("echo", Outcome.INVALID, "shape"),
        ("", Outcome.INVALID, "unknown_model"),
        ("echo", Outcome.INVALID, "timeout"),
    ]


def test_more_bytes_than_any_batch_may_hold_are_refused():
    """Such a request would wait for a batch that cannot exist."""
    plane = make_plane(make_registry(make_entry(make_spec(), max_batch_bytes=40)), FakeBatcher())
    asyncio.run(plane.infer(echo_request(1)))
    with pytest.raises(RequestEnded, match="the inputs hold 48 bytes, a batch 40 at most"):
        asyncio.run(plane.infer(echo_request(2)))


def free_spec(**changes) -> ModelSpec:
    """A model with a variable dimension without buckets, run as one row or as eight."""
    free = (TensorSpec("X", Datatype.FP32, (-1,)),)
    return make_spec(name="free", inputs=free, outputs=free, execution_sizes=(1, 8), **changes)


def free_request(rows: int, length: int) -> InferRequest:
    return echo_request(model="free", inputs=[Tensor("X", Datatype.FP32, np.ones((rows, length), np.float32))])


def test_rows_that_grow_over_the_slot_at_their_execution_size_are_refused():
    """Two rows are run as eight: what that takes is compared with the executor's slot before the queue, not at the hand-over."""
    batcher = FakeBatcher()
    plane = make_plane(make_registry(make_entry(free_spec())), batcher, slot_bytes=4096)
    for rows, length in [(1, 1024), (2, 128), (8, 128)]:
        asyncio.run(plane.infer(free_request(rows, length)))
    message = "the inputs take 4160 bytes when they are run as 8 rows, the executor takes 4096 at most"
    with pytest.raises(RequestEnded, match=message) as caught:
        asyncio.run(plane.infer(free_request(2, 129)))
    assert (caught.value.outcome, caught.value.reason) == (Outcome.INVALID, "too_many_bytes")
    assert len(batcher.works) == 3


def test_a_batch_is_filled_by_padded_bytes():
    """The machine adds up what the members take in the slot: five ids and their mask in the bucket 8, two rows, 8 bytes each."""
    batcher = FakeBatcher()
    asyncio.run(plane_of(batcher, seq_spec()).infer(seq_request(2, 5)))
    assert batcher.works[0].bytes == 2 * 2 * 8 * 8


def test_a_fault_before_the_queue_is_counted_as_failed():
    """B004: the server's own fault ends one request, and in the books too."""
    heard = []
    plane = plane_of(FakeBatcher(), make_spec(), on_refused=lambda *end: heard.append(end))
    request = echo_request()
    request.inputs[0].array = None
    with pytest.raises(AttributeError):
        asyncio.run(plane.infer(request))
    assert heard == [("echo", Outcome.FAILED, "internal")]


def test_draining_refuses_and_is_not_ready():
    """protocol.md §3: UNAVAILABLE with a hint; the retry goes to another pod."""
    plane = plane_of(FakeBatcher(), make_spec())
    assert plane.server_ready()
    plane.drain()
    assert not plane.server_ready()
    assert not plane.model_ready("echo")
    with pytest.raises(RequestEnded) as caught:
        asyncio.run(plane.infer(echo_request()))
    assert (caught.value.status.grpc, caught.value.reason) == ("UNAVAILABLE", "draining")


def test_readiness_follows_models_and_loops():
    """B004: a dead loop is not ready, nor is a server with one model that still loads."""
    alive = True
    registry = make_registry(make_entry(make_spec()), make_entry(seq_spec(), ModelState.LOADING))
    plane = make_plane(registry, FakeBatcher(), healthy=lambda: alive)
    assert (plane.server_ready(), plane.model_ready("echo"), plane.model_ready("seq")) == (False, True, False)
    registry.set_state("digest-seq-1", ModelState.READY)
    assert plane.server_ready()
    alive = False
    assert (plane.server_ready(), plane.model_ready("echo")) == (False, False)
    assert not plane.model_ready("nope")


def test_a_changed_specification_is_seen():
    """Live settings replace an entry's spec; the precomputed signature does not outlive it."""
    entry = make_entry(make_spec())
    plane = make_plane(make_registry(entry), FakeBatcher())
    asyncio.run(plane.infer(echo_request(8)))
    entry.spec = make_spec(max_batch_size=4)
    with pytest.raises(RequestEnded, match="maxBatchSize is 4"):
        asyncio.run(plane.infer(echo_request(8)))


def test_metadata_shows_rows_for_batched_models_only():
    """protocol.md §1: a leading -1 with max_batch_size above 0."""
    unbatched = make_spec(name="one", max_batch_size=0)
    plane = plane_of(FakeBatcher(), make_spec(), unbatched)
    assert [tensor.shape for tensor in plane.metadata("echo").inputs] == [(-1, 4), (-1,)]
    assert [tensor.shape for tensor in plane.metadata("one").inputs] == [(4,), ()]
    assert plane.metadata("echo").versions == ("1",)


def test_an_unbatched_model_is_answered_without_rows():
    """max_batch_size 0: shapes pass as they are."""
    spec = make_spec(name="one", max_batch_size=0)
    inputs = [
        Tensor("X", Datatype.FP32, np.ones(4, np.float32)),
        Tensor("TAG", Datatype.INT64, np.array(5, np.int64)),
    ]
    answer = asyncio.run(plane_of(FakeBatcher(), spec).infer(echo_request(model="one", inputs=inputs)))
    assert [tensor.array.shape for tensor in answer.outputs] == [(4,), ()]
