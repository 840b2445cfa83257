"""Say what this machine lacks for the targets of the Makefile, and how to get it. Standard library only."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

PYTHON_MIN = (3, 11)
DISK_MIN_GIB = 12
MEMORY_MIN_GIB = 4


def _memory_gib() -> float | None:
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return None
    for line in meminfo.read_text(encoding="ascii").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) / 2**20
    return None


def checks() -> list[tuple[bool, bool, str, str]]:
    """Each check as (passed, nothing works without it, what was found, what to do)."""
    version = ".".join(map(str, sys.version_info[:3]))
    free_gib = shutil.disk_usage(Path.cwd()).free / 2**30
    memory_gib = _memory_gib()
    found = [
        (
            sys.version_info[:2] >= PYTHON_MIN,
            True,
            f"Python {version}",
            f"install Python {PYTHON_MIN[0]}.{PYTHON_MIN[1]} or later, or name one: make PYTHON=/path/to/python3 …",
        ),
        (
            importlib.util.find_spec("ensurepip") is not None,
            True,
            "venv with pip",
            "install your distribution's venv package (Debian: apt-get install python3-venv)",
        ),
        (
            free_gib >= DISK_MIN_GIB,
            False,
            f"{free_gib:.0f} GiB of free disk",
            f"free {DISK_MIN_GIB} GiB (torch with CUDA libraries needs about 7), or use TORCH_INDEX= with a CPU build",
        ),
        (sys.platform == "linux", True, f"platform {sys.platform}", "the runtime needs Linux (memfd, pidfd)"),
    ]
    if memory_gib is not None:
        found.append(
            (memory_gib >= MEMORY_MIN_GIB, False, f"{memory_gib:.0f} GiB of memory", f"{MEMORY_MIN_GIB} GiB are needed")
        )
    return found


def main() -> int:
    """Print the checks; with ``--quiet`` only the failed ones. Exit 1 when one failed that nothing works without."""
    quiet = "--quiet" in sys.argv[1:]
    fatal = False
    for passed, needed, what, mend in checks():
        fatal = fatal or (needed and not passed)
        if passed and not quiet:
            print(f"  ok       {what}")
        elif not passed:
            print(f"  {'MISSING ' if needed else 'scarce  '} {what}: {mend}", file=sys.stderr)
    return 1 if fatal else 0


if __name__ == "__main__":
    sys.exit(main())
