"""From storageUri to one checked file."""

from __future__ import annotations

import hashlib
import os

import pytest
from harness_api.models import Model
from harness_runtime.repository import RepositoryError, model_digest, resolve

CONTENT = b"weights"
SHA = hashlib.sha256(CONTENT).hexdigest()
TENSORS = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [4]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [4]}],
}


def make_model(**changes) -> Model:
    """A TorchExport model ``m`` in the repository ``file:repo``."""
    fields = {"name": "m", "format": "TorchExport", "storageUri": "file:repo", "sha256": SHA, "maxBatchSize": 4}
    return Model.model_validate({**fields, **TENSORS, **changes})


def put(root, *places, content=CONTENT):
    """Write files below ``root``."""
    for place in places:
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("files", "version", "expected"),
    [
        (["repo/m/1/model.pt2"], "1", ("repo/m/1/model.pt2", "1")),
        (["repo/1/model.pt2"], "1", ("repo/1/model.pt2", "1")),
        (["repo/1/model.pt2", "repo/m/1/model.pt2"], "1", ("repo/1/model.pt2", "1")),
        (["repo/m/2/model.pt2", "repo/m/10/model.pt2", "repo/m/9/model.pt2"], "", ("repo/m/10/model.pt2", "10")),
        (["repo/2/model.pt2", "repo/m/3/model.pt2"], "", ("repo/2/model.pt2", "2")),
        (["repo/m/2/model.pt2", "repo/m/3/model.pt", "repo/m/x/model.pt2", "repo/m/04/model.pt2"], "", ("repo/m/2/model.pt2", "2")),
    ],
)  # fmt: skip
def test_layouts_and_versions(tmp_path, files, version, expected):
    """The version folder stands in the named folder or below the model's name; no version means the highest with the file."""
    put(tmp_path, *files)
    artefact = resolve(make_model(version=version), base_dir=tmp_path)
    assert (artefact.path, artefact.version, artefact.sha256) == (tmp_path / expected[0], expected[1], SHA)


@pytest.mark.parametrize(
    ("kind", "name", "options"),
    [("TorchScript", "model.pt", {}), ("Python", "model.py", {"allow_python": True})],
)
def test_file_name_by_format(tmp_path, kind, name, options):
    """Each format has its file (protocol.md §6)."""
    put(tmp_path, f"repo/m/1/{name}")
    assert resolve(make_model(format=kind), base_dir=tmp_path, **options).path.name == name


def test_absolute_and_escaped_uris(tmp_path):
    """file:///… stands alone; percent-escapes are decoded."""
    put(tmp_path, "a b/m/1/model.pt2")
    for uri in (f"file://{tmp_path}/a%20b", "file:a%20b", "file:./a b"):
        assert resolve(make_model(storageUri=uri), base_dir=tmp_path).path.is_file()


def refusal(base_dir, *, trust_repository=False, **changes) -> tuple[str, str]:
    """Field and message of the refusal, with the temporary folder cut out."""
    with pytest.raises(RepositoryError) as caught:
        resolve(make_model(**changes), base_dir=base_dir, trust_repository=trust_repository)
    return caught.value.field, str(caught.value).replace(f"{base_dir}/", "")


def test_what_is_not_there(tmp_path):
    """Missing folders, versions and files are told with what is there instead."""
    assert refusal(tmp_path) == ("storageUri", "there is no folder repo")
    put(tmp_path, "repo/m/1/model.pt2", "repo/m/10/model.pt2", "repo/m/2/model.pt")
    assert refusal(tmp_path, version="3") == (
        "version",
        "there is no file 3/model.pt2 or m/3/model.pt2 in repo (versions with one: 1, 10)",
    )
    assert refusal(tmp_path, version="3", format="TorchScript")[1].endswith("(versions with one: 2)")
    assert refusal(tmp_path, name="other") == (
        "storageUri",
        "there is no file <version>/model.pt2 or other/<version>/model.pt2 in repo (versions are whole numbers)",
    )


def test_checksum_is_compared_and_required(tmp_path):
    """Another content is refused with both checksums; formats that can run code need one unless the repository is trusted."""
    put(tmp_path, "repo/m/1/model.pt2", content=b"other")
    other = hashlib.sha256(b"other").hexdigest()
    assert refusal(tmp_path) == ("sha256", f"repo/m/1/model.pt2 has sha256 {other}, but {SHA} is required")
    assert refusal(tmp_path, trust_repository=True)[0] == "sha256"
    field, message = refusal(tmp_path, sha256=None)
    assert (field, message.split(",")[0]) == ("sha256", "required for format TorchExport")
    assert resolve(make_model(sha256=None), base_dir=tmp_path, trust_repository=True).sha256 == other


