"""The demo's sentences: token ids, the model's own answers, and the served answers as they come in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import minilm
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from harness_cli.load.report import LoadReport


@dataclass
class Sentences:
    """The corpus with what is known of it: token ids, the model's own answers, the served answers as they come in."""

    texts: list[str]
    ids: list[npt.NDArray[np.int64]]
    alone: npt.NDArray[np.float32]
    served: dict[int, npt.NDArray[np.float32]] = field(default_factory=dict)
    sent: int = 0

    @property
    def main_bucket(self) -> int:
        """The commonest bucket."""
        return max(minilm.BUCKETS, key=[minilm.bucket_of(len(ids)) for ids in self.ids].count)

    def in_turn(self) -> tuple[list[int], list[dict[str, npt.NDArray[np.int64]]]]:
        """Indices and inputs, beginning where the last step left off."""
        order = [(self.sent + k) % len(self.ids) for k in range(len(self.ids))]
        return order, [inputs_of(self.ids[k]) for k in order]

    def take(self, order: Sequence[int], report: LoadReport) -> npt.NDArray[np.float64]:
        """Compare a step's answers with the model's own: their cosines. Vectors are compared as they come, not rescaled."""
        cosines = []
        for request in range(len(report.records)):
            tensors = report.tensors(request)
            if tensors is not None:
                index = order[request % len(order)]
                vector = tensors["embedding"][0]
                self.served[index] = vector
                cosines.append(_cosine(vector, self.alone[index]))
        self.sent += len(report.records)
        return np.asarray(cosines, np.float64)


def inputs_of(ids: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[np.int64]]:
    """The inputs of a request for one sentence, a row each."""
    return {"input_ids": ids[None], "attention_mask": np.ones((1, len(ids)), np.int64)}


def _cosine(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> float:
    return float(a @ b / max(1e-12, float(np.linalg.norm(a) * np.linalg.norm(b))))
