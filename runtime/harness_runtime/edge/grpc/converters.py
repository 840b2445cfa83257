"""Between protobuf and the runtime's plain requests: the only code that reads or writes OIP messages.

Rules that scenario B019 asks to be kept and documented (docs/decisions/0003-parameters.md):

- A request carries all its tensors raw, one entry per input in order, or all of them in ``contents``; anything mixed is
  INVALID_ARGUMENT. FP16 and BF16 have no ``contents`` field and travel raw.
- The answer takes the form of the request. If one wanted output is FP16 or BF16 a typed request is answered raw as a whole.
- Outputs come in the order the request names them, or the model's; raw entries match them one to one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError
from harness_proto.grpc import inference_pb2 as pb

from harness_runtime.dataplane import codec, parameters
from harness_runtime.edge.grpc import wire
from harness_runtime.errors import invalid
from harness_runtime.ports import InferRequest
from harness_runtime.tensors import Datatype, Tensor
from harness_runtime.text import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness_runtime.dataplane.parameters import Value
    from harness_runtime.ports import InferResponse

RAW_RULE = "either every input has one entry in raw_input_contents, in order, or every input has contents"
_FIELDS = {
    Datatype.BOOL: "bool_contents",
    Datatype.INT8: "int_contents",
    Datatype.INT16: "int_contents",
    Datatype.INT32: "int_contents",
    Datatype.INT64: "int64_contents",
    Datatype.UINT8: "uint_contents",
    Datatype.UINT16: "uint_contents",
    Datatype.UINT32: "uint_contents",
    Datatype.UINT64: "uint64_contents",
    Datatype.FP32: "fp32_contents",
    Datatype.FP64: "fp64_contents",
    Datatype.BYTES: "bytes_contents",
}
_INT64_MAX = 2**63 - 1
PROTOBUF_BYTES_MAX = 8192
"""Up to here copying costs less than walking the frame in Python (about 2 against 9 µs for a request of 1.5 KB)."""


class Unsigned(int):
    """An integer that came as ``uint64_param`` and goes back as one."""


def parse_request(data: bytes) -> tuple[pb.ModelInferRequest, Sequence[bytes | memoryview]]:
    """A received ModelInferRequest, of which the raw contents are not to be read, and those, from some size on as views.

    Raises:
        RequestEnded: INVALID when it is not such a message.
    """
    try:
        if len(data) <= PROTOBUF_BYTES_MAX:
            message = pb.ModelInferRequest.FromString(data)
            return message, list(message.raw_input_contents)
        header, raws = wire.split_request(data)
        return pb.ModelInferRequest.FromString(header), raws
    except (wire.MalformedError, DecodeError) as error:
        raise invalid("malformed", f"not a readable ModelInferRequest: {error}") from error


def infer_request(
    message: pb.ModelInferRequest,
    raws: Sequence[bytes | memoryview],
    arrival_ns: int,
    deadline_ns: int | None,
    tenant: str,
) -> InferRequest:
    """The plain request.

    Raises:
        RequestEnded: INVALID for tensors whose declaration and content do not agree; UNIMPLEMENTED for shared memory.
    """
    outputs = []
    for output in message.outputs:
        if output.parameters:
            parameters.check_tensor("output", output.name, _values(output.parameters))
        outputs.append(output.name)
    return InferRequest(
        model=message.model_name,
        version=message.model_version,
        id=message.id,
        inputs=_inputs(message, raws),
        outputs=tuple(outputs),
        parameters=_values(message.parameters) if message.parameters else {},
        arrival_ns=arrival_ns,
        deadline_ns=deadline_ns,
        tenant=tenant,
    )


def response_parts(response: InferResponse, *, raw: bool) -> list[bytes | memoryview]:
    """The wire form of an answer, in parts to be joined; ``raw``: the form of the request."""
    raw = raw or any(tensor.datatype not in _FIELDS for tensor in response.outputs)
    message = pb.ModelInferResponse(model_name=response.model, model_version=response.version, id=response.id)
    _put_values(message.parameters, response.parameters)
    for tensor in response.outputs:
        output = message.outputs.add(name=tensor.name, datatype=tensor.datatype.value, shape=tensor.array.shape)
        _put_values(output.parameters, tensor.parameters)
        if not raw:
            getattr(output.contents, _FIELDS[tensor.datatype]).extend(_elements(tensor))
    raws = [codec.to_raw(tensor) for tensor in response.outputs] if raw else []
    return wire.join_response(message.SerializeToString(), raws)


def _inputs(message: pb.ModelInferRequest, raws: Sequence[bytes | memoryview]) -> list[Tensor]:
    if raws and len(raws) != len(message.inputs):
        raise invalid("raw_count", f"{RAW_RULE}; got {len(raws)} raw entries for {len(message.inputs)} inputs")
    tensors = []
    for index, declared in enumerate(message.inputs):
        name, shape = declared.name, tuple(declared.shape)
        given = _values(declared.parameters) if declared.parameters else {}
        if given:
            parameters.check_tensor("input", name, given)
        datatype = codec.parse_datatype(name, declared.datatype)
        if not raws:
            tensor = _typed(name, datatype, shape, declared.contents)
        elif declared.HasField("contents") and declared.contents.ListFields():
            raise invalid("raw_and_typed", f"input {quoted(name)}: has both; {RAW_RULE}")
        else:
            tensor = codec.from_raw(name, datatype, shape, raws[index])
        tensor.parameters = given
        tensors.append(tensor)
    return tensors


def _typed(name: str, datatype: Datatype, shape: tuple[int, ...], contents: pb.InferTensorContents) -> Tensor:
    field = _FIELDS.get(datatype)
    if field is None:
        raise invalid("typed_contents", f"input {quoted(name)}: {datatype} travels in raw_input_contents only")
    for filled, _ in contents.ListFields():
        if filled.name != field:
            raise invalid(
                "typed_contents", f"input {quoted(name)}: elements of {datatype} belong in {field}, got {filled.name}"
            )
    return codec.from_elements(name, datatype, shape, getattr(contents, field))


def _elements(tensor: Tensor) -> list[Any]:
    elements: list[Any] = tensor.array.ravel().tolist()
    if tensor.datatype is Datatype.BYTES:
        return [codec.element_bytes(element) for element in elements]
    return elements


def _values(declared: Mapping[str, pb.InferParameter]) -> dict[str, Value]:
    """Parameters as Python values; the kind is kept, so that they can go back as they came."""
    values: dict[str, Value] = {}
    for name, parameter in declared.items():
        kind = parameter.WhichOneof("parameter_choice")
        if kind is None:
            raise invalid("empty_parameter", f"parameter {quoted(name)}: has no value")
        value = getattr(parameter, kind)
        values[name] = Unsigned(value) if kind == "uint64_param" else value
    return values


def _put_values(target: Mapping[str, pb.InferParameter], values: Mapping[str, Value]) -> None:
    for name, value in values.items():
        parameter = target[name]  # protobuf maps of messages make the entry on access
        if isinstance(value, bool):
            parameter.bool_param = value
        elif isinstance(value, int):
            if isinstance(value, Unsigned) or value > _INT64_MAX:
                parameter.uint64_param = value
            else:
                parameter.int64_param = value
        elif isinstance(value, float):
            parameter.double_param = value
        else:
            parameter.string_param = value
