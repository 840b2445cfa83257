"""Latency profiles: monotone, exact at their points, and what is derived from them."""

from __future__ import annotations

import pytest
from harness_core.profile import LatencyProfile, ProfilePoint
from hypothesis import given
from hypothesis import strategies as st

MS = 1_000_000

points_of_profiles = st.lists(
    st.builds(ProfilePoint, st.integers(1, 256), st.integers(1, 10**10)),
    min_size=1,
    max_size=12,
    unique_by=lambda p: p.size,
)


@given(points_of_profiles, st.integers(1, 400), st.integers(1, 400))
def test_latency_never_decreases_with_rows(points, first, second):
    """Whatever was measured, also beyond the last point and before the first."""
    profile = LatencyProfile.from_points(points)
    low, high = sorted((first, second))
    assert 1 <= profile.latency_ns(low) <= profile.latency_ns(high)
    assert profile.latency_ns(high) <= profile.p99_ns(high)


@given(points_of_profiles)
def test_points_are_kept_where_they_do_not_fall(points):
    """At a measured size the profile is the measurement, or the largest before it."""
    profile = LatencyProfile.from_points(points)
    highest = 0
    for point in sorted(points, key=lambda point: point.size):
        highest = max(highest, point.p50_ns)
        assert profile.latency_ns(point.size) == highest


@given(points_of_profiles, st.integers(0, 2 * 10**10), st.integers(0, 300))
def test_largest_within_is_the_largest(points, budget, cap):
    """The answer fits, the next one does not."""
    profile = LatencyProfile.from_points(points)
    size = profile.largest_within(budget, cap)
    assert 0 <= size <= cap
    assert size == 0 or profile.latency_ns(size) <= budget
    assert size == cap or profile.latency_ns(size + 1) > budget


@given(st.integers(0, 10**9), st.integers(1, 10**8), st.integers(2, 128))
def test_the_fit_of_a_line_is_the_line(setup, per_row, size):
    """Alpha and beta come back, and the worst relative error is nothing."""
    fit = LatencyProfile.linear(setup, per_row, size).fit()
    assert fit.alpha_ns == pytest.approx(per_row, rel=1e-6)
    assert fit.beta_ns == pytest.approx(setup, rel=1e-6, abs=per_row * 1e-3)
    assert fit.max_rel_err < 1e-6


@given(points_of_profiles, st.integers(1, 300))
def test_speedup_and_utilisation_are_in_range(points, rows):
    """S(n) is at least n·l(1)/l(n) by definition, U(n) a share."""
    profile = LatencyProfile.from_points(points)
    assert profile.speedup(1) == 1
    assert profile.speedup(rows) == rows * profile.latency_ns(1) / profile.latency_ns(rows)
    assert 0 <= profile.utilisation(rows) <= 1


def test_speedup_utilisation_and_saturation_of_the_reference_profile():
    """For l = 5 + b ms: S(32) = 32·6/37, U(32) = 32/37 · 32/P, P where l(b)/b is within 2 % of its value at 32."""
    profile = LatencyProfile.linear(5 * MS, MS, 32)
    assert profile.latency_ns(32) == 37 * MS
    assert profile.speedup(32) == pytest.approx(32 * 6 / 37)
    assert profile.saturation_size() == 28
    assert profile.utilisation(32) == pytest.approx(32 / 37)
    assert profile.utilisation(14) == pytest.approx(14 / 19 * 14 / 28)


def test_clockworks_resnet50_is_joined_by_straight_lines():
    """Published points (scheduling.md §4); between 4 and 8 the middle is the middle."""
    published = {1: 3.322, 2: 5.271, 4: 7.495, 8: 12.439, 16: 21.729}
    profile = LatencyProfile.from_points(ProfilePoint(size, round(ms * MS)) for size, ms in published.items())
    assert profile.latency_ns(6) == round((7.495 + 12.439) / 2 * MS)
    assert profile.fit().max_rel_err < 0.15
    assert profile.latency_ns(20) > 21.729 * MS


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ProfilePoint(0, 1), "size"),
        (lambda: ProfilePoint(1, 0), "p50_ns"),
        (lambda: ProfilePoint(1, 5, 4), "p99_ns 4"),
        (lambda: LatencyProfile.from_points([]), "at least one point"),
        (lambda: LatencyProfile.from_points([ProfilePoint(2, 1), ProfilePoint(2, 2)]), "size 2"),
    ],
)
def test_impossible_profiles_are_refused(make, message):
    """The message names the field and the value."""
    with pytest.raises(ValueError, match=message):
        make()
