"""What ``harness validate`` does, without its printing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness_api.load import LoadResult, load_file


@dataclass(frozen=True, slots=True)
class FileReport:
    """One file and what it holds: objects, faults with field path, document and line, and notices."""

    path: Path
    result: LoadResult

    @property
    def ok(self) -> bool:
        """Whether the file would be accepted."""
        return not self.result.faults


def validate_files(
    paths: Iterable[Path | str], *, local: bool = True, trust_repository: bool = False
) -> list[FileReport]:
    """Check files one by one, in the order given. Never raises for what is in a file or for a file that is not there.

    ``local``: as ``harness run`` would read them, else as a cluster would. ``trust_repository``: checksums are optional.
    Model artefacts are not looked at.
    """
    return [FileReport(Path(path), load_file(path, local=local, trust_repository=trust_repository)) for path in paths]
