"""The OIP calls: thin shells over the data plane. Every failure ends one call and never the server (scenario B004)."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import grpc
from grpc import aio
from harness_core.outcome import ANSWERED, Outcome
from harness_proto.grpc import inference_pb2 as pb

from harness_runtime.edge.grpc import converters, described
from harness_runtime.edge.grpc.errors import status_of
from harness_runtime.errors import TOO_LARGE, RequestEnded, internal_fault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from harness_runtime.dataplane import DataPlane

    Context = aio.ServicerContext[Any, Any]
    Behaviour = Callable[[Any, Context], Awaitable[Any]]

SERVICE = "inference.GRPCInferenceService"
FAIRNESS_KEY = "x-gateway-inference-fairness-id"
_NS_PER_S = 1_000_000_000
_ANSWERED = {outcome: (("harness-outcome", outcome.value),) for outcome in ANSWERED}
_log = logging.getLogger(__name__)


class Servicer:
    """One method per call. ``hop`` and ``max_message_bytes`` go into the refusal of a message that is too large."""

    def __init__(self, plane: DataPlane, hop: str, max_message_bytes: int) -> None:
        self._plane = plane
        self._hop = hop
        self._max_message_bytes = max_message_bytes

    def handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        """The service for a server. ModelInfer takes and gives bytes: see :mod:`harness_runtime.edge.grpc.wire`."""
        calls: dict[str, tuple[Behaviour, type[Any]]] = {
            "ServerLive": (self._server_live, pb.ServerLiveRequest),
            "ServerReady": (self._server_ready, pb.ServerReadyRequest),
            "ModelReady": (self._model_ready, pb.ModelReadyRequest),
            "ServerMetadata": (self._server_metadata, pb.ServerMetadataRequest),
            "ModelMetadata": (self._model_metadata, pb.ModelMetadataRequest),
            "ModelConfig": (self._model_config, pb.ModelConfigRequest),
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(
                _guarded(call), request.FromString, lambda message: message.SerializeToString()
            )
            for name, (call, request) in calls.items()
        }
        handlers["ModelInfer"] = grpc.unary_unary_rpc_method_handler(_guarded(self._model_infer))
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    async def _model_infer(self, data: bytes, context: Context) -> bytes:
        arrival_ns = self._plane.clock()
        model = ""
        try:
            if len(data) > self._max_message_bytes:
                raise self._too_large("request", len(data))
            message, raws = converters.parse_request(data)
            model = message.model_name
            # Refuses an unknown model before any work on its payload.
            self._plane.admit(model, message.model_version)
            raw = bool(raws)
            deadline_ns = _deadline_ns(context, arrival_ns)
            request = converters.infer_request(message, raws, arrival_ns, deadline_ns, _tenant(context))
        except RequestEnded as end:
            self._plane.refuse(model, end)
            raise
        except Exception:
            self._plane.refuse(model, internal_fault())
            raise
        # The call waits from here on: only the request's own tensors stay alive, not the parsed message.
        del message, raws, data
        response = await self._plane.infer(request)
        try:
            parts = converters.response_parts(response, raw=raw)
            size = sum(len(part) for part in parts)
            if size > self._max_message_bytes:
                raise self._too_large("response", size)
        except Exception as error:
            # The batcher has counted it as answered: that it was not is counted apart.
            self._plane.unsent(model, error.reason if isinstance(error, RequestEnded) else "internal")
            raise
        context.set_trailing_metadata(_ANSWERED[response.outcome])
        return b"".join(parts)

    async def _server_live(self, _request: pb.ServerLiveRequest, _context: Context) -> pb.ServerLiveResponse:
        return pb.ServerLiveResponse(live=True)

    async def _server_ready(self, _request: pb.ServerReadyRequest, _context: Context) -> pb.ServerReadyResponse:
        return pb.ServerReadyResponse(ready=self._plane.server_ready())

    async def _model_ready(self, request: pb.ModelReadyRequest, _context: Context) -> pb.ModelReadyResponse:
        return pb.ModelReadyResponse(ready=self._plane.model_ready(request.name, request.version))

    async def _server_metadata(
        self, _request: pb.ServerMetadataRequest, _context: Context
    ) -> pb.ServerMetadataResponse:
        return described.server_metadata(self._plane.server())

    async def _model_metadata(self, request: pb.ModelMetadataRequest, _context: Context) -> pb.ModelMetadataResponse:
        return described.model_metadata(self._plane.metadata(request.name, request.version))

    async def _model_config(self, request: pb.ModelConfigRequest, _context: Context) -> pb.ModelConfigResponse:
        return described.model_config(self._plane.config(request.name, request.version))

    def _too_large(self, what: str, size: int) -> RequestEnded:
        return RequestEnded(
            Outcome.INVALID,
            f"{what}_too_large",
            f"{self._hop}: {what} of {size} bytes is over maxMessageBytes, {self._max_message_bytes} bytes",
            status=TOO_LARGE,
        )


def _guarded(call: Behaviour) -> Behaviour:
    """``call`` with every end turned into a status. A cancel passes through: it withdraws the request further down."""

    async def guarded(request: Any, context: Context) -> Any:
        try:
            return await call(request, context)
        except asyncio.CancelledError:
            raise
        except RequestEnded as error:
            end = error
        except Exception:  # noqa: BLE001 - whatever it was, it ends this call and no other
            _log.exception("a call failed by a fault of the server's own")
            end = internal_fault()
        code, details, trailers = status_of(end)
        try:
            return await context.abort(code, details, trailers)
        except aio.InternalError:
            # The call is gone: its client cancelled, or gave up at the same moment. Nobody is left to be told.
            raise asyncio.CancelledError from None

    return guarded


def _deadline_ns(context: Context, now_ns: int) -> int | None:
    """The call's deadline on the runtime's clock; None when the client set none."""
    remaining_s: float | None = context.time_remaining()
    return None if remaining_s is None else now_ns + int(remaining_s * _NS_PER_S)


def _tenant(context: Context) -> str:
    for key, value in context.invocation_metadata() or ():
        if key == FAIRNESS_KEY:
            return value if isinstance(value, str) else value.decode("ascii", "backslashreplace")
    return ""
