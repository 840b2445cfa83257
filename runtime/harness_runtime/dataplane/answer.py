"""From a request's own outputs to its answer: those it asked for, in its order, and its parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_core.outcome import Outcome

from harness_runtime.ports import InferResponse
from harness_runtime.tensors import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness_runtime.dataplane.parameters import Value
    from harness_runtime.ports import InferRequest, Work, WorkResult
    from harness_runtime.tensors import TensorSpec

LATE_PARAMETER = "harness_late"


def respond(
    request: InferRequest, work: Work, wanted: Sequence[TensorSpec], custom: dict[str, Value], result: WorkResult
) -> InferResponse:
    """The response: outputs in the order asked for, the caller's own parameters, ``harness_late`` when late.

    Parameters of an input go back on the output of the same name. Nothing can go wrong here any more: the request is counted as answered.
    """
    answered = {tensor.name: tensor.array for tensor in result.outputs}
    given = {tensor.name: tensor.parameters for tensor in work.inputs if tensor.parameters}
    outputs = [Tensor(spec.name, spec.datatype, answered[spec.name], given.get(spec.name, {})) for spec in wanted]
    parameters = {**custom, LATE_PARAMETER: True} if result.outcome is Outcome.LATE else custom
    return InferResponse(work.spec.name, work.spec.version, request.id, outputs, parameters, result.outcome)
