"""Up to when all is folded: the partition that lags says so, and no clock of a gateway does."""

from measures.watermark import Watermark


def watermark(*seen: tuple[str, int, float]) -> Watermark:
    found = Watermark()
    for topic_id, partition, time in seen:
        found.take(topic_id, partition, time)
    return found


def test_the_partition_that_lags_says_how_far_all_is_folded() -> None:
    found = watermark(("t", 0, 500.0), ("t", 1, 112.0))
    assert found.known_until() == 112.0
    found.take("t", 1, 100.0)  # an older range that was written again
    assert found.known_until() == 112.0
    found.take("t", 1, 600.0)
    assert found.known_until() == 500.0


def test_the_piece_that_lags_does_too() -> None:
    found = Watermark()
    for piece, time in enumerate((500.0, 112.0)):
        found.take("t", 0, time, piece)
    assert found.known_until() == 112.0


def test_a_topic_that_was_replaced_holds_nothing_open() -> None:
    assert watermark(("old", 1, 104.0), ("t", 0, 500.0)).known_until() == 500.0


def test_a_partition_that_ended_long_ago_holds_nothing_open() -> None:
    found = watermark(("t", 0, 500.0), ("t", 1, 112.0))
    found.forget_before(200.0)
    assert found.known_until() == 500.0


def test_without_records_nothing_is_known() -> None:
    assert watermark().known_until() == 0.0
