"""Server reflection in both versions. grpcio brings v1alpha; v1 has the same messages under another package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Sequence

V1 = "grpc.reflection.v1.ServerReflection"
_ALPHA_PACKAGE, _V1_PACKAGE = "grpc.reflection.v1alpha", "grpc.reflection.v1"


def _v1_file() -> descriptor_pb2.FileDescriptorProto:
    """Descriptor of the v1 service: v1alpha's with its package renamed."""
    alpha = descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(alpha)
    renamed = text_format.MessageToString(alpha).replace(_ALPHA_PACKAGE, _V1_PACKAGE)
    return text_format.Parse(renamed.replace("v1alpha", "v1"), descriptor_pb2.FileDescriptorProto())


class _Pool:
    """The process's descriptors, and v1's beside them: added to the default pool it could clash with a later grpcio."""

    def __init__(self) -> None:
        self._default = descriptor_pool.Default()
        self._v1 = descriptor_pool.DescriptorPool()
        self._v1.Add(_v1_file())

    def FindFileByName(self, name: str) -> Any:  # noqa: N802 - the pool's interface
        return self._first("FindFileByName", name)

    def FindFileContainingSymbol(self, symbol: str) -> Any:  # noqa: N802 - same
        return self._first("FindFileContainingSymbol", symbol)

    def FindMessageTypeByName(self, name: str) -> Any:  # noqa: N802 - same
        return self._first("FindMessageTypeByName", name)

    def FindExtensionByNumber(self, message: Any, number: int) -> Any:  # noqa: N802 - same
        return self._default.FindExtensionByNumber(message, number)

    def FindAllExtensions(self, message: Any) -> Any:  # noqa: N802 - same
        return self._default.FindAllExtensions(message)

    def _first(self, find: str, name: str) -> Any:
        try:
            return getattr(self._default, find)(name)
        except KeyError:
            return getattr(self._v1, find)(name)


def add_reflection(server: grpc.aio.Server, services: Sequence[str]) -> None:
    """Describe ``services`` (full names) to tools such as grpcurl."""
    names = (*services, reflection.SERVICE_NAME, V1)
    pool: Any = _Pool()
    servicer = reflection.aio.ReflectionServicer(names, pool)  # type: ignore[attr-defined] # its stubs forget aio
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, server)
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(V1, {"ServerReflectionInfo": handler}),))
