"""Row arithmetic of merge and split."""

from __future__ import annotations

import pytest
from harness_core.merge import check_cover, row_offsets, row_slices
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.integers(1, 20), max_size=20))
def test_every_row_belongs_to_exactly_one_member(rows):
    """Splitting what was merged gives each member its own rows back."""
    merged = [member for member, count in enumerate(rows) for _ in range(count)]
    parts = [merged[part] for part in row_slices(rows)]
    assert parts == [[member] * count for member, count in enumerate(rows)]
    check_cover(row_slices(rows), len(merged))
    assert row_offsets(rows)[-1] == len(merged)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=20), st.data())
def test_gaps_overlaps_and_missing_rows_are_found(rows, data):
    """Moving one border by one, or another total, is an error."""
    slices = row_slices(rows)
    index = data.draw(st.integers(0, len(slices) - 1))
    part = slices[index]
    slices[index] = slice(part.start, part.stop + data.draw(st.sampled_from([-1, 1])))
    with pytest.raises(ValueError, match="slice"):
        check_cover(slices, sum(rows))


def test_a_member_without_rows_is_refused():
    """It could not be told from its neighbour."""
    with pytest.raises(ValueError, match="member 1 has 0 rows"):
        row_slices([2, 0, 1])
