"""What can be said of the examples without torch: corpus, service files, the Python model, the demo's verdict."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest


def test_corpus(examples):
    """A few thousand different sentences of 3 to 60 words, small, with licence and script beside them."""
    folder = examples / "text-embedding/corpus"
    texts = (folder / "sentences.txt").read_text(encoding="utf-8").splitlines()
    assert len(texts) == len(set(texts)) == 4000
    words = [len(text.split()) for text in texts]
    assert min(words) >= 3
    assert max(words) <= 60
    assert max(words) > 40
    assert (folder / "sentences.txt").stat().st_size < 500_000
    assert "WordNet 3.0" in (folder / "LICENSE").read_text()
    assert (folder / "make_corpus.py").is_file()


@pytest.mark.parametrize("example", ["text-embedding", "vision", "python-model"])
def test_service_file_is_valid(examples, example):
    """The committed service file holds one valid InferenceService, as `harness validate -f` reads it."""
    from harness_api.load import load_file

    result = load_file(examples / example / "service.yaml", trust_repository=False)
    assert result.faults == []
    assert [service.metadata.name for service in result.services] == [example]


def test_the_placeholder_is_no_artefacts_checksum(examples):
    """Nothing passes for the template's sum: without export.py's rendering no file is loaded."""
    from harness_api.load import load_file

    for example in ("text-embedding", "vision"):
        result = load_file(examples / example / "service.yaml")
        assert [model.sha256 for model in result.services[0].spec.models] == ["0" * 64]


def test_language_model(load_module):
    """The Python model takes a batch of BYTES and names each text's language; rows do not influence one another."""
    module = load_module("python-model/repository/language/1/model.py")
    texts = load_module("python-model/client.py").TEXTS
    model = module.Model({})
    batch = np.array([[text.encode()] for text in texts], dtype=object)
    answer = model.predict({"text": batch})
    assert [name.decode() for name in answer["language"][:, 0]] == ["en", "de", "es", "fr", "it"]
    assert answer["score"].dtype == np.float32
    assert answer["score"].shape == (5, 5)
    alone = [model.predict({"text": batch[row : row + 1]})["score"][0] for row in range(5)]
    assert np.allclose(answer["score"], alone, atol=1e-6)


def test_language_model_takes_anything(load_module):
    """Empty text, one letter and bytes that are no UTF-8 are answered, not raised."""
    model = load_module("python-model/repository/language/1/model.py").Model({})
    answer = model.predict({"text": np.array([[b""], [b"a"], [b"\xff\xfe"]], dtype=object)})
    assert np.isfinite(answer["score"]).all()


def test_vision_picture(load_module):
    """The client's test image is a picture of the size that the model takes."""
    image = load_module("vision/client.py").picture(None)
    assert image.shape == (224, 224, 3)
    assert image.min() >= 0
    assert image.max() <= 1


@pytest.fixture
def figures(embedding_path):
    import demo_figures

    return demo_figures


@pytest.fixture
def good(figures):
    """Steps of a run as it should be."""
    step = figures.Step(
        load=0.2,
        rate=50,
        sent=100,
        answered=100,
        on_time_ratio=1.0,
        latency_p50_ms=20,
        latency_p99_ms=60,
        send_lag_p99_ms=1,
        batch_rows=2,
        formation_p50_ms=5,
        speedup=1.5,
        utilisation=0.4,
        refused=0,
        refused_early=0,
        refusal_p50_ms=None,
        given_up=0,
        other={},
        cosine_min=0.99999,
    )
    return [step, replace(step, load=1.5, on_time_ratio=0.6, refused=40, refused_early=40, refusal_p50_ms=3)]


def test_good_run(figures, good):
    """A run in which all held has no fault; the overload step need not be on time."""
    assert figures.faults_of(good) == []


@pytest.mark.parametrize(
    ("index", "change", "word"),
    [
        (0, {"on_time_ratio": 0.98}, "on time"),
        (0, {"cosine_min": 0.9998}, "cosine"),
        (1, {"cosine_min": 0.9998}, "cosine"),
        (0, {"cosine_min": None}, "nothing was answered"),
        (0, {"other": {"failed": 1}}, "unexpected"),
        (1, {"refused": 0, "refused_early": 0}, "nothing was refused"),
        (1, {"refused_early": 19}, "refusals"),
        (1, {"given_up": 50}, "refusals"),
    ],
)
def test_bad_run(figures, good, index, change, word):
    """The demo fails when an answer differs, a moderate rate is late, or overload is not answered by early refusals."""
    good[index] = replace(good[index], **change)
    (fault,) = figures.faults_of(good)
    assert word in fault


def test_deadline_from_profile(figures):
    """Four full batches of the commonest bucket, rounded up to 10 ms."""
    from harness_core.profile import LatencyProfile

    profiles = {
        16: LatencyProfile.linear(5_000_000, 1_000_000, 32),
        32: LatencyProfile.linear(9_000_000, 2_000_000, 32),
    }
    assert figures.deadline_ms_of(profiles, 16, 32) == 150


def test_totals_are_differences(embedding_path):
    """Counters of two replicas add up, and two readings subtracted give what happened between them."""
    from demo_service import Totals

    text = (
        "# TYPE harness_batch_rows histogram\n"
        'harness_batch_rows_bucket{{model="minilm",le="+Inf"}} {n}\nharness_batch_rows_sum{{model="minilm"}} {rows}\n'
        'harness_batch_rows_count{{model="minilm"}} {n}\n'
        "# TYPE harness_formation_delay_seconds histogram\n"
        'harness_formation_delay_seconds_bucket{{model="minilm",le="0.01"}} {n}\n'
        'harness_formation_delay_seconds_bucket{{model="minilm",le="+Inf"}} {rows}\n'
    )
    before, after = Totals(), Totals()
    before.add(text.format(n=2, rows=5))
    after.add(text.format(n=3, rows=9))
    after.add(text.format(n=4, rows=10))
    between = after.since(before)
    assert (between.batches, between.rows) == (5, 14)
    assert between.formation == {0.01: 5, float("inf"): 14}


@pytest.mark.process
def test_service_that_does_not_start(embedding_path, tmp_path):
    """A service file that cannot be run ends the wait with the service's own words, and leaves no process."""
    from demo_service import Service, ServiceError

    file = tmp_path / "service.yaml"
    file.write_text("kind: Nonsense\n")
    with (
        Service(file, threads=1, device="cpu", log=tmp_path / "service.log") as service,
        pytest.raises(ServiceError, match="ended before it was ready"),
    ):
        service.wait_ready(lambda _: None)
    assert service._process is not None
    assert service._process.returncode is not None
