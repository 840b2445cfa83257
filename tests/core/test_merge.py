"""Row arithmetic of merge and split."""

from __future__ import annotations

import pytest
from harness_core.merge import row_offsets, row_slices
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.integers(1, 20), max_size=20))
def test_every_row_belongs_to_exactly_one_member(rows):
    """Splitting what was merged gives each member its own rows back."""
    merged = [member for member, count in enumerate(rows) for _ in range(count)]
    parts = [merged[part] for part in row_slices(rows)]
    assert parts == [[member] * count for member, count in enumerate(rows)]
    assert row_offsets(rows)[-1] == len(merged)


def test_a_member_without_rows_is_refused():
    """It could not be told from its neighbour."""
    with pytest.raises(ValueError, match="member 1 has 0 rows"):
        row_slices([2, 0, 1])
