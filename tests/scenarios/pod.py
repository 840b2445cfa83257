"""A real runtime process for the scenarios, and a plain client for it."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from typing import TYPE_CHECKING, Any, Self

import grpc
import numpy as np
from harness_proto.grpc import inference_pb2 as pb
from harness_proto.grpc import inference_pb2_grpc as rpc

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

START_SECONDS = 60.0
MESSAGE_BYTES = 256 << 20


class Pod:
    """``harness-runtime`` as a child process on free ports of the loopback interface.

    Use as a context manager: entering waits for the event ``wait_for`` (``ready``, or ``listening`` for tests of loading);
    leaving sends SIGTERM and expects the process to end with status 0.
    """

    def __init__(
        self, service: Path, *args: str, wait_for: str = "ready", env: Mapping[str, str] | None = None
    ) -> None:
        self.forwards = service.parent / "forwards.log"
        self._wait_for = wait_for
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._command = [sys.executable, "-m", "harness_runtime.main", "--service", str(service)]
        self._command += ["--grpc-port", "0", "--metrics-port", "0", "--allow-python-models", "--threads", "1", *args]
        self._env = {**os.environ, "HARNESS_TEST_FORWARDS": str(self.forwards), **(env or {})}
        self.addresses: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, env=self._env, text=True)
        threading.Thread(target=self._read, daemon=True).start()
        self.addresses = self.wait_event("listening")
        self.channel = grpc.insecure_channel(
            self.addresses["grpc"],
            options=[
                ("grpc.max_receive_message_length", MESSAGE_BYTES),
                ("grpc.max_send_message_length", MESSAGE_BYTES),
            ],
        )
        self.stub = rpc.GRPCInferenceServiceStub(self.channel)
        if self._wait_for == "ready":
            self.wait_event("ready")
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.channel.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            if self.process.stdout:
                self.process.stdout.close()
        if kind is None:
            assert status == 0, f"the runtime ended with status {status}"

    def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                self._events.put(json.loads(line))
        except ValueError:
            return  # closed by __exit__

    def wait_event(self, name: str, timeout: float = START_SECONDS) -> dict[str, Any]:
        """The next life event of this name."""
        deadline = time.monotonic() + timeout
        while True:
            event = self._events.get(timeout=max(0.01, deadline - time.monotonic()))
            if event["event"] == name:
                return event

    def rows_of_forwards(self) -> list[int]:
        """Rows of each forward of the echo models so far, the warm-up's left out by ``forget_forwards``."""
        return (
            [int(line) for line in self.forwards.read_text(encoding="ascii").split()] if self.forwards.exists() else []
        )

    def forget_forwards(self) -> None:
        """Forget the forwards so far."""
        self.forwards.write_text("", encoding="ascii")

    def http(self, path: str) -> str:
        """Body of a page of the metrics port."""
        with urllib.request.urlopen(f"http://{self.addresses['metrics']}{path}", timeout=5) as answer:
            return answer.read().decode()

    def state(self) -> dict[str, Any]:
        """The page ``/state``."""
        return json.loads(self.http("/state"))

    def metric(self, name: str, **labels: str) -> float:
        """Sum of the samples of this name that carry these labels."""
        total = 0.0
        for line in self.http("/metrics").splitlines():
            head, _, value = line.rpartition(" ")
            sample, _, tail = head.partition("{")
            if sample == name and all(f'{key}="{want}"' in tail for key, want in labels.items()):
                total += float(value)
        return total

    def infer(self, message: pb.ModelInferRequest, timeout: float | None = 30.0) -> pb.ModelInferResponse:
        """One call, waited for."""
        return self.stub.ModelInfer(message, timeout=timeout)

    def send(self, message: pb.ModelInferRequest, timeout: float | None = 30.0) -> Any:
        """One call, not waited for: a grpc future."""
        return self.stub.ModelInfer.future(message, timeout=timeout)


DATATYPES = {"<f4": "FP32", "<i8": "INT64", "<f2": "FP16", "|u1": "UINT8"}


def request(
    model: str, id: str = "", parameters: Mapping[str, Any] | None = None, **inputs: Any
) -> pb.ModelInferRequest:
    """A request with raw contents."""
    message = pb.ModelInferRequest(model_name=model, id=id)
    for key, value in (parameters or {}).items():
        field = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}[type(value)]
        setattr(message.parameters[key], field, value)
    for name, array in inputs.items():
        message.inputs.add(name=name, datatype=DATATYPES[array.dtype.str], shape=array.shape)
        message.raw_input_contents.append(np.ascontiguousarray(array).tobytes())
    return message


def echo(
    model: str = "echo", first: float = 0.0, rows: int = 1, id: str = "", **parameters: Any
) -> pb.ModelInferRequest:
    """A call of an echo model: X counts up from ``first``."""
    x = np.arange(first, first + 4 * rows, dtype=np.float32).reshape(rows, 4)
    return request(model, id, parameters, X=x, TAG=np.full((rows, 1), int(first), np.int64))


def output(response: pb.ModelInferResponse, name: str, dtype: Any = np.float32) -> np.ndarray:
    """One output of a raw answer."""
    index = [tensor.name for tensor in response.outputs].index(name)
    return np.frombuffer(response.raw_output_contents[index], dtype).reshape(response.outputs[index].shape)


def trailers(error: grpc.RpcError) -> dict[str, Any]:
    """Trailing metadata of a failed call."""
    return {item.key: item.value for item in error.trailing_metadata() or ()}
