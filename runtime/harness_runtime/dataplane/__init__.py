"""What an edge hands its calls to: validation, lanes, deadlines and parameters; then the batcher; then the answer.

Everything a caller declares is checked here, before anything is queued and before anything is allocated from a declared
shape (protocol.md §4). Edges (gRPC, later REST) convert wire types and nothing else.
"""

from harness_runtime.dataplane.plane import DataPlane

__all__ = ["DataPlane"]
