"""Send one picture to the vision service and print the best classes.

    python client.py HOST:PORT [PICTURE]

Without a picture a test image is drawn (a gradient with a disc). The model has random weights: its classes mean nothing.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

SIDE = 224
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of torchvision's classifiers
TIMEOUT_MS = 1000


def picture(path: str | None) -> npt.NDArray[np.float32]:
    """Values 0 to 1, [224, 224, 3]."""
    if path is not None:
        from PIL import Image

        return np.asarray(Image.open(path).convert("RGB").resize((SIDE, SIDE)), np.float32) / 255
    y, x = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32) / SIDE
    disc = ((x - 0.5) ** 2 + (y - 0.5) ** 2 < 0.1).astype(np.float32)
    return np.stack([x, y, disc], axis=-1)


def main() -> None:
    """Command line."""
    if not 2 <= len(sys.argv) <= 3:
        raise SystemExit(__doc__)
    import grpc
    from harness_proto.grpc import inference_pb2 as pb
    from harness_proto.grpc.inference_pb2_grpc import GRPCInferenceServiceStub

    image = ((picture(sys.argv[2] if len(sys.argv) > 2 else None) - MEAN) / DEVIATION).astype(np.float32)
    request = pb.ModelInferRequest(model_name="mobilenet", raw_input_contents=[image.transpose(2, 0, 1).tobytes()])
    request.inputs.add(name="image", datatype="FP32", shape=[1, 3, SIDE, SIDE])
    request.parameters["timeout"].int64_param = TIMEOUT_MS * 1000
    with grpc.insecure_channel(sys.argv[1]) as channel:
        start = time.perf_counter()
        try:
            answer = GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=TIMEOUT_MS / 1000)
        except grpc.RpcError as error:
            raise SystemExit(f"{error.code().name}: {error.details()}") from None
        took = time.perf_counter() - start
    probabilities = np.frombuffer(answer.raw_output_contents[0], np.float32)
    print(f"answered in {1000 * took:.1f} ms; {len(probabilities)} probabilities, sum {probabilities.sum():.4f}")
    for index in np.argsort(-probabilities)[:3]:
        print(f"  class {index:4d}  {probabilities[index]:.7f}  (random weights: no meaning)")


if __name__ == "__main__":
    main()
