"""Bins merge until each holds enough, and no count is lost in it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from measures.histograms import merge_bins, starts

counts = st.lists(st.integers(0, 50), min_size=1, max_size=30)


def test_neighbours_merge_from_the_left() -> None:
    assert starts([3, 8, 20, 1, 1, 9, 2], 10).tolist() == [0, 2, 3]
    assert starts([30, 8, 20, 1], 10).tolist() == [0, 1]
    assert starts([1, 2], 10).tolist() == [0]


@given(counts, st.integers(0, 60))
def test_every_merged_bin_holds_enough_and_all_counts_are_kept(some: list[int], least: int) -> None:
    at = starts(some, least)
    held = merge_bins(some, at)
    assert held.sum() == sum(some)
    assert at[0] == 0
    assert len(at) == 1 or (held.min() >= least and held.min() > 0)


def test_leading_axes_stay() -> None:
    assert merge_bins(np.arange(12).reshape(2, 6), np.array([0, 2])).tolist() == [[1, 14], [13, 38]]
