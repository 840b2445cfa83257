"""A small Open Inference Protocol server for tests of clients: doubles input X, with a scripted behaviour."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Self

import grpc
import grpc.aio
from harness_proto.grpc import inference_pb2 as pb

Tensor = pb.ModelMetadataResponse.TensorMetadata


@dataclass
class FakeServer:
    """Runs on its own thread and loop. ``delay_s``: time to an answer; ``refuse_every``: each n-th request is refused with trailers."""

    delay_s: float = 0.0
    refuse_every: int = 0
    refuse_all: tuple[grpc.StatusCode, str] | None = None
    max_batch_size: int | None = 8
    inputs: tuple = (("X", "FP32", (-1, 4)),)
    received: list = field(default_factory=list)
    remaining: list = field(default_factory=list)
    cancelled: int = 0
    url: str = ""

    def __enter__(self) -> Self:
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True)
        self._thread.start()
        assert ready.wait(10)
        return self

    def __exit__(self, *exc) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        server = grpc.aio.server()
        calls = {
            name: grpc.unary_unary_rpc_method_handler(
                getattr(self, name),
                request_deserializer=getattr(pb, f"{name}Request").FromString,
                response_serializer=lambda message: message.SerializeToString(),
            )
            for name in ("ModelMetadata", "ModelConfig", "ModelInfer")
        }
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("inference.GRPCInferenceService", calls),)
        )
        self.url = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        ready.set()
        await self._end.wait()
        await server.stop(0)

    async def ModelMetadata(self, request, context):  # noqa: N802  # the protocol's name
        if request.name != "double":
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no model {request.name!r}")
        inputs = [Tensor(name=name, datatype=datatype, shape=shape) for name, datatype, shape in self.inputs]
        outputs = [Tensor(name="Y", datatype="FP32", shape=[-1, 4])]
        return pb.ModelMetadataResponse(name="double", versions=["1"], inputs=inputs, outputs=outputs)

    async def ModelConfig(self, request, context):  # noqa: N802
        if self.max_batch_size is None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no such call")
        return pb.ModelConfigResponse(config=pb.ModelConfig(name="double", max_batch_size=self.max_batch_size))

    async def ModelInfer(self, request, context):  # noqa: N802
        self.received.append(request)
        self.remaining.append(context.time_remaining())
        number = len(self.received)
        try:
            await asyncio.sleep(self.delay_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.refuse_all:
            await context.abort(*self.refuse_all)
        if self.refuse_every and number % self.refuse_every == 0:
            context.set_trailing_metadata((("harness-outcome", "rejected_capacity"), ("harness-reason", "queue_full")))
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "full")
        context.set_trailing_metadata((("harness-outcome", "completed"),))
        output = pb.ModelInferResponse.InferOutputTensor(name="Y", datatype="FP32", shape=request.inputs[0].shape)
        return pb.ModelInferResponse(
            model_name="double",
            model_version="1",
            outputs=[output],
            raw_output_contents=[request.raw_input_contents[0]],
        )
