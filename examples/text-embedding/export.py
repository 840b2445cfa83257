"""Export the encoder to build/repository/minilm/1/model.pt2 and write build/service.yaml with the file's sha256.

python export.py [--force]
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import minilm

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
MARKER = f'sha256: "{"0" * 64}"'
"""In the committed file: a valid service that no artefact matches."""
MAX_BATCH = 32


def artefact(build: Path) -> Path:
    """Where the exported program lies."""
    return build / "repository" / "minilm" / "1" / "model.pt2"


def export_encoder(path: Path) -> None:
    """Write the encoder with its published weights as a torch.export program; batch and length stay dynamic."""
    import torch
    from torch.export import Dim

    encoder = minilm.load_encoder()
    # torch.export treats sizes 0 and 1 as constants, so the example input is larger; the program runs any batch from 1.
    ids = torch.ones((3, 24), dtype=torch.int64)
    sizes = {0: Dim("batch", min=1, max=MAX_BATCH), 1: Dim("tokens", min=2, max=minilm.MAX_TOKENS)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations, nothing a user of the example can act on
        program = torch.export.export(encoder, (ids, torch.ones_like(ids)), dynamic_shapes=(sizes, sizes))
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name("model.part.pt2")
        torch.export.save(program, part)
    part.replace(path)


def render_service(template: Path, target: Path, sha256: str) -> None:
    """Copy the service file with the artefact's sha256 filled in."""
    text = template.read_text()
    if MARKER not in text:
        raise SystemExit(f"{template} has no line `{MARKER}`.")
    # The rest of the line is about the placeholder.
    target.write_text(re.sub(f"{re.escape(MARKER)}.*", f"sha256: {sha256}", text))


def fingerprint() -> dict[str, str]:
    """What the build depends on: versions, weights and the example's own files."""
    sources = [HERE / name for name in ("encoder.py", "export.py", "minilm.py", "service.yaml")]
    code = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    return {"torch": version("torch"), "weights": minilm.WEIGHTS_SHA256, "code": code}


def is_fresh(build: Path = BUILD) -> bool:
    """Whether ``build`` holds an export made from these versions."""
    stamp = build / "stamp.json"
    if not (stamp.is_file() and artefact(build).is_file() and (build / "service.yaml").is_file()):
        return False
    return bool(json.loads(stamp.read_text()) == fingerprint())


def build_all(build: Path = BUILD, *, force: bool = False) -> Path:
    """Make ``build`` unless it is fresh. Returns the service file to run."""
    service = build / "service.yaml"
    if force or not is_fresh(build):
        (build / "stamp.json").unlink(missing_ok=True)
        export_encoder(artefact(build))
        with artefact(build).open("rb") as file:
            render_service(HERE / "service.yaml", service, hashlib.file_digest(file, "sha256").hexdigest())
        (build / "stamp.json").write_text(json.dumps(fingerprint()))
    return service


def main() -> None:
    """Command line."""
    start = time.monotonic()
    fresh = is_fresh()
    try:
        service = build_all(force="--force" in sys.argv[1:])
    except minilm.WeightsError as fault:
        raise SystemExit(str(fault)) from None
    size = artefact(BUILD).stat().st_size / 1e6
    how = "already up to date" if fresh and "--force" not in sys.argv[1:] else f"{time.monotonic() - start:.1f} s"
    print(f"{artefact(BUILD).relative_to(HERE)}: {size:.0f} MB ({how})")
    print(f"{service.relative_to(HERE)}: run it with `harness run -f {service.relative_to(HERE)}`")


if __name__ == "__main__":
    main()
