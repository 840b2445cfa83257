"""Write ``harness_proto/grpc/*`` from ``harness_proto/*.proto``: ``python -m harness_proto.generate``.

Needs grpcio-tools and mypy-protobuf (dependency group ``lint``). The output is committed; ``make verify`` demands that it
is fresh. The protos are given the virtual path ``harness_proto/grpc/`` so that the generated modules import one another
by their place in the package.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
STUBS = PACKAGE / "grpc"
WITH_SERVICES = ("inference.proto",)


def arguments(include: Path, out: Path) -> list[str]:
    """Command line of protoc that writes every stub below ``out`` (a source root); ``include`` holds Google's own protos."""
    protos = [f"harness_proto/grpc/{path.name}" for path in sorted(PACKAGE.glob("*.proto"))]
    return [
        "protoc",
        f"-Iharness_proto/grpc={PACKAGE}",
        f"-I{include}",
        f"--python_out={out}",
        f"--mypy_out=quiet:{out}",
        *protos,
    ]


def service_arguments(out: Path) -> list[str]:
    """Command line of protoc for the service stubs."""
    protos = [f"harness_proto/grpc/{name}" for name in WITH_SERVICES]
    return [
        "protoc",
        f"-Iharness_proto/grpc={PACKAGE}",
        f"--grpc_python_out={out}",
        f"--mypy_grpc_out=quiet:{out}",
        *protos,
    ]


def generate(out: Path) -> None:
    """Write all stubs below the source root ``out``.

    Raises:
        SystemExit: protoc refused; it has said why on stderr.
    """
    import grpc_tools  # noqa: PLC0415 - a tool of developers, absent at run time
    from grpc_tools import protoc  # noqa: PLC0415 - same

    # The mypy plugins are programs beside the interpreter; protoc looks for them on PATH.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    include = Path(next(iter(grpc_tools.__path__))) / "_proto"
    for command in (arguments(include, out), service_arguments(out)):
        if protoc.main(command) != 0:
            raise SystemExit("protoc failed")


if __name__ == "__main__":
    generate(PACKAGE.parent)
