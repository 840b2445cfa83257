"""Between plain arrays and Open Inference Protocol messages.

Requests are built as bytes once, before the clock runs: protobuf messages concatenate (fields of the second are merged into
the first), so a request is a body (model, inputs) followed by a tail (parameters), both ready made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from harness_proto.grpc import inference_pb2 as pb
from harness_runtime.tensors import Datatype, numpy_dtype

from harness_cli.load.config import Signature, TensorSignature

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from harness_cli.load.config import Sample


def signature(metadata: pb.ModelMetadataResponse, max_batch_size: int | None) -> Signature:
    """The signature in metadata. Without the server's ``max_batch_size``, a model is batched when all its shapes lead with -1.

    Raises ValueError for a datatype that the protocol does not have.
    """
    tensors = [*metadata.inputs, *metadata.outputs]
    batched = max_batch_size > 0 if max_batch_size is not None else all(t.shape and t.shape[0] == -1 for t in tensors)
    return Signature(
        model=metadata.name,
        version=metadata.versions[-1] if metadata.versions else "",
        batched=batched,
        max_rows=max_batch_size or None,
        inputs=_signatures(metadata.inputs, batched=batched),
        outputs=_signatures(metadata.outputs, batched=batched),
    )


def _signatures(tensors: Iterable[Any], *, batched: bool) -> tuple[TensorSignature, ...]:
    # Some servers prefix datatypes as in their configuration files.
    return tuple(
        TensorSignature(t.name, Datatype(t.datatype.removeprefix("TYPE_")), tuple(t.shape[1:] if batched else t.shape))
        for t in tensors
    )


def request_body(model: str, version: str, known: Signature, sample: Sample) -> bytes:
    """A serialised ModelInferRequest without parameters; tensors raw, row-major, little-endian."""
    request = pb.ModelInferRequest(model_name=model, model_version=version)
    for tensor in known.inputs:
        array = sample[tensor.name]
        request.inputs.add(name=tensor.name, datatype=tensor.datatype.value, shape=array.shape)
        request.raw_input_contents.append(encode(tensor.datatype, array))
    return request.SerializeToString()


def request_tail(timeout_us: int | None, weight: float | None, priority: int) -> bytes:
    """Serialised parameters of a ModelInferRequest, to be appended to its body."""
    request = pb.ModelInferRequest()
    if timeout_us is not None:
        request.parameters["timeout"].int64_param = timeout_us
    if weight is not None:
        request.parameters["weight"].double_param = weight
    if priority:
        request.parameters["priority"].int64_param = priority
    return request.SerializeToString()


def response_tensors(data: bytes) -> dict[str, npt.NDArray[Any]]:
    """Outputs of a serialised ModelInferResponse by name, from raw contents or typed ones."""
    response = pb.ModelInferResponse.FromString(data)
    tensors = {}
    for i, output in enumerate(response.outputs):
        datatype = Datatype(output.datatype)
        shape = tuple(output.shape)
        if response.raw_output_contents:
            tensors[output.name] = decode(datatype, response.raw_output_contents[i]).reshape(shape)
        else:
            tensors[output.name] = _typed(datatype, output.contents).reshape(shape)
    return tensors


def encode(datatype: Datatype, array: npt.NDArray[Any]) -> bytes:
    """Raw contents: row-major little-endian; BYTES elements each behind their length as 4 little-endian bytes."""
    if datatype is not Datatype.BYTES:
        return np.ascontiguousarray(array, dtype=numpy_dtype(datatype)).tobytes()
    parts: list[bytes] = []
    for element in array.reshape(-1):
        data = element if isinstance(element, bytes) else str(element).encode()
        parts += (len(data).to_bytes(4, "little"), data)
    return b"".join(parts)


def decode(datatype: Datatype, data: bytes) -> npt.NDArray[Any]:
    """Inverse of :func:`encode`, flat. Raises ValueError when BYTES lengths do not add up."""
    if datatype is not Datatype.BYTES:
        return np.frombuffer(data, dtype=numpy_dtype(datatype))
    elements, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        if at + 4 + size > len(data):
            raise ValueError(f"a BYTES element of {size} bytes at offset {at} passes the end of {len(data)} bytes")
        elements.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    array = np.empty(len(elements), dtype=object)
    array[:] = elements
    return array


def _typed(datatype: Datatype, contents: pb.InferTensorContents) -> npt.NDArray[Any]:
    fields = (
        contents.bool_contents,
        contents.int_contents,
        contents.int64_contents,
        contents.uint_contents,
        contents.uint64_contents,
        contents.fp32_contents,
        contents.fp64_contents,
        contents.bytes_contents,
    )
    filled = next((field for field in fields if len(field)), ())
    return np.array(list(filled), dtype=numpy_dtype(datatype))