def test_python_models_are_refused_unless_allowed(tmp_path):
    """Python models run code of the repository."""
    put(tmp_path, "repo/m/1/model.py")
    field, message = refusal(tmp_path, format="Python", trust_repository=True)
    assert field == "format"
    assert "--allow-python-models" in message


@pytest.mark.parametrize("uri", ["pvc://models/m", "https://host/m", "s3://b/m", "gs://b/m", "hf://org/m"])
def test_other_schemes_name_the_state_of_this_release(tmp_path, uri):
    """Only file: is read today."""
    assert refusal(tmp_path, storageUri=uri) == ("storageUri", f"'{uri}' cannot be read: this release reads file: only")


def test_links_do_not_lead_out_of_the_repository(tmp_path):
    """A link inside the repository is followed, one out of it only with trust; a loop of links is no crash."""
    put(tmp_path, "repo/blobs/x", "outside/model.pt2")
    folder = tmp_path / "repo/m/1"
    folder.mkdir(parents=True)
    link = folder / "model.pt2"
    link.symlink_to("../../blobs/x")
    assert resolve(make_model(), base_dir=tmp_path).sha256 == SHA
    link.unlink()
    link.symlink_to(tmp_path / "outside/model.pt2")
    assert refusal(tmp_path)[1].startswith("repo/m/1/model.pt2 leads out of the repository")
    assert resolve(make_model(), base_dir=tmp_path, trust_repository=True).sha256 == SHA
    link.unlink()
    link.symlink_to("model.pt2")
    assert refusal(tmp_path, version="1")[0] == "version"


def test_only_regular_files_are_artefacts(tmp_path):
    """A pipe in the artefact's place is not opened: reading it would wait for ever."""
    (tmp_path / "repo/m/1").mkdir(parents=True)
    os.mkfifo(tmp_path / "repo/m/1/model.pt2")
    assert refusal(tmp_path, version="1")[0] == "version"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file(tmp_path):
    """No permission is a refusal in words."""
    put(tmp_path, "repo/m/1/model.pt2")
    (tmp_path / "repo/m/1/model.pt2").chmod(0)
    assert refusal(tmp_path) == ("storageUri", "file:repo: Permission denied")


def test_digest_follows_what_runs(tmp_path):
    """The digest changes with artefact, name and signature, not with what changes without a reload, and never by accident."""
    put(tmp_path, "repo/m/1/model.pt2", "repo/m/2/model.pt2")
    model = make_model(version="1")
    artefact = resolve(model, base_dir=tmp_path)
    digest = model_digest(model, artefact)
    # The canonical form is kept over releases: profiles on clusters are found by the digest.
    canonical = (
        '{"batched":true,"emulation":null,"format":"TorchExport",'
        '"inputs":[{"buckets":null,"datatype":"FP32","name":"x","shape":[4]}],"name":"m",'
        '"outputs":[{"datatype":"FP32","name":"y","shape":[4],"trimDims":[]}]}'
    )
    assert digest == hashlib.sha256(f"{SHA}\n{canonical}".encode()).hexdigest()
    live = make_model(weight=5, priority=1, objective={"latencyMilliseconds": 5}, executionSizes=[4], version="2")
    assert model_digest(live, artefact) == digest
    changes = [
        {"name": "n"},
        {"maxBatchSize": 0},
        {"outputs": [{"name": "z", "datatype": "FP32", "shape": [4]}]},
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1], "buckets": {"dim": 0, "sizes": [4]}}]},
    ]
    digests = {model_digest(make_model(**change), artefact) for change in changes}
    assert len(digests | {digest}) == 5
    assert model_digest(model, None) != digest


def test_equal_emulations_have_equal_digests():
    """What is left out of an emulation counts as 0."""
    fields = {"format": "Profiled", "storageUri": None, "sha256": None}
    short = make_model(**fields, emulation={"setupMicroseconds": 5})
    full = make_model(**fields, emulation={"setupMicroseconds": 5, "computeMicrosecondsPerRow": 0})
    other = make_model(**fields, emulation={"setupMicroseconds": 6})
    assert model_digest(short, None) == model_digest(full, None) != model_digest(other, None)
