"""The MiniLM example: weights, encoder, export, padding. The demo itself is run by ``make demo``."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("embedding_path")]

SENTENCES = (
    "A man is eating food.",
    "Someone is having a meal.",
    "The stock market fell sharply today.",
    "The assembly of delegates, which had been called together in haste, sat until the evening and went home without a vote.",
)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The encoder exported to a temporary folder, loaded again, with the plain module beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(
            str(__import__("pathlib").Path(__file__).resolve().parents[2] / "examples/text-embedding")
        )
        import export
        import minilm
        import torch

        build = tmp_path_factory.mktemp("build")
        service = export.build_all(build)
        return torch.export.load(export.artefact(build)).module(), minilm.load_encoder(), service, build


def test_wrong_weights_are_refused(tmp_path):
    """A file whose sha256 is not the published one is never loaded, and the message names both sums."""
    import minilm

    wrong = tmp_path / "model.safetensors"
    wrong.write_bytes(b"not the weights")
    with pytest.raises(minilm.WeightsError) as caught:
        minilm.load_encoder(wrong)
    assert hashlib.sha256(b"not the weights").hexdigest() in str(caught.value)
    assert minilm.WEIGHTS_SHA256 in str(caught.value)
    with pytest.raises(minilm.WeightsError):
        minilm.load_encoder(tmp_path / "absent.safetensors")


def test_similar_sentences_are_near():
    """The weights and the pooling are right: unit vectors, a paraphrase near, another subject far."""
    import minilm

    vectors = minilm.embed_alone(minilm.load_encoder(), minilm.tokenise(minilm.load_tokenizer(), SENTENCES[:3]))
    cosines = vectors @ vectors.T
    assert np.allclose(np.diag(cosines), 1, atol=1e-5)
    assert cosines[0, 1] > 0.6
    assert abs(cosines[0, 2]) < 0.1


@pytest.mark.parametrize("batch", [1, 2, 7, 32])
@pytest.mark.parametrize("tokens", [2, 16, 17, 64, 128])
def test_export_agrees(exported, batch, tokens):
    """The exported program gives the module's answers at any batch, 1 included, and any length."""
    import torch

    program, encoder, _, _ = exported
    ids = torch.randint(1000, 20000, (batch, tokens), generator=torch.Generator().manual_seed(batch * 1000 + tokens))
    mask = torch.ones_like(ids)
    with torch.inference_mode():
        difference = (program(ids, mask) - encoder(ids, mask)).abs().max().item()
    assert difference <= 1e-5


@pytest.mark.parametrize("bucket", [16, 32, 64, 128])
def test_padding_changes_nothing(exported, bucket):
    """protocol.md §4: padding to a bucket, and padding rows, change nobody's answer beyond 1e-5."""
    import minilm
    import torch

    program, encoder, _, _ = exported
    ids = [each for each in minilm.tokenise(minilm.load_tokenizer(), SENTENCES) if len(each) <= bucket]
    rows = torch.zeros((len(ids) + 1, bucket), dtype=torch.int64)  # one row of padding
    mask = torch.zeros_like(rows)
    for row, tokens in enumerate(ids):
        rows[row, : len(tokens)] = torch.from_numpy(tokens)
        mask[row, : len(tokens)] = 1
    with torch.inference_mode():
        padded = program(rows, mask)
    assert torch.isfinite(padded).all()
    assert np.abs(padded[: len(ids)].numpy() - minilm.embed_alone(encoder, ids)).max() <= 1e-5


def test_export_names_no_device(exported):
    """No node of the graph is bound to the device that it was traced on: the same file runs on CUDA."""
    program = exported[0]
    assert not [node for node in program.graph.nodes if node.kwargs.get("device") is not None]


def test_service_file_carries_the_sum(exported):
    """The rendered service file is valid and names the exported file's sha256."""
    import export
    from harness_api.load import load_file

    _, _, service, build = exported
    result = load_file(service)
    assert result.faults == []
    assert result.services[0].spec.models[0].sha256 == hashlib.sha256(export.artefact(build).read_bytes()).hexdigest()


def test_build_is_made_once(exported):
    """A second call finds the build fresh; another version of torch or another file would not."""
    import json

    import export

    build = exported[3]
    assert export.is_fresh(build)
    before = export.artefact(build).stat().st_mtime_ns
    export.build_all(build)
    assert export.artefact(build).stat().st_mtime_ns == before
    stamp = build / "stamp.json"
    kept = stamp.read_text()
    stamp.write_text(json.dumps({**json.loads(kept), "torch": "0.0"}))
    assert not export.is_fresh(build)
    stamp.write_text(kept)


def test_corpus_lengths(examples):
    """Every sentence fits the largest bucket uncut, and more than one bucket is in real use."""
    import minilm

    texts = (examples / "text-embedding/corpus/sentences.txt").read_text(encoding="utf-8").splitlines()
    tokenizer = minilm.load_tokenizer()
    tokenizer.no_truncation()
    lengths = [len(ids) for ids in minilm.tokenise(tokenizer, texts)]
    assert max(lengths) <= minilm.MAX_TOKENS
    used = [minilm.bucket_of(length) for length in lengths]
    assert used.count(16) > 1000
    assert used.count(32) > 500
