"""The models of this server, by name and version, and their states.

A version is any text; an unknown one is NOT_FOUND whatever it looks like. Without a version the highest ready version
answers: versions that are whole numbers are compared as numbers and stand above all others, which are compared as text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_core.outcome import Outcome

from harness_runtime.errors import RequestEnded
from harness_runtime.model import ModelState
from harness_runtime.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness_runtime.model import ModelEntry

DEFAULT_RETRY_MS = 1000
"""Retry hint while nothing better is known of how long a model will be away."""


def _rank(version: str) -> tuple[int, int, str]:
    """Sort key: numbers above words, by value."""
    number = int(version) if version.isascii() and version.isdigit() and len(version) <= 18 else None
    return (0, 0, version) if number is None else (1, number, version)


class Registry:
    """Configured models. One loop writes; readers see each change at once."""

    def __init__(self) -> None:
        self._models: dict[str, dict[str, ModelEntry]] = {}
        self._retry_ms: dict[str, int] = {}
        self._listeners: list[Callable[[], None]] = []

    def add(self, entry: ModelEntry) -> None:
        """Add a model version.

        Raises:
            ValueError: that name and version are there already.
        """
        versions = self._models.setdefault(entry.spec.name, {})
        if entry.spec.version in versions:
            raise ValueError(f"model {entry.spec.name!r} version {entry.spec.version!r} is configured twice")
        versions[entry.spec.version] = entry
        # Highest first: the order in which "" looks for a ready version.
        self._models[entry.spec.name] = dict(sorted(versions.items(), key=lambda item: _rank(item[0]), reverse=True))
        self._changed()

    def entries(self) -> list[ModelEntry]:
        """Every model version, by name and then from the highest version down."""
        return [entry for name in sorted(self._models) for entry in self._models[name].values()]

    def versions(self, name: str) -> list[str]:
        """Versions of a model from the highest down; empty when it is not known."""
        return list(self._models.get(name, {}))

    def set_state(self, digest: str, state: ModelState, reason: str = "", *, retry_after_ms: int | None = None) -> None:
        """Move every entry of ``digest`` to ``state``. ``retry_after_ms``: how long until it is likely to be ready.

        Raises:
            KeyError: no entry has that digest.
        """
        entries = [entry for entry in self.entries() if entry.spec.digest == digest]
        if not entries:
            raise KeyError(digest)
        for entry in entries:
            entry.state, entry.reason = state, reason
        self._retry_ms[digest] = DEFAULT_RETRY_MS if retry_after_ms is None else retry_after_ms
        self._changed()

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after every change of the set of models or of a state."""
        self._listeners.append(listener)

    def ready(self) -> bool:
        """Every configured model is ready (and there is one)."""
        entries = self.entries()
        return bool(entries) and all(entry.state is ModelState.READY for entry in entries)

    def lookup(self, name: str, version: str = "") -> ModelEntry:
        """The entry in whatever state; without a version the highest ready one, or else the highest.

        Raises:
            RequestEnded: NOT_FOUND for a name or version that is not configured.
        """
        versions = self._models.get(name)
        if versions is None:
            raise RequestEnded(
                Outcome.INVALID, "unknown_model", f"model {quoted(name)} is not served here", not_found=True
            )
        if version:
            entry = versions.get(version)
            if entry is None:
                known = ", ".join(quoted(known) for known in versions)
                message = f"model {quoted(name)} has no version {quoted(version)}; it has {known}"
                raise RequestEnded(Outcome.INVALID, "unknown_version", message, not_found=True)
            return entry
        for entry in versions.values():
            if entry.state is ModelState.READY:
                return entry
        return next(iter(versions.values()))

    def find(self, name: str, version: str = "") -> ModelEntry:
        """The ready entry that answers a request; without a version the highest ready one.

        Raises:
            RequestEnded: NOT_FOUND as in :meth:`lookup`; UNAVAILABLE with a retry hint while it is not ready.
        """
        entry = self.lookup(name, version)
        if entry.state is ModelState.READY:
            return entry
        why = f": {entry.reason}" if entry.reason else ""
        raise RequestEnded(
            Outcome.UNAVAILABLE,
            f"model_{entry.state.value.lower()}",
            f"model {quoted(name)} version {quoted(entry.spec.version)} is {entry.state.value}{why}",
            retry_after_ms=self._retry_ms.get(entry.spec.digest, DEFAULT_RETRY_MS),
        )

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()
