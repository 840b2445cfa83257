"""What a user of tritonclient does, in a process of its own: its protobuf descriptors clash with ours in one process.

Run by test_tritonclient.py with the server's address; prints one JSON object of what it saw.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import numpy as np
import tritonclient.grpc as client
import tritonclient.grpc.aio as aio_client
from tritonclient.utils import InferenceServerException


def echo_inputs(rows: int, x: np.ndarray | None = None) -> list[client.InferInput]:
    array = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4) if x is None else x
    tensors = [client.InferInput("X", array.shape, "FP32"), client.InferInput("TAG", [rows], "INT64")]
    tensors[0].set_data_from_numpy(array)
    tensors[1].set_data_from_numpy(np.arange(rows, dtype=np.int64))
    return tensors


def status_of(call: Any) -> list[str]:
    try:
        call()
    except InferenceServerException as error:
        return [str(error.status()), error.message()]
    return ["OK", ""]


def texts(triton: client.InferenceServerClient) -> list[list[str]]:
    """Elements of a BYTES tensor there and back."""
    array = np.array([[b"one", b"zwei"]], dtype=np.object_)
    tensor = client.InferInput("X", array.shape, "BYTES")
    tensor.set_data_from_numpy(array)
    return [[item.decode() for item in row] for row in triton.infer("text", [tensor]).as_numpy("Y").tolist()]


def called_back(triton: client.InferenceServerClient) -> list[list[float]]:
    """async_infer: the answer comes on another thread."""
    import threading

    seen: list[Any] = []
    done = threading.Event()

    def callback(result: Any, error: Any) -> None:
        seen.append(error or result.as_numpy("Y").tolist())
        done.set()

    triton.async_infer("echo", echo_inputs(1), callback)
    done.wait(10)
    return seen[0]


async def over_asyncio(url: str) -> list[list[float]]:
    async with aio_client.InferenceServerClient(url) as triton:
        return (await triton.infer("echo", echo_inputs(1))).as_numpy("Y").tolist()


def main(url: str) -> dict[str, Any]:
    with client.InferenceServerClient(url) as triton:
        wanted = [client.InferRequestedOutput("TAG"), client.InferRequestedOutput("Y")]
        result = triton.infer(
            "echo",
            echo_inputs(2),
            outputs=wanted,
            request_id="r1",
            priority=1,
            timeout=500_000,
            client_timeout=10,
            parameters={"k": "b", "n": 3},
        )
        answer = result.get_response(as_json=True)
        fortran = np.asfortranarray(np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.float32))
        strided = np.array([[1, 0, 2, 0, 3, 0, 4, 0]], np.float32)[:, ::2]
        return {
            "live": triton.is_server_live(),
            "ready": triton.is_server_ready(),
            "models": [triton.is_model_ready(name) for name in ("echo", "nope")],
            "version": triton.is_model_ready("echo", "1"),
            "server": triton.get_server_metadata(as_json=True),
            "metadata": triton.get_model_metadata("echo", as_json=True),
            "config": triton.get_model_config("echo", as_json=True)["config"],
            "y": result.as_numpy("Y").tolist(),
            "tag": result.as_numpy("TAG").tolist(),
            "outputs": [output["name"] for output in answer["outputs"]],
            "id": answer["id"],
            "parameters": answer["parameters"],
            "fortran": triton.infer("echo", echo_inputs(2, fortran)).as_numpy("Y").tolist(),
            "strided": triton.infer("echo", echo_inputs(1, strided)).as_numpy("Y").tolist(),
            "texts": texts(triton),
            "callback": called_back(triton),
            "asyncio": asyncio.run(over_asyncio(url)),
            "unknown": status_of(lambda: triton.infer("nope", echo_inputs(1))),
            "rows": status_of(lambda: triton.infer("echo", echo_inputs(9))),
            "sequence": status_of(lambda: triton.infer("echo", echo_inputs(1), sequence_id=7, sequence_start=True)),
        }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
