"""What counts as standing still, and from when on."""

import pytest

from service.kafka import ConsumerGroup
from stats.errors import StalledError
from stats.reading.stall import EmptyPolls, ReadingSnapshot, Stall, look_on, membership_fault

STALL_SECONDS = 15.0


def after(*looks: tuple[float, ReadingSnapshot]) -> Stall:
    stall = Stall()
    for now, look in looks:
        stall = look_on(stall, look, now)
    return stall


def test_a_topic_without_traffic_never_stalls() -> None:
    idle = ReadingSnapshot({0: 5, 1: 0}, {0: 5, 1: 0})
    stall = after((0.0, idle), (1e6, idle))
    assert stall.seconds(1e6) == 0
    stall.check(1e6, STALL_SECONDS)


def test_messages_that_nobody_reads_stall_once_they_waited_too_long() -> None:
    stall = after(
        (0.0, ReadingSnapshot({0: 5, 1: 7}, {0: 5, 1: 7})),
        (10.0, ReadingSnapshot({0: 5, 1: 9}, {0: 5, 1: 7})),
        (20.0, ReadingSnapshot({0: 5, 1: 900}, {0: 5, 1: 7})),
    )
    stall.check(24.9, STALL_SECONDS)
    with pytest.raises(StalledError, match="893 messages of partition 1 wait"):
        stall.check(25.0, STALL_SECONDS)


def test_one_partition_that_stands_still_is_seen_among_others_that_are_read() -> None:
    stall = after(
        *((float(n), ReadingSnapshot({0: 100 * n, 1: 9}, {0: 90 * n, 1: 4})) for n in range(1, 20))
    )
    assert stall.seconds(19.0) == 18.0
    with pytest.raises(StalledError, match="partition 1"):
        stall.check(19.0, STALL_SECONDS)


def test_a_backlog_that_is_being_read_never_stalls() -> None:
    stall = after(*((60.0 * n, ReadingSnapshot({0: 10**6}, {0: n})) for n in range(100)))
    stall.check(60.0 * 99, STALL_SECONDS)


def test_a_wait_ends_with_the_first_message_that_is_read() -> None:
    stall = after(
        (0.0, ReadingSnapshot({0: 5}, {0: 1})),
        (14.0, ReadingSnapshot({0: 5}, {0: 1})),
        (15.0, ReadingSnapshot({0: 5}, {0: 2})),
    )
    stall.check(29.0, STALL_SECONDS)
    assert stall.seconds(29.0) == 14.0


def test_all_is_well_while_what_waits_is_read_and_not_at_the_first_look_of_a_connection() -> None:
    first = after((0.0, ReadingSnapshot({0: 9, 1: 5}, {0: 1, 1: 5})))
    assert not first.well
    assert look_on(first, ReadingSnapshot({0: 90, 1: 5}, {0: 2, 1: 5}), 2.0).well
    assert not look_on(first, ReadingSnapshot({0: 90, 1: 5}, {0: 1, 1: 5}), 2.0).well
    assert look_on(first, ReadingSnapshot({0: 9, 1: 5}, {0: 9, 1: 5}), 2.0).well
    assert not look_on(first, ReadingSnapshot({0: 9, 1: 5}, {0: 9, 1: 5}, "no member"), 2.0).well


def test_a_partition_that_went_to_another_worker_is_not_waited_for() -> None:
    stall = after(
        (0.0, ReadingSnapshot({0: 5, 1: 5}, {0: 1, 1: 5})), (14.0, ReadingSnapshot({1: 5}, {1: 5}))
    )
    assert stall.longest is None


def test_a_group_without_us_stalls_whatever_its_fault_is_called_and_without_traffic() -> None:
    stall = after(
        (0.0, ReadingSnapshot({}, {}, "not a member")),
        (9.0, ReadingSnapshot({}, {}, "rebalancing")),
    )
    stall.check(14.9, STALL_SECONDS)
    with pytest.raises(StalledError, match="rebalancing"):
        stall.check(15.0, STALL_SECONDS)
    well = look_on(stall, ReadingSnapshot({}, {}), 15.0)
    assert well.longest is None


TWO = ConsumerGroup("Stable", {"a": frozenset({0, 1}), "b": frozenset({2, 3})})


def test_members_that_read_what_the_group_gave_them_have_no_fault() -> None:
    assert membership_fault(TWO, "a", [0, 1], range(4)) == ""
    assert membership_fault(TWO, "b", [3, 2], range(4)) == ""


def test_a_worker_more_than_there_are_partitions_has_no_fault() -> None:
    group = ConsumerGroup("Stable", {**TWO.members, "c": frozenset()})
    assert membership_fault(group, "c", [], range(4)) == ""


@pytest.mark.parametrize(
    ("group", "member", "held", "fault"),
    [
        (TWO, "c", [0, 1], "does not hold this worker"),
        (
            ConsumerGroup("Empty"),
            "a",
            [],
            "does not hold this worker as a member (its state: Empty)",
        ),
        (TWO, "a", [], "gave this worker partitions 0, 1, and it reads no partition"),
        (TWO, "b", [1, 2, 3], "gave this worker partitions 2, 3, and it reads partitions 1, 2, 3"),
        (ConsumerGroup("PreparingRebalance", TWO.members), "a", [0, 1], "PreparingRebalance"),
        (
            ConsumerGroup("Stable", {"a": frozenset({0, 1})}),
            "a",
            [0, 1],
            "gave partitions 2, 3 to nobody",
        ),
    ],
)
def test_what_is_wrong_with_a_place_in_the_group_is_said(
    group: ConsumerGroup, member: str, held: list[int], fault: str
) -> None:
    assert fault in membership_fault(group, member, held, range(4))


def test_polls_that_wait_for_messages_or_bring_some_are_no_spinning() -> None:
    polls = EmptyPolls(wait_seconds=0.2, in_a_row=3)
    assert not any(polls.spins(0.2, empty=True) for _ in range(100))
    assert not any(polls.spins(0.0, empty=False) for _ in range(100))


def test_empty_polls_that_return_at_once_pause_until_one_does_not() -> None:
    polls = EmptyPolls(wait_seconds=0.2, in_a_row=3)
    assert [polls.spins(0.01, empty=True) for _ in range(4)] == [False, False, True, True]
    assert not polls.spins(0.01, empty=False)
    assert [polls.spins(0.01, empty=True) for _ in range(3)] == [False, False, True]
