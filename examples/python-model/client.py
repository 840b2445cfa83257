"""Ask the language model about some texts, all in one request.

python client.py HOST:PORT [TEXT …]
"""

from __future__ import annotations

import sys

import numpy as np

TEXTS = (
    "The cat sat on the mat.",
    "Die Katze saß auf der Matte.",
    "El gato se sentó en la alfombra.",
    "Le chat était assis sur le tapis.",
    "Il gatto era seduto sul tappeto.",
)


def main() -> None:
    """Command line."""
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    import grpc
    from harness_proto.grpc import inference_pb2 as pb
    from harness_proto.grpc.inference_pb2_grpc import GRPCInferenceServiceStub

    texts = sys.argv[2:] or TEXTS
    request = pb.ModelInferRequest(model_name="language")
    request.inputs.add(name="text", datatype="BYTES", shape=[len(texts), 1])
    # BYTES on the wire: each element behind its length, 4 bytes little-endian.
    elements = [text.encode() for text in texts]
    request.raw_input_contents.append(b"".join(len(e).to_bytes(4, "little") + e for e in elements))
    request.parameters["timeout"].int64_param = 500_000  # microseconds
    with grpc.insecure_channel(sys.argv[1]) as channel:
        try:
            answer = GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=0.5)
        except grpc.RpcError as error:
            raise SystemExit(f"{error.code().name}: {error.details()}") from None
    outputs = dict(zip([output.name for output in answer.outputs], answer.raw_output_contents, strict=True))
    # Every code here has two letters: 4 bytes of length and 2 of text.
    languages = [outputs["language"][at + 4 : at + 6].decode() for at in range(0, len(outputs["language"]), 6)]
    scores = np.frombuffer(outputs["score"], np.float32).reshape(len(texts), -1)
    for text, language, score in zip(texts, languages, scores, strict=True):
        print(f"{language}  {score.max():.3f}  {text}")


if __name__ == "__main__":
    main()
