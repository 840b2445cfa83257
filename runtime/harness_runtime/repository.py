"""The model repository: from ``storageUri`` to one checked file, and the digest by which everything else knows the model.

Layout: ``<version>/model.pt2`` (``model.pt``, ``model.py``) under the folder that ``storageUri`` names, or under
``<model>/`` in it. Version "" is the numerically highest version that has the artefact. Reads ``file:`` only in this release.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from harness_api.models import CHECKSUMMED, Format
from harness_api.storage import FILE, file_path, scheme_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness_api.batching import Emulation
    from harness_api.models import Model
    from harness_api.tensors import InputTensor, OutputTensor

FILE_NAME: Final[dict[Format, str]] = {
    Format.TORCH_EXPORT: "model.pt2",
    Format.TORCH_SCRIPT: "model.pt",
    Format.PYTHON: "model.py",
}
UNSTORED_VERSION: Final = "1"
"""Version of a model without artefact (Profiled) that names none."""


class RepositoryError(Exception):
    """A model's artefact cannot be used. ``field`` is the field of the model's entry that the message is about."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Artefact:
    """A model's file, the version it was found under, and the checksum of its content (hex)."""

    path: Path
    version: str
    sha256: str


def resolve(model: Model, *, base_dir: Path, trust_repository: bool = False, allow_python: bool = False) -> Artefact:
    """Find and check the artefact of a model that has one. Relative ``file:`` paths start at ``base_dir``.

    The file is read once for its checksum. It is not locked: whoever may write the repository could change it afterwards.

    Raises:
        RepositoryError: not allowed, not found, outside of the repository, or of another checksum.
    """
    _check_allowed(model, trust_repository, allow_python)
    try:
        root = _root(model, base_dir)
        path, version = _find(model, root)
        if not trust_repository and not path.resolve(strict=True).is_relative_to(root.resolve(strict=True)):
            raise RepositoryError(
                "storageUri",
                f"{path} leads out of the repository {root}; only a runtime started with --trust-repository follows it",
            )
        sha256 = file_sha256(path)
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of symbolic links (Python < 3.13)
        reason = getattr(error, "strerror", None) or str(error)
        raise RepositoryError("storageUri", f"{model.storage_uri}: {reason}") from error
    if model.sha256 is not None and sha256 != model.sha256:
        raise RepositoryError("sha256", f"{path} has sha256 {sha256}, but {model.sha256} is required")
    return Artefact(path, version, sha256)


def file_sha256(path: Path) -> str:
    """sha256 of a file's content, in hex; reads it in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_digest(model: Model, artefact: Artefact | None) -> str:
    """The model's digest: sha256 over the artefact's checksum and the canonical JSON of name and signature.

    What changes without a reload (objective, weight, priority, batching) and the version's number are left out. The name is
    in it, so that two models of one file keep queues and states of their own.
    """
    signature = {
        "name": model.name,
        "format": model.format.value,
        "batched": model.max_batch_size > 0,
        "inputs": [_input_signature(tensor) for tensor in model.inputs or ()],
        "outputs": [_output_signature(tensor) for tensor in model.outputs or ()],
        "emulation": None if model.emulation is None else _emulation_signature(model.emulation),
    }
    text = json.dumps(signature, sort_keys=True, separators=(",", ":"))
    checksum = "" if artefact is None else artefact.sha256
    return hashlib.sha256(f"{checksum}\n{text}".encode()).hexdigest()


def _input_signature(tensor: InputTensor) -> dict[str, Any]:
    buckets = tensor.buckets
    padding = None if buckets is None else {"dim": buckets.dim, "sizes": buckets.sizes, "padValue": buckets.pad_value}
    return {"name": tensor.name, "datatype": tensor.datatype.value, "shape": tensor.shape, "buckets": padding}


def _output_signature(tensor: OutputTensor) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype.value, "shape": tensor.shape, "trimDims": tensor.trim_dims}


def _emulation_signature(emulation: Emulation) -> dict[str, Any]:
    return {
        "setupMicroseconds": emulation.setup_microseconds or 0,
        "computeMicrosecondsPerRow": emulation.compute_microseconds_per_row or 0,
        "points": [[point.batch_size, point.microseconds] for point in emulation.points or ()],
    }


def _check_allowed(model: Model, trust_repository: bool, allow_python: bool) -> None:
    if model.format not in FILE_NAME:
        raise RepositoryError("format", f"format {model.format} has no artefact")
    if model.format is Format.PYTHON and not allow_python:
        raise RepositoryError(
            "format",
            "Python models run code of the repository: start the runtime with --allow-python-models to permit it",
        )
    if model.format in CHECKSUMMED and model.sha256 is None and not trust_repository:
        raise RepositoryError(
            "sha256",
            f"required for format {model.format}, since loading a model can run code; without it start the runtime with --trust-repository",
        )


def _root(model: Model, base_dir: Path) -> Path:
    uri = model.storage_uri
    if uri is None:
        raise RepositoryError("storageUri", f"required for format {model.format}")
    if scheme_of(uri) != FILE:
        raise RepositoryError("storageUri", f"'{uri}' cannot be read: this release reads file: only")
    try:
        root = base_dir / file_path(uri)
    except ValueError as error:
        raise RepositoryError("storageUri", str(error)) from error
    if not root.is_dir():
        raise RepositoryError("storageUri", f"there is no folder {root}")
    return root


def _find(model: Model, root: Path) -> tuple[Path, str]:
    """The artefact's file and its version."""
    name = FILE_NAME[model.format]
    places = (root, root / model.name)
    if model.version:
        for place in places:
            if (path := place / model.version / name).is_file():
                return path, model.version
        found = sorted({version for place in places for version in _versions(place, name)})
        present = f"versions with one: {', '.join(map(str, found))}" if found else "no version has one"
        raise RepositoryError(
            "version",
            f"there is no file {model.version}/{name} or {model.name}/{model.version}/{name} in {root} ({present})",
        )
    for place in places:
        if versions := list(_versions(place, name)):
            version = str(max(versions))
            return place / version / name, version
    raise RepositoryError(
        "storageUri",
        f"there is no file <version>/{name} or {model.name}/<version>/{name} in {root} (versions are whole numbers)",
    )


def _versions(place: Path, name: str) -> Iterator[int]:
    """Numbers of the version folders in ``place`` that hold a file ``name``."""
    if not place.is_dir():
        return
    for folder in place.iterdir():
        text = folder.name
        if text.isascii() and text.isdigit() and text[0] != "0" and len(text) <= 18 and (folder / name).is_file():
            yield int(text)
