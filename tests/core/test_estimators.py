"""Live correction, arrival rate, planned batch."""

from __future__ import annotations

import random

import pytest
from harness_core.correction import Correction
from harness_core.pod.timing import Timing
from harness_core.profile import LatencyProfile, ProfilePoint
from harness_core.rate import ArrivalRate, planned_batch
from hypothesis import given
from hypothesis import strategies as st

MS = 1_000_000


@pytest.mark.parametrize(("cv", "want"), [(0.0, 1.01), (0.05, 1.10), (0.2, 1.41)])
def test_the_factor_follows_the_noise(cv: float, want: float):
    """About the q98 of the noise: 1 % without any, 10 % at cv 0.05, some 40 % at cv 0.2."""
    rng, correction, seen = random.Random(1), Correction(), []
    for step in range(4000):
        correction.observe(round(rng.gauss(1.0, cv) * 1e9), 10**9)
        if step > 500:
            seen.append(correction.factor)
    assert sum(seen) / len(seen) == pytest.approx(want, rel=0.02)


def test_a_straggler_is_clipped_and_forgotten():
    """One batch of ten times its time leaves the ratio alone and moves the factor by an eighth; a run of slow ones is soon learnt."""
    correction = Correction()
    for _ in range(200):
        correction.observe(100, 100)
    correction.observe(1000, 100)
    assert correction.ratio == pytest.approx(1.0)
    assert correction.factor == pytest.approx(1.125, abs=0.01)
    for _ in range(5):
        correction.observe(100, 100)
    for _ in range(6):
        correction.observe(150, 100)
    assert correction.ratio > 1.4
    for _ in range(200):
        correction.observe(100, 100)
    assert correction.factor == pytest.approx(1.01, abs=0.005)


@pytest.mark.parametrize("rows", [1, 4])
def test_the_rate_of_even_arrivals_is_found(rows: int):
    """From the second request on within a quarter, exact once 2·SLO have passed, and forgotten after silence."""
    rate = ArrivalRate()
    for index in range(100):
        rate.observe(index * 2 * MS, rows, 50 * MS)
    assert rate.per_ns(198 * MS) == pytest.approx(rows / (2 * MS), rel=0.05)
    assert rate.budget_ns == pytest.approx(50 * MS)
    assert rate.per_ns(2000 * MS) < rows / (100 * MS)


@given(
    st.integers(0, 50),
    st.integers(1, 5),
    st.integers(1, 64),
    st.floats(1e-9, 1e-5),
    st.integers(1, 300),
    st.integers(0, 5),
)
def test_the_planned_batch_is_the_largest_that_fills_and_runs_in_time(setup, per_row, cap, rate, budget_ms, delay_ms):
    """f·l(b) + b/rate + delay <= D holds for b* and for no larger b up to the cap."""
    profile = LatencyProfile.linear(setup * MS + 1, per_row * MS, cap)

    def total(rows: int) -> float:
        return profile.latency_ns(rows) + rows / rate + delay_ms * MS

    plan = planned_batch(profile.latency_ns, rate, budget_ms * MS, delay_ms * MS, cap)
    assert 1 <= plan <= cap
    assert plan == 1 or total(plan) <= budget_ms * MS
    assert plan == cap or total(plan + 1) > budget_ms * MS


def test_the_planned_batch_of_the_stagger_bound():
    """For l = 5 + b ms, D 50 ms, 720 requests/s: 18, as Symphony's form of bound 2 gives for one accelerator."""
    profile = LatencyProfile.linear(5 * MS, MS, 32)
    assert planned_batch(profile.latency_ns, 720e-9, 50 * MS, 0, 32) == 18
    assert planned_batch(profile.latency_ns, 0.0, 50 * MS, 0, 32) == 1


@given(st.integers(0, 60 * MS), st.sampled_from([(), (1, 4, 16), (1, 2, 4, 8, 16, 32)]))
def test_fit_is_the_inverse_of_need(budget, sizes):
    """What fits is promised within the budget, one row more is not."""
    timing = Timing(LatencyProfile.linear(5 * MS, MS, 32), 32, sizes)
    rows = timing.fit(budget)
    assert rows == 0 or timing.need_ns(rows) <= budget
    assert rows == 32 or timing.need_ns(rows + 1) >= budget


@given(
    st.lists(st.tuples(st.integers(1, 10**9), st.integers(1, 10**9)), max_size=4),
    st.lists(st.integers(1, 10**8), min_size=1, max_size=6, unique=True),
    st.sets(st.integers(1, 40), max_size=4),
    st.integers(-10, 2 * 10**8),
)
def test_what_fits_is_what_is_promised(batches, times, sizes, budget):
    """Whatever the factor, profile and sizes: r rows fit what they need, and what fits needs no more than the budget."""
    profile = LatencyProfile.from_points(ProfilePoint(5 * size, time) for size, time in enumerate(times, start=1))
    timing = Timing(profile, 40, tuple(sorted(sizes)))
    for measured, expected in batches:
        timing.correction.observe(measured, expected)
    for rows in range(1, 41):
        assert timing.fit(timing.need_ns(rows)) >= rows
        assert timing.fit(timing.need_ns(rows) - 1) < rows
    rows = timing.fit(budget)
    assert rows == 0 or timing.need_ns(rows) <= budget
    assert rows == 40 or timing.need_ns(rows + 1) > budget
