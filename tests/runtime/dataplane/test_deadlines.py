"""Target and limit of a request (design.md §3)."""

from __future__ import annotations

import pytest
from harness_runtime.dataplane.deadlines import HOLD_NS_MAX, target_and_limit
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.dataplane.builders import MS, make_spec

ARRIVAL, HOLD = 1_000_000 * MS, 120_000 * MS
#  name, timeout µs, max latency ms, transport deadline in ms, want target ms, want limit ms; objective 100 ms
CASES = [
    ("nothing: objective and maxHoldSeconds", None, None, None, 100, 120_000),
    ("timeout is both", 30_000, None, None, 30, 30),
    ("a timeout beyond the objective is both", 500_000, None, None, 500, 500),
    ("a timeout is capped", 500_000, 200, None, 200, 200),
    ("the cap leaves deadlines alone", None, 50, 60_000, 100, 60_000),
    ("a long deadline is only the limit", None, None, 60_000, 100, 60_000),
    ("a short deadline is both", None, None, 20, 20, 20),
    ("nobody waits beyond the deadline", 500_000, None, 300, 300, 300),
    ("the timeout is earlier", 200_000, None, 300, 200, 200),
    ("a passed deadline is the arrival", None, None, -5, 0, 0),
    ("timers hold a day", 2**63 - 1, None, None, HOLD_NS_MAX // MS, HOLD_NS_MAX // MS),
]


@pytest.mark.parametrize(
    ("timeout_us", "cap_ms", "deadline_ms", "want_target_ms", "want_limit_ms"),
    [c[1:] for c in CASES],
    ids=[c[0] for c in CASES],
)
def test_target_and_limit(timeout_us, cap_ms, deadline_ms, want_target_ms, want_limit_ms):
    """Every combination that design.md §3 tells apart."""
    spec = make_spec(max_latency_ns=None if cap_ms is None else cap_ms * MS)
    deadline_ns = None if deadline_ms is None else ARRIVAL + deadline_ms * MS
    target_ns, limit_ns = target_and_limit(spec, timeout_us, ARRIVAL, deadline_ns, HOLD)
    assert ((target_ns - ARRIVAL) // MS, (limit_ns - ARRIVAL) // MS) == (want_target_ms, want_limit_ms)


@given(
    st.none() | st.integers(1, 2**63 - 1),
    st.none() | st.integers(1, 10**12),
    st.none() | st.integers(-(10**18), 10**19),
)
def test_times_are_always_in_order(timeout_us, cap_ns, deadline):
    """Arrival <= target <= limit, which the core demands."""
    spec = make_spec(max_latency_ns=cap_ns)
    deadline_ns = None if deadline is None else ARRIVAL + deadline
    target_ns, limit_ns = target_and_limit(spec, timeout_us, ARRIVAL, deadline_ns, HOLD)
    assert ARRIVAL <= target_ns <= limit_ns <= ARRIVAL + HOLD_NS_MAX
