"""What ``harness run`` is asked to do, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

BIND = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of ``harness run`` that shape the processes. ``port_base`` 0: free ports. None and "": the runtime's default."""

    file: Path
    trust_repository: bool = False
    allow_python_models: bool = False
    port_base: int = 0
    device: str = "auto"
    threads: int | None = None
    """None: cores / replicas."""
    bind: str = BIND
    max_message_bytes: int | None = None
    accelerator_class: str = ""
    replicas: int | None = None

    def flags(self) -> list[str]:
        """Those that a runtime process is given as they are."""
        return [
            *("--bind", self.bind, "--device", self.device),
            *(["--trust-repository"] if self.trust_repository else []),
            *(["--allow-python-models"] if self.allow_python_models else []),
            *(["--max-message-bytes", str(self.max_message_bytes)] if self.max_message_bytes is not None else []),
            *(["--accelerator-class", self.accelerator_class] if self.accelerator_class else []),
        ]
