"""Neighbours that both vectors of a text find among earlier texts' vectors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gateway.mirroring.nearest import FEWEST, NearestTexts

WIDTH = 16
BOTH = ("a", "b")
Vectors = NDArray[np.float32]


def drawn(seed: int, count: int, width: int = WIDTH) -> Vectors:
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


def filled(vectors: Vectors) -> NearestTexts:
    """With these as earlier texts."""
    found = NearestTexts()
    for start in range(0, len(vectors), 25):
        part = vectors[start : start + 25]
        found.count_shared(BOTH, part, part)
    return found


def by_sorting(earlier: Vectors, ours: Vectors, theirs: Vectors) -> int:
    """The same for one text, by another way: in double precision, all of them sorted."""

    def nearest(of: Vectors) -> set[int]:
        cosines = [
            float(np.dot(each, of) / np.linalg.norm(each) / np.linalg.norm(of))
            for each in earlier.astype(np.float64)
        ]
        return set(sorted(range(len(earlier)), key=lambda at: -cosines[at])[:10])

    return len(nearest(ours) & nearest(theirs))


@given(st.integers(0, 1000), st.floats(0.0, 1.0))
def test_it_counts_what_sorting_all_of_them_does(seed: int, noise: float) -> None:
    earlier, ours = drawn(seed, 80), drawn(seed + 1, 3)
    theirs = (ours + noise * drawn(seed + 2, 3)).astype(np.float32)
    found = filled(earlier).count_shared(BOTH, ours, theirs)
    assert found == [
        by_sorting(earlier, one, other) for one, other in zip(ours, theirs, strict=True)
    ]


def test_equal_vectors_share_all_and_those_of_another_space_few() -> None:
    earlier, ours = drawn(1, 200), drawn(2, 30)
    turned = ours @ np.linalg.qr(drawn(3, WIDTH))[0].astype(np.float32)
    assert filled(earlier).count_shared(BOTH, ours, 3 * ours) == [10] * 30
    assert np.mean(filled(earlier).count_shared(BOTH, ours, turned)) < 2


def test_nothing_is_told_before_fifty_different_texts() -> None:
    found, few = NearestTexts(), drawn(1, FEWEST - 1)
    for _ in range(10):  # the same ones again
        for each in np.array_split(few, 5):
            assert found.count_shared(BOTH, each, each) == []
    one = drawn(2, 1)
    assert found.count_shared(BOTH, one, one) == []  # it is the fiftieth
    assert found.count_shared(BOTH, one, one) == [10]


def test_a_text_is_no_neighbour_of_itself() -> None:
    earlier = drawn(1, 100)
    found = filled(earlier)
    one = earlier[:1]
    other = (one + 0.5 * drawn(2, 1)).astype(np.float32)
    assert found.count_shared(BOTH, one, other) == [by_sorting(earlier[1:], one[0], other[0])]


@pytest.mark.parametrize(
    ("ours", "theirs"), [(drawn(1, 2), drawn(1, 2, WIDTH + 1)), (drawn(1, 2, 90_000),) * 2]
)
def test_vectors_of_different_widths_or_too_wide_are_not_compared(
    ours: Vectors, theirs: Vectors
) -> None:
    assert filled(drawn(3, 100)).count_shared(BOTH, ours, theirs) == []


def test_the_earlier_texts_are_bounded_and_the_oldest_leave() -> None:
    found = filled(drawn(1, 300))
    newest = filled(drawn(1, 300)[-256:])
    ours, theirs = drawn(2, 20), drawn(3, 20)
    assert sum(found.count_shared(BOTH, ours, theirs)) == sum(
        newest.count_shared(BOTH, ours, theirs)
    )
    for number in range(10):
        found.count_shared((str(number), "b"), ours, theirs)
    assert found.count_shared(BOTH, ours, theirs) == []  # forgotten
