"""``storageUri``: which schemes exist, and where each is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from harness_api.base import Options, shorten

FILE: Final = "file"
CLUSTER_SCHEMES: Final = ("pvc", "https", "s3", "gs", "hf")


def scheme_of(uri: str) -> str:
    """The scheme in lower case, empty where there is none."""
    scheme, colon, _ = uri.partition(":")
    return scheme.lower() if colon and scheme.replace("+", "").isalnum() else ""


def storage_faults(uri: str, options: Options | None) -> Iterator[str]:
    """Sentences on what is wrong with ``uri`` where it is read (``options`` None: anywhere)."""
    scheme = scheme_of(uri)
    if scheme == FILE:
        try:
            file_path(uri)
        except ValueError as error:
            yield str(error)
        if options is not None and not options.local:
            yield f"file: is read by harness run only; on a cluster use one of {', '.join(CLUSTER_SCHEMES)}"
    elif scheme in CLUSTER_SCHEMES:
        if options is not None and options.local:
            yield f"{scheme}: is read on a cluster only; on one machine this release reads file: only"
    elif scheme:
        yield f"scheme '{shorten(scheme)}' is not known: use file locally, or one of {', '.join(CLUSTER_SCHEMES)} on a cluster"
    else:
        yield f"'{shorten(uri)}' has no scheme: write file:{shorten(uri)} for a folder"


def file_path(uri: str) -> Path:
    """The path of a ``file:`` URI: ``file:relative/dir`` or ``file:///absolute/dir``, percent-escapes decoded.

    Raises:
        ValueError: a host, query, fragment or NUL in it, or no path at all; the message says what to write.
    """
    rest = uri.partition(":")[2]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in {"", "localhost"}:
            raise ValueError(
                f"'{shorten(uri)}' names the host '{shorten(host)}': write file:relative/folder or file:///absolute/folder"
            )
        rest = slash + path
    if "?" in rest or "#" in rest:
        raise ValueError(f"'{shorten(uri)}' has a query or fragment: write '?' as %3F and '#' as %23")
    path = unquote(rest)
    if not path:
        raise ValueError(f"'{shorten(uri)}' names no folder")
    if "\0" in path:
        raise ValueError("holds a NUL character")
    return Path(path)
