"""Export torchvision's MobileNetV3-small WITH RANDOM WEIGHTS to build/repository/mobilenet/1/model.pt2, and write build/service.yaml.

The weights are random on purpose: nothing is downloaded, and the example is about serving a vision model, not about its answers.

    python export.py
"""

from __future__ import annotations

import hashlib
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

HERE = Path(__file__).resolve().parent
BUILD = HERE / "build"
MARKER = f'sha256: "{"0" * 64}"'
"""In service.yaml: a valid service that no artefact matches."""
SEED = 0
MAX_BATCH = 16


def build_model() -> torch.nn.Module:
    """The architecture in evaluation mode: normalised image float32 [batch, 3, 224, 224] → probabilities [batch, 1000]."""
    import torch
    from torchvision.models import mobilenet_v3_small

    torch.manual_seed(SEED)
    return torch.nn.Sequential(mobilenet_v3_small(weights=None), torch.nn.Softmax(1)).eval()


def export_model(path: Path) -> None:
    """Write the model as a torch.export program with a dynamic batch."""
    import torch
    from torch.export import Dim

    # torch.export treats a batch of 1 as a constant, so the example input is larger; the program runs any batch from 1.
    images = torch.rand(2, 3, 224, 224)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(
            build_model(), (images,), dynamic_shapes=({0: Dim("batch", min=1, max=MAX_BATCH)},)
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.export.save(program, path)


def main() -> None:
    """Command line."""
    artefact = BUILD / "repository" / "mobilenet" / "1" / "model.pt2"
    export_model(artefact)
    template = (HERE / "service.yaml").read_text()
    service = BUILD / "service.yaml"
    # The rest of the line is about the placeholder.
    service.write_text(
        re.sub(f"{re.escape(MARKER)}.*", f"sha256: {hashlib.sha256(artefact.read_bytes()).hexdigest()}", template)
    )
    print(f"{artefact.relative_to(HERE)}: {artefact.stat().st_size / 1e6:.0f} MB, random weights (seed {SEED})")
    print(f"{service.relative_to(HERE)}: run it with `harness run -f {service.relative_to(HERE)}`")


if __name__ == "__main__":
    main()
