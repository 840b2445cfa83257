"""Properties that must hold whatever the driver does. Unlike ``assert`` they are checked under ``python -O`` too."""

from __future__ import annotations


def check(holds: bool, message: str) -> None:
    """Stop when a property of the core is broken: nothing it would say can be trusted any more.

    Raises:
        AssertionError: ``holds`` is false.
    """
    if not holds:
        raise AssertionError(message)
