"""Shapes of the graphs that a packed engine replays on a GPU, and how runs are filled up."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from packed_files import packed
from tiny_encoders import starts_of

buckets = packed("packed_buckets")
LENGTHS = st.lists(st.integers(1, 600), min_size=1, max_size=80)
LONGEST = st.sampled_from((16, 40, 128, 512))


@given(lengths=LENGTHS, longest=LONGEST)
def test_a_run_is_filled_up_by_rows_that_follow_its_own(
    lengths: Sequence[int], longest: int
) -> None:
    starts = np.array(starts_of(lengths), np.int32)
    shape = buckets.shape_for(starts, longest)
    if shape is None:
        return
    filled = buckets.fill_rows(starts, shape, longest)
    assert filled.dtype == np.int32
    assert len(filled) == shape.rows + 1
    assert filled[-1] == shape.tokens
    np.testing.assert_array_equal(filled[: len(starts)], starts)
    grown = np.diff(filled)
    assert grown.min() >= 0
    assert grown.max() <= longest
    assert grown[len(lengths) :].max(initial=0) <= buckets.FILLER_ROW


@given(lengths=LENGTHS)
def test_only_a_long_row_or_too_many_find_no_graph(lengths: Sequence[int]) -> None:
    tokens = sum(lengths)
    shape = buckets.shape_for(np.array(starts_of(lengths), np.int32))
    is_long = max(lengths) > buckets.LONGEST_ROW or tokens > buckets.MOST_TOKENS
    assert (shape is None) == is_long
    if shape is not None and len(lengths) <= shape.tokens // 16:
        assert shape.tokens == buckets.bucket_of(tokens)


def test_many_short_rows_take_a_graph_of_more_tokens() -> None:
    shape = buckets.shape_for(np.arange(0, 42, 2))
    assert shape == buckets.GraphShape(192, 24)
    assert buckets.shape_for(np.arange(buckets.MOST_ROWS + 2)) is None


def test_graphs_are_captured_from_the_largest_on_each_once() -> None:
    shapes = buckets.shapes()
    assert list(shapes) == sorted(set(shapes), reverse=True)
    assert shapes[0].tokens == buckets.MOST_TOKENS
    assert {shape.tokens for shape in shapes} == set(buckets.TOKEN_BUCKETS)
    assert max(shape.rows for shape in shapes) == buckets.MOST_ROWS


@given(longest=st.integers(1, 600))
def test_each_graph_of_short_rows_can_be_filled_up_by_them(longest: int) -> None:
    for shape in buckets.shapes(longest):
        row = min(longest, shape.tokens)
        filled = buckets.fill_rows(np.array([0, row], np.int32), shape, longest)
        assert (len(filled), filled[-1]) == (shape.rows + 1, shape.tokens)
        assert np.diff(filled).max() <= longest
    assert (buckets.shapes(longest) == buckets.shapes()) == (longest >= 32)


def test_a_run_costs_the_smallest_bucket_that_holds_it() -> None:
    assert [buckets.bucket_of(tokens) for tokens in (1, 64, 65, 16384, 16385)] == [
        *(64, 64, 96, 16384),
        None,
    ]
