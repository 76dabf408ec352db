"""Buckets fit every length, grow with it, and pad little on a usual mix of lengths."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocess.buckets import (
    MOST_SHAPES,
    MOST_TOKENS,
    automatic_buckets,
    bucket_of,
    cut_buckets,
    fixed_shapes,
    row_buckets,
)

limits = st.integers(1, 40_000)


@given(limits)
def test_automatic_buckets_grow_and_end_at_the_limit(max_tokens: int) -> None:
    edges = automatic_buckets(max_tokens)
    assert edges[-1] == max_tokens
    assert list(edges) == sorted(set(edges))
    assert len(edges) <= 36


@given(st.data(), limits)
def test_a_row_fits_its_bucket_and_no_smaller_one(data: st.DataObject, max_tokens: int) -> None:
    edges = automatic_buckets(max_tokens)
    length = data.draw(st.integers(0, max_tokens))
    bucket = bucket_of(length, edges)
    assert bucket >= length
    assert all(edge < length for edge in edges if edge < bucket)


@given(st.data(), limits)
def test_a_longer_row_never_gets_a_smaller_bucket(data: st.DataObject, max_tokens: int) -> None:
    edges = automatic_buckets(max_tokens)
    short, long = sorted(data.draw(st.tuples(*[st.integers(0, max_tokens)] * 2)))
    assert bucket_of(short, edges) <= bucket_of(long, edges)


def test_at_most_a_tenth_is_padding_on_a_usual_mix_of_lengths() -> None:
    # Median 41, a tenth over 111 and hence a tenth under 15.
    normal = np.random.default_rng(0).normal(np.log(41), np.log(111 / 41) / 1.2816, 5_000)
    lengths = np.clip(np.exp(normal).round(), 3, 512).astype(int)
    edges = automatic_buckets(512)
    computed = sum(bucket_of(int(length), edges) for length in lengths)
    assert 1 - lengths.sum() / computed <= 0.10


def test_a_row_longer_than_the_last_bucket_is_an_error() -> None:
    with pytest.raises(ValueError, match="129 tokens is longer than the last bucket, 128"):
        bucket_of(129, automatic_buckets(128))


def test_own_buckets_are_made_to_end_at_the_limit() -> None:
    assert cut_buckets((16, 64), 128) == (16, 64, 128)
    assert cut_buckets((16, 128), 128) == (16, 128)
    assert cut_buckets((16, 200), 128) == (16, 128)
    assert cut_buckets((), 128) == (128,)


def test_no_model_takes_rows_of_nothing() -> None:
    with pytest.raises(ValueError, match="row of 0 tokens"):
        automatic_buckets(0)


@given(most=st.integers(1, 600), longest=st.integers(1, 9000))
def test_shapes_of_an_engine_are_bounded_and_hold_every_length_and_the_largest_batch(
    most: int, longest: int
) -> None:
    lengths = automatic_buckets(longest)
    rows = row_buckets(most, lengths)
    assert (rows[0], rows[-1]) == (1, most)
    assert list(rows) == sorted(set(rows))
    shapes = fixed_shapes(rows, lengths)
    assert len(set(shapes)) == len(shapes) <= MOST_SHAPES
    assert {length for _, length in shapes} == set(lengths)
    assert all(count == 1 or count * length <= MOST_TOKENS for count, length in shapes)


def test_too_many_lengths_for_fixed_shapes_are_refused() -> None:
    assert row_buckets(4096, range(1, 129)) == (1, 256, 4096)
    with pytest.raises(ValueError, match="257 length buckets make more than 256 shapes"):
        row_buckets(8, range(1, 258))
