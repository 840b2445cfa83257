"""Arrival processes: rates, burstiness, determinism, schedules."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from harness_sim.traces import TraceError, read_trace
from harness_sim.workloads import Arrivals, RateSchedule, Workload, choose, trace_rate
from hypothesis import given
from hypothesis import strategies as st

NS = 1_000_000_000


def make_times(workload: Workload, schedule: RateSchedule, seed: int = 1):
    return workload.times_ns(schedule, np.random.default_rng(seed))


def squared_cv(times) -> float:
    gaps = np.diff(times)
    return float(gaps.var() / gaps.mean() ** 2)


def test_constant_is_evenly_spaced_from_zero():
    """R requests per second for S seconds are exactly R·S requests, 1/R apart."""
    times = make_times(Workload(Arrivals.CONSTANT), RateSchedule.constant(100, 2))
    assert times.tolist() == [i * NS // 100 for i in range(200)]


@pytest.mark.parametrize(
    ("arrivals", "shape", "want_cv2"), [("poisson", 1, 1), ("gamma", 0.3, 1 / 0.3), ("gamma", 4, 0.25)]
)
def test_rate_and_burstiness(arrivals, shape, want_cv2):
    """The mean rate is the one asked for, the squared coefficient of variation of the gaps is 1/k."""
    times = make_times(Workload(Arrivals(arrivals), shape=shape), RateSchedule.constant(1000, 200))
    assert times.dtype == np.int64
    assert np.all(np.diff(times) >= 0)
    assert times[-1] < 200 * NS
    assert len(times) == pytest.approx(200_000, rel=5 * (want_cv2 / 200_000) ** 0.5)
    assert squared_cv(times) == pytest.approx(want_cv2, rel=0.05)


def test_a_seed_gives_the_same_arrivals_again():
    """Equal seeds, equal times; other seeds, other times."""
    workload, schedule = Workload(Arrivals.GAMMA, shape=0.3), RateSchedule.constant(50, 5)
    assert make_times(workload, schedule, 7).tolist() == make_times(workload, schedule, 7).tolist()
    assert make_times(workload, schedule, 7).tolist() != make_times(workload, schedule, 8).tolist()


def test_steps_and_ramps_have_their_rates():
    """Counts per stretch follow the schedule: 100/s for 10 s, up to 300/s within 10 s, nothing for 5 s, 50/s for 10 s."""
    schedule = RateSchedule.parse("100:10, 100-300:10, 0:5, 50:10")
    times = make_times(Workload(Arrivals.CONSTANT), schedule) / NS
    counts, _ = np.histogram(times, [0, 10, 15, 20, 25, 35])
    assert schedule.duration_s == 35
    assert schedule.requests == pytest.approx(3500)
    assert counts.tolist() == pytest.approx([1000, 750, 1250, 0, 500], abs=1)


def test_ramp_down_to_zero_stays_inside():
    """A ramp that ends at rate 0 has its last arrival before its end."""
    times = make_times(Workload(Arrivals.POISSON), RateSchedule.parse("200-0:10"))
    assert len(times) == pytest.approx(1000, rel=0.2)
    assert times[-1] <= 10 * NS


@given(
    st.lists(st.tuples(st.floats(0, 500), st.floats(0, 500), st.floats(0.01, 5)), min_size=1, max_size=5),
    st.sampled_from([Arrivals.CONSTANT, Arrivals.POISSON, Arrivals.GAMMA]),
    st.integers(0, 1000),
)
def test_times_ascend_within_any_schedule(parts, arrivals, seed):
    """Whatever the schedule, times ascend and lie inside it."""
    schedule = RateSchedule.parse(",".join(f"{a:.6f}-{b:.6f}:{s:.6f}" for a, b, s in parts))
    times = make_times(Workload(arrivals, shape=0.5), schedule, seed)
    assert np.all(np.diff(times) >= 0)
    assert np.all((times >= 0) & (times <= schedule.duration_s * NS + 1))


@pytest.mark.parametrize("text", ["", "100", "100:", "x:3", "100:0", "-5:3", "100:-1", "nan:3", "5:inf"])
def test_a_bad_schedule_is_named(text):
    """The message quotes the part that cannot be read."""
    with pytest.raises(ValueError, match="RATE:SECONDS"):
        RateSchedule.parse(text)


def test_trace_is_scaled_and_repeated():
    """A trace keeps its pattern at another rate and starts again when it is over."""
    trace = np.array([0, 100, 100, 400], np.int64)
    times = make_times(Workload(Arrivals.TRACE, trace_ns=trace), RateSchedule.constant(1, 8)) / NS
    # Three gaps of 400 ns in all become 3 s; the next round starts one mean gap later.
    assert times.tolist() == pytest.approx([0, 0.75, 0.75, 3, 4, 4.75, 4.75, 7])
    assert trace_rate(trace) == pytest.approx(3 / 400e-9)


@pytest.mark.parametrize("trace", [None, [], [5], [5, 5], [5, 3, 9]])
def test_a_trace_without_a_rate_is_refused(trace):
    """No trace, one instant only, or times that go back."""
    with pytest.raises(ValueError, match="trace"):
        Workload(Arrivals.TRACE, trace_ns=None if trace is None else np.array(trace, np.int64))


def test_too_many_requests_are_refused_before_memory_is_taken():
    """A typing error in a rate gives a message, not an out-of-memory kill."""
    with pytest.raises(ValueError, match="at most"):
        make_times(Workload(), RateSchedule.constant(1e9, 1e6))


def test_choose_follows_the_shares():
    """Draws have the asked proportions; shares need not add up to 1."""
    drawn = choose({10.0: 1, 1.0: 3}, 40_000, np.random.default_rng(3))
    assert float((drawn == 10).mean()) == pytest.approx(0.25, abs=0.02)


def test_read_trace_plain_and_gzip(tmp_path):
    """Times come out in ns from the first arrival, sorted; further columns are left alone."""
    text = "t_ms,tokens\n5.5,1\n7.25,2\n6,3\n"
    plain, packed = tmp_path / "t.csv", tmp_path / "t.csv.gz"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    assert read_trace(plain).tolist() == read_trace(packed).tolist() == [0, 500_000, 1_750_000]


@pytest.mark.parametrize(
    ("text", "want"), [("a,b\n1,2\n", "no column 't_ms'"), ("t_ms\n1\nx\n", "line 3"), ("t_ms\n", "no arrivals")]
)
def test_bad_traces_name_their_fault(tmp_path, text, want):
    """File, line and column are in the message."""
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=want):
        read_trace(path)


def test_a_file_that_is_not_gzip_is_named(tmp_path):
    """A wrong suffix is no traceback."""
    path = tmp_path / "t.csv.gz"
    path.write_text("t_ms\n1\n")
    with pytest.raises(TraceError, match="not a CSV file"):
        read_trace(path)
