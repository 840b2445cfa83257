"""A model in a tight loop, without any server: the baseline of benchmarks/minilm.py.

Reads one JSON line ``{"rows", "tokens", "seconds", "every_s"}`` from stdin per measurement and answers with one line
``{"rows_per_second", "p50_ms"}``; between measurements it is blocked and takes no processor time.

    python -m benchmarks.bare_model MODEL.pt2 THREADS
"""

from __future__ import annotations

import json
import sys
import time
from statistics import median
from typing import Any


def measure(module: Any, rows: int, tokens: int, seconds: float, every_s: float = 0.0) -> dict[str, float]:
    """Run batches of one shape for ``seconds``, input made once; one every ``every_s`` seconds (0: back to back)."""
    import torch

    ids = torch.ones((rows, tokens), dtype=torch.int64)
    took = []
    with torch.inference_mode():
        for _ in range(3):
            module(ids, ids)
        end = time.monotonic() + seconds
        while (start := time.monotonic()) < end:
            module(ids, ids)
            took.append(time.monotonic() - start)
            time.sleep(max(0.0, every_s - took[-1]))
    return {"rows_per_second": rows * len(took) / sum(took), "p50_ms": median(took) * 1000}


def main() -> None:
    """Serve measurements until stdin ends."""
    import torch

    torch.set_num_threads(int(sys.argv[2]))
    module = torch.export.load(sys.argv[1]).module()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(measure(module, **json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
