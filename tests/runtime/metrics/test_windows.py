"""Shares of the last ten seconds."""

from __future__ import annotations

import pytest
from harness_runtime.metrics.windows import BusyWindow, Window

S = 1_000_000_000


def test_value_is_spread_over_the_seconds_it_accrued_in():
    """A quantity that began before the window counts only with what lies in it."""
    window = Window()
    window.add(0, 20 * S, 20.0)
    assert window.total(20 * S) == pytest.approx(10.0)
    assert window.total(25 * S) == pytest.approx(5.0)
    assert window.total(40 * S) == 0


def test_many_small_parts_add_up():
    """Sums of parts within one second lose nothing."""
    window = Window()
    for step in range(1000):
        window.add(step * 1_000_000, (step + 1) * 1_000_000, 1.0)
    assert window.total(S) == pytest.approx(1000.0)


def test_busy_is_the_share_of_running_time_even_while_running():
    """A hung batch shows as busy before it ends."""
    busy = BusyWindow(0)
    assert busy.busy(5 * S) == 0
    busy.started(5 * S)
    assert busy.busy(10 * S) == pytest.approx(0.5)
    busy.ended(10 * S, 0.8)
    assert busy.busy(20 * S) == pytest.approx(0.0)
    assert busy.utilisation(15 * S) == pytest.approx(0.8)
    busy.started(20 * S)
    assert busy.busy(100 * S) == 1.0


def test_utilisation_is_weighted_by_time():
    """A long empty batch counts for more than a short full one."""
    busy = BusyWindow(0)
    busy.started(0)
    busy.ended(S, 1.0)
    busy.started(S)
    busy.ended(4 * S, 0.2)
    assert busy.utilisation(4 * S) == pytest.approx(0.4)
    assert busy.busy(4 * S) == pytest.approx(1.0)
