"""Describing requests to the core, merging them into a job and splitting its outputs again (protocol.md §4). Row arithmetic is the core's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_core.descriptor import LaneKey, RequestDescriptor
from harness_core.merge import row_slices
from harness_core.outcome import Outcome

from harness_runtime.errors import RequestEnded
from harness_runtime.own_part import own_part
from harness_runtime.ports import Job, JobInput
from harness_runtime.tensors import Tensor
from harness_runtime.text import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness_core.decision import BatchPlan

    from harness_runtime.ports import JobOutput, JobResult, Work
    from harness_runtime.tensors import TensorSpec


REPLY_NS_MAX = 1_500_000
REPLY_SHARE = 0.03
"""What an answer may need from here to its caller's hands: at most so long, and at most this share of the time it was given. A
call's deadline runs at its client, which starts earlier and stops for nobody: an answer that is ready at the deadline is late."""


def reply_ns(within_ns: int) -> int:
    """The allowance for an answer's way to its caller, of a request with ``within_ns`` from arrival to target; even microseconds."""
    return min(REPLY_NS_MAX, int(REPLY_SHARE * within_ns)) // 2000 * 2000


def describe(request_id: int, work: Work) -> RequestDescriptor:
    """What the core sees of a request.

    Raises:
        RequestEnded: FAILED for numbers that contradict each other, which the data plane should have refused.
    """
    try:
        return RequestDescriptor(
            id=request_id,
            lane=LaneKey(work.spec.digest, work.bucket),
            rows=work.rows,
            bytes=work.bytes,
            arrival_ns=work.arrival_ns,
            target_ns=work.target_ns,
            limit_ns=work.limit_ns,
            weight=work.weight,
            priority=work.priority,
            tenant=work.tenant,
            reply_ns=reply_ns(work.target_ns - work.arrival_ns),
        )
    except ValueError as error:
        raise RequestEnded(Outcome.FAILED, "not_describable", f"the request cannot be queued: {error}") from error


def assemble(plan: BatchPlan, works: Sequence[Work]) -> Job:
    """The job of a plan. ``works`` are its members, in the plan's order; nothing is copied here.

    Raises:
        ValueError: rows or padded shapes of the members contradict the plan.
    """
    first = works[0]
    spec = first.spec
    rows = sum(work.rows for work in works)
    if rows != plan.rows or plan.execution_size < rows:
        raise ValueError(f"members have {rows} rows, the plan says {plan.rows} of {plan.execution_size}")
    batched = spec.max_batch_size > 0
    if not batched and len(works) != 1:
        raise ValueError(f"{len(works)} requests in one run of an unbatched model")
    if any(work.padded != first.padded for work in works[1:]):
        raise ValueError("members of one lane have different padded shapes")
    inputs = []
    for index, tensor in enumerate(spec.inputs):
        shape = (plan.execution_size, *first.padded[index]) if batched else first.padded[index]
        pad_value = 0 if tensor.buckets is None else tensor.buckets.pad_value
        parts = [work.inputs[index].array for work in works]
        inputs.append(JobInput(tensor.name, tensor.datatype, shape, parts, pad_value))
    return Job(plan.batch_id, spec.digest, plan.rows, plan.execution_size, inputs, plan.predicted_ns)


def split(
    result: JobResult, members: Mapping[int, int], alive: Mapping[int, Work], *, batched: bool
) -> tuple[dict[int, list[Tensor]], dict[int, str]]:
    """Each living member's own part of every declared output, copied out of the slot, and the members whose part could not be taken.

    Both by request id. What an answer could still fail of is checked here, before the machine counts the request as answered.
    ``members``: rows by request id, in the order of the merge; those not ``alive`` are skipped.

    Raises:
        ValueError: an output does not have exactly the batch's rows (checked before anything is split).
    """
    total = sum(members.values())
    for output in result.outputs:
        if batched and (output.array.ndim == 0 or output.array.shape[0] != total):
            raise ValueError(f"output '{output.name}' has shape {list(output.array.shape)}, the batch has {total} rows")
    outputs = {output.name: output for output in result.outputs}
    parts: dict[int, list[Tensor]] = {}
    failures: dict[int, str] = {}
    for member, rows in zip(members, row_slices(list(members.values())), strict=True):
        work = alive.get(member)
        if work is None:
            continue
        try:
            parts[member] = [_part(spec, outputs, rows if batched else None, work) for spec in work.spec.outputs]
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this member's alone (B004)
            failures[member] = f"its part of the answer could not be read: {error}"
    return parts, failures


def _part(spec: TensorSpec, outputs: Mapping[str, JobOutput], rows: slice | None, work: Work) -> Tensor:
    output = outputs.get(spec.name)
    if output is None:
        raise ValueError(f"output {quoted(spec.name)}: the model did not return it")
    array = output.array if rows is None else output.array[rows]
    return Tensor(output.name, output.datatype, own_part(spec, array, work).copy())
