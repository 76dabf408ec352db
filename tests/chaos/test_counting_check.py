"""Messages that are in no window are found by partition."""

from counting_check import missing


def test_what_windows_do_not_reach_is_missing() -> None:
    counted = {("t", 0): 10, ("t", 1): 7}
    assert missing({0: 10, 1: 9, 2: 3}, "t", counted) == {1: 2, 2: 3}


def test_a_partition_that_nobody_wrote_to_lacks_nothing() -> None:
    assert missing({0: 0, 1: 0}, "t", {}) == {}


def test_windows_of_a_topic_that_was_deleted_since_count_for_nothing() -> None:
    assert missing({0: 4}, "new", {("old", 0): 100}) == {0: 4}
