"""How many copies suit a machine."""

import os

import pytest

from registry.loading import cores


@pytest.mark.parametrize(
    ("available", "quota", "copies"),
    [
        (1, "", 1),
        (2, "max 100000\n", 2),
        (8, "200000 100000\n", 2),
        (8, "50000 100000\n", 1),
        (2, "800000 100000", 2),
        (64, "max 100000", cores.MOST_COPIES),
        (3, "nonsense", 3),
    ],
)
def test_copies_are_the_cores_that_may_be_used_but_few(
    available: int, quota: str, copies: int
) -> None:
    assert cores.fitting(available, quota) == copies


def test_this_machine_gets_no_more_copies_than_it_has_cores() -> None:
    assert 1 <= cores.copies() <= len(os.sched_getaffinity(0))
