"""Connections to the servers under load."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from harness_proto.grpc import inference_pb2 as pb

from harness_cli.errors import FAILED, CliError
from harness_cli.load.grpc import converters
from harness_cli.load.grpc.reach import reach

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness_cli.load.config import Signature

SERVICE = "/inference.GRPCInferenceService"
ANSWER_S = 10.0
"""How long a server may take to answer what is asked before the load starts."""
OUTCOME_KEY = "harness-outcome"


class Client:
    """Raw ModelInfer calls over ``connections`` TCP connections to each of ``urls``. Use inside a running event loop."""

    def __init__(self, urls: Sequence[str], connections: int, message_bytes_max: int) -> None:
        options = (
            # Channels to one address would share a connection otherwise.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", message_bytes_max),
            ("grpc.max_send_message_length", message_bytes_max),
        )
        self.urls = tuple(urls)
        self._first = {url: grpc.aio.insecure_channel(url, options=options) for url in urls}
        more = [grpc.aio.insecure_channel(url, options=options) for _ in range(connections - 1) for url in urls]
        self._channels = [*self._first.values(), *more]
        # Bytes in, bytes out: nothing is parsed while the clock runs.
        self._calls = [channel.unary_unary(f"{SERVICE}/ModelInfer", None, None) for channel in self._channels]

    async def reach(self) -> None:
        """Ask every server at once whether it is there and speaks gRPC. Raises CliError."""
        for url in self.urls:
            await asyncio.to_thread(reach, url)

    async def signature(self, url: str, model: str, version: str) -> Signature:
        """What the server at ``url`` says of the model. Raises CliError."""
        channel = self._first[url]
        name = {"name": model, "version": version}
        metadata = await self._ask(url, model, channel, "ModelMetadata", pb.ModelMetadataRequest(**name))
        max_batch_size = None
        try:
            config = await self._unary(channel, "ModelConfig", pb.ModelConfigRequest(**name))
            max_batch_size = config.config.max_batch_size
        except grpc.aio.AioRpcError as error:
            # An extension: plain OIP servers do not have it.
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise CliError(f"{url}: ModelConfig of model {model!r}: {_told(error)}", exit_code=FAILED) from None
        try:
            return converters.signature(metadata, max_batch_size)
        except ValueError as error:
            raise CliError(f"{url}: metadata of model {model!r}: {error}", exit_code=FAILED) from None

    async def infer(self, turn: int, payload: bytes, timeout_s: float) -> tuple[str, bytes | None, str]:
        """Send one request on connection ``turn`` (modulo) and give its outcome, when it is OK the answer, else what was said.

        The outcome is the trailer ``harness-outcome``, or the status code's name where a server (or the network) gave none.
        """
        call = self._calls[turn % len(self._calls)](payload, timeout=timeout_s)
        code = await call.code()
        outcome = code.name
        for key, value in await call.trailing_metadata():
            if key == OUTCOME_KEY:
                outcome = value if isinstance(value, str) else value.decode()
                break
        if code is grpc.StatusCode.OK:
            return outcome, await call, ""
        return outcome, None, await call.details() or ""

    async def connect(self) -> None:
        """Open every connection now, so that no request pays for it. Raises CliError."""
        for i, channel in enumerate(self._channels):
            try:
                await asyncio.wait_for(channel.channel_ready(), ANSWER_S)
            except TimeoutError:
                url = self.urls[i % len(self.urls)]
                raise CliError(f"{url}: no connection within {ANSWER_S:g} s", exit_code=FAILED) from None

    async def close(self) -> None:
        """Close all connections; calls under way end as cancelled."""
        for channel in self._channels:
            await channel.close(None)

    async def _ask(self, url: str, model: str, channel: grpc.aio.Channel, call: str, request: Any) -> Any:
        try:
            return await self._unary(channel, call, request)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                raise CliError(f"{url} does not serve model {model!r}: {error.details()}", exit_code=FAILED) from None
            raise CliError(f"{url}: {call} of model {model!r}: {_told(error)}", exit_code=FAILED) from None

    @staticmethod
    async def _unary(channel: grpc.aio.Channel, call: str, request: Any) -> Any:
        answer_type = getattr(pb, f"{call}Response")
        method = channel.unary_unary(
            f"{SERVICE}/{call}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer_type.FromString,
        )
        return await method(request, timeout=ANSWER_S, wait_for_ready=True)


def _told(error: grpc.aio.AioRpcError) -> str:
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"no answer within {ANSWER_S:g} s; is a server listening there?"
    return f"{error.code().name}: {error.details()}"
