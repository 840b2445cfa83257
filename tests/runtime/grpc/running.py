"""A real gRPC edge on a thread and loop of its own, and a blocking client for it."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Self

import grpc
import numpy as np
from harness_proto.grpc import inference_pb2 as pb
from harness_proto.grpc.inference_pb2_grpc import GRPCInferenceServiceStub
from harness_runtime.edge.grpc.server import GrpcEdge
from harness_runtime.edge.port import EdgeSettings

if TYPE_CHECKING:
    from harness_runtime.dataplane import DataPlane

MIB = 1 << 20
UNLIMITED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


class RunningEdge:
    """``with RunningEdge(plane) as edge``: serves on a free port until the block ends."""

    def __init__(self, plane: DataPlane, **settings: Any) -> None:
        self.plane = plane
        self.edge = GrpcEdge(plane, EdgeSettings(port=0, **settings))
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.url = f"127.0.0.1:{self.call(self.edge.start())}"
        self.channel = grpc.insecure_channel(self.url, options=UNLIMITED)
        self.stub = GRPCInferenceServiceStub(self.channel)
        return self

    def __exit__(self, *exc: object) -> None:
        self.channel.close()
        self.call(self.edge.stop(0))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()

    def call(self, work: Any) -> Any:
        """Run a coroutine on the edge's loop; its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def run(self, function: Any, *arguments: Any) -> Any:
        """Run a plain function on the edge's loop, where everything of the server belongs; its result."""

        async def there() -> Any:
            return function(*arguments)

        return self.call(there())

    def infer(self, message: pb.ModelInferRequest, **options: Any) -> pb.ModelInferResponse:
        return self.stub.ModelInfer(message, **{"timeout": 30, **options})

    def error(self, message: pb.ModelInferRequest, **options: Any) -> grpc.RpcError:
        """The error that a call must end with."""
        try:
            self.infer(message, **options)
        except grpc.RpcError as error:
            return error
        raise AssertionError("the call was answered")


def trailers(error: Any) -> dict[str, Any]:
    return dict(error.trailing_metadata())


def raw_request(model: str = "echo", **arrays: tuple[str, np.ndarray]) -> pb.ModelInferRequest:
    """A raw request; each keyword is an input: (datatype, array)."""
    message = pb.ModelInferRequest(model_name=model)
    for name, (datatype, array) in arrays.items():
        message.inputs.add(name=name, datatype=datatype, shape=array.shape)
        message.raw_input_contents.append(array.tobytes())
    return message


def echo_message(rows: int = 1, first: float = 0.0, **fields: Any) -> pb.ModelInferRequest:
    """A raw call of ``echo`` with numbers counted up from ``first``."""
    x = np.arange(first, first + rows * 4, dtype=np.float32).reshape(rows, 4)
    message = raw_request(X=("FP32", x), TAG=("INT64", np.arange(rows, dtype=np.int64)))
    message.MergeFrom(pb.ModelInferRequest(**fields))
    return message


def output(response: pb.ModelInferResponse, name: str, dtype: Any = np.float32) -> Any:
    """A raw output's numbers as nested lists."""
    index = [tensor.name for tensor in response.outputs].index(name)
    return np.frombuffer(response.raw_output_contents[index], dtype).reshape(response.outputs[index].shape).tolist()
