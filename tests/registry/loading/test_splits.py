"""How cores are divided among copies and threads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from registry.loading import splits
from registry.loading.splits import InstanceSplit

CORES = st.integers(1, 256)
GIGABYTE = 1024**3


@pytest.mark.parametrize(
    ("cores", "most", "expected"),
    [
        (1, 16, [(1, 1)]),
        (2, 16, [(2, 1), (1, 2)]),
        (3, 16, [(3, 1), (1, 3)]),
        (4, 16, [(4, 1), (2, 2), (1, 4)]),
        (16, 16, [(16, 1), (8, 2), (4, 4)]),
        (64, 99, [(16, 4), (8, 8), (4, 16)]),
        (16, 3, [(3, 5), (1, 16)]),
        (16, 1, [(1, 16)]),
    ],
)
def test_some_divisions_are_worth_measuring(
    cores: int, most: int, expected: list[tuple[int, int]]
) -> None:
    assert list(splits.candidates(cores, most)) == expected


@given(CORES, st.integers(1, 64))
def test_a_division_takes_no_more_cores_than_there_are_and_leaves_few(
    cores: int, most: int
) -> None:
    found = splits.candidates(cores, most)
    assert found
    for split in found:
        assert split.copies <= most
        assert cores - split.copies < split.copies * split.threads <= cores
        assert splits.suits(split, cores)


@given(CORES, st.integers(1, 32))
def test_copies_that_are_asked_for_stay(cores: int, asked: int) -> None:
    found = splits.candidates(cores, 1, asked)
    assert {split.copies for split in found} == {asked}
    assert all(splits.suits(split, cores, asked) for split in found)


@pytest.mark.parametrize(
    ("split", "cores", "asked"),
    [
        (InstanceSplit(1, 1), 2, None),
        (InstanceSplit(2, 2), 2, None),
        (InstanceSplit(17, 1), 17, None),
        (InstanceSplit(2, 0), 2, None),
        (InstanceSplit(1, 2), 2, 2),
        (InstanceSplit(1, 4), 16, 1),
    ],
)
def test_what_was_chosen_for_other_cores_does_not_suit(
    split: InstanceSplit, cores: int, asked: int | None
) -> None:
    assert not splits.suits(split, cores, asked)


@pytest.mark.parametrize(
    ("graph", "memory", "copies"),
    [(0, GIGABYTE, 4), (192 * 1024**2, 2 * GIGABYTE, 2), (GIGABYTE, GIGABYTE, 1)],
)
def test_memory_bounds_the_copies(graph: int, memory: int, copies: int) -> None:
    assert splits.most_copies(graph, memory) == copies


@pytest.mark.parametrize(
    ("measured", "chosen"),
    [
        ({(2, 1): 100.0, (1, 2): 80.0}, (2, 1)),
        ({(2, 1): 80.0, (1, 2): 100.0}, (1, 2)),
        ({(16, 1): 100.0, (8, 2): 97.0, (4, 4): 90.0}, (8, 2)),
        ({(3, 1): 100.0, (3, 5): 99.0}, (3, 1)),
        ({(3, 1): 100.0, (3, 5): 130.0}, (3, 5)),
    ],
)
def test_the_fewest_copies_that_do_nearly_as_much_are_taken(
    measured: dict[tuple[int, int], float], chosen: tuple[int, int]
) -> None:
    assert splits.best({InstanceSplit(*split): rows for split, rows in measured.items()}) == chosen
