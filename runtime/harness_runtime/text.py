"""Callers' words inside our messages: bounded and plain, since a message travels in HTTP/2 headers and into logs."""

from __future__ import annotations

QUOTED_CHARACTERS_MAX = 64


def quoted(text: str) -> str:
    """``text`` in quotes, ASCII, cut after 64 characters."""
    if len(text) <= QUOTED_CHARACTERS_MAX:
        return ascii(text)
    return f"{text[:QUOTED_CHARACTERS_MAX]!a}..."


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape as callers write it: ``[1,4]``; long ones are cut after eight dimensions."""
    shown = ",".join(str(dim) for dim in shape[:8])
    return f"[{shown},...]" if len(shape) > 8 else f"[{shown}]"
