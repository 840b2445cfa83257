"""From a batch's outputs for one request to its answer: the outputs it asked for, without the padding of its bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness_core.outcome import Outcome

from harness_runtime.errors import RequestEnded
from harness_runtime.ports import InferResponse
from harness_runtime.tensors import Tensor
from harness_runtime.text import quoted, shape_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from harness_runtime.dataplane.parameters import Value
    from harness_runtime.ports import InferRequest, Work, WorkResult
    from harness_runtime.tensors import TensorSpec

LATE_PARAMETER = "harness_late"


def respond(
    request: InferRequest, work: Work, wanted: Sequence[TensorSpec], custom: dict[str, Value], result: WorkResult
) -> InferResponse:
    """The response: outputs in the order asked for, the caller's own parameters, ``harness_late`` when late.

    Parameters of an input go back on the output of the same name.

    Raises:
        RequestEnded: FAILED when the model's answer lacks an output or does not carry the padded dimension it declares.
    """
    answered = {tensor.name: tensor for tensor in result.outputs}
    given = {tensor.name: tensor.parameters for tensor in work.inputs if tensor.parameters}
    outputs = []
    for spec in wanted:
        tensor = answered.get(spec.name)
        if tensor is None:
            raise _failed("output_missing", f"output {quoted(spec.name)}: the model did not return it")
        array = tensor.array
        for dim in spec.trim_dims:
            array = _trim(spec, array, dim, work)
        outputs.append(Tensor(spec.name, spec.datatype, array, given.get(spec.name, {})))
    parameters = {**custom, LATE_PARAMETER: True} if result.outcome is Outcome.LATE else custom
    return InferResponse(work.spec.name, work.spec.version, request.id, outputs, parameters, result.outcome)


def _trim(spec: TensorSpec, array: npt.NDArray[Any], dim: int, work: Work) -> npt.NDArray[Any]:
    """Cut dimension ``dim`` (without rows) back to the request's own size, as a view."""
    source = _source(work, dim)
    if source is None:
        return array
    padded, own = source
    axis = dim + (work.spec.max_batch_size > 0)
    if axis >= array.ndim or array.shape[axis] != padded:
        raise _failed(
            "output_shape",
            f"output {quoted(spec.name)}: dimension {axis} should be the padded {padded}, "
            f"the model returned shape {shape_text(array.shape)}",
        )
    return array[(slice(None),) * axis + (slice(own),)]


def _source(work: Work, dim: int) -> tuple[int, int] | None:
    """Padded and own size behind an output's trimmed dimension.

    They are those of the first input with buckets on the same dimension, or else of the first input with buckets.
    """
    batched = work.spec.max_batch_size > 0
    bucketed = [(spec.buckets.dim, index) for index, spec in enumerate(work.spec.inputs) if spec.buckets is not None]
    if not bucketed:
        return None
    source_dim, index = next((pair for pair in bucketed if pair[0] == dim), bucketed[0])
    return work.padded[index][source_dim], work.inputs[index].array.shape[source_dim + batched]


def _failed(reason: str, message: str) -> RequestEnded:
    return RequestEnded(Outcome.FAILED, reason, message)
