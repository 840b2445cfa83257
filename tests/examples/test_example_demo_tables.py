"""The demo's profile table: figures that would puzzle a reader are explained."""

from __future__ import annotations

import io

import pytest
from harness_core.profile import LatencyProfile, ProfilePoint
from rich.console import Console

pytestmark = pytest.mark.usefixtures("embedding_path")


def printed(profiles) -> str:
    """The table as text."""
    from demo_tables import profile_table

    console = Console(width=100, file=io.StringIO())
    console.print(profile_table(profiles, 32))
    return console.file.getvalue()


def test_an_ordinary_profile_needs_no_note():
    """5 + 1·b ms: S(8) = 8·6/13, U(8) = 8/13 · 8/28 (l(b)/b is flat from 28), S(32) = 32·6/37, U(32) = 32/37."""
    text = printed({16: LatencyProfile.linear(5_000_000, 1_000_000, 32)})
    row = next(line for line in text.splitlines() if line.strip().startswith("16"))
    assert row.split() == ["16", "5.0", "1.0", "6.0", "37.0", "3.69", "0.18", "5.19", "0.86"]
    assert "larger batches" not in text


def test_a_set_up_below_zero_and_batches_that_do_not_pay():
    """Latency that grows faster than the rows: a dash with its footnote, and one sentence that names the buckets."""
    points = [ProfilePoint(1, 10_000_000), ProfilePoint(8, 84_000_000), ProfilePoint(32, 400_000_000)]
    steep = LatencyProfile.from_points(points)
    assert steep.fit().beta_ns < 0
    text = printed({16: LatencyProfile.linear(5_000_000, 1_000_000, 32), 128: steep})
    row = next(line for line in text.splitlines() if line.strip().startswith("128"))
    assert row.split()[1] == "–"  # noqa: RUF001
    assert "no set-up to be seen" in " ".join(text.split())
    assert "On this CPU larger batches do not pay at 128 tokens: S(32) < S(8)" in " ".join(text.split())
