"""Growths of ranges add up to the merged windows, whatever comes again, or in another order."""

from collections.abc import Collection, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from merged_windows import all_endpoints, all_windows
from prediction_batches import batches_of, record_of

from contracts.windows import RANGE_MESSAGES, WindowAggregate, WindowRecord, encode
from measures.dividing import divide
from measures.increments import Growth, RangeLedger
from measures.merging import MergedWindows, add, merge
from measures.recounting import differences


def records_of(seed: int, ends: Collection[int], *, start: int = 0) -> list[WindowRecord]:
    """The records of one range as it grew."""
    batches, found = batches_of(seed, max(ends), events=3), []
    for end in sorted(ends):
        record = record_of(
            batches[:end],
            partition=start // RANGE_MESSAGES % 2,
            start=start,
            through=1e6 + start + end,
        )
        record.skipped = end // 3
        found.append(record)
    return found


def sums_of(growths: Iterable[Growth]) -> WindowRecord:
    """All growths as one record, so that every number of it can be compared."""
    aggregates: dict[tuple[object, ...], WindowAggregate] = {}
    total = WindowRecord("", 0, 0, 0, 0.0, 0)
    for growth in growths:
        for aggregate in growth.aggregates:
            key = (
                aggregate.endpoint,
                aggregate.version,
                aggregate.package,
                aggregate.arm,
                aggregate.start,
            )
            if key in aggregates:
                add(aggregates[key], aggregate)
            else:
                aggregates[key] = merge([aggregate])
        total.events += growth.events
        total.skipped += growth.skipped
        for endpoint, counts in growth.refusals.items():
            held = total.refusals.setdefault(endpoint, {})
            for reason, count in counts.items():
                held[reason] = held.get(reason, 0) + count
    total.aggregates = list(aggregates.values())
    return total


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), data=st.data())
def test_growths_add_up_to_the_merged_windows(seed: int, data: st.DataObject) -> None:
    ends = st.sets(st.integers(1, 12), min_size=1, max_size=4)
    records = [
        record
        for number, cuts in enumerate(data.draw(st.lists(ends, min_size=1, max_size=3)))
        for record in records_of(seed + number, cuts, start=number * RANGE_MESSAGES)
    ]
    again = data.draw(st.lists(st.sampled_from(records), max_size=4))
    ledger, windows, grown = RangeLedger(), MergedWindows(), []
    for record in data.draw(st.permutations([*records, *again])):
        windows.put(record)
        growth = ledger.take(record)
        if growth is not None:
            grown.append(growth)
    newest = windows.records()
    wanted = sums_of(RangeLedger().take(record) or _nothing() for record in newest)
    assert differences(sums_of(grown), wanted) == ()
    found = [window for name in all_endpoints(windows) for window in all_windows(windows, name)]
    wanted.aggregates = [aggregate for window in found for aggregate in window.aggregates]
    assert differences(sums_of(grown), wanted) == ()


def test_no_record_is_changed_by_what_comes_after_it() -> None:
    records = records_of(7, (2, 5, 9))
    before = [encode(record) for record in records]
    ledger = RangeLedger()
    sums_of(growth for record in records if (growth := ledger.take(record)))
    assert [encode(record) for record in records] == before


def test_a_complete_range_is_kept_without_its_aggregates_and_never_counts_again() -> None:
    ends = (RANGE_MESSAGES - 1, RANGE_MESSAGES)
    almost, complete = records_of(8, ends)
    ledger = RangeLedger()
    growths = [ledger.take(record) for record in (almost, complete, complete, almost)]
    assert [growth is not None for growth in growths] == [True, True, False, False]


def test_ranges_of_long_ago_are_forgotten() -> None:
    (old,), (new,) = records_of(9, (4,)), records_of(9, (4,), start=10 * RANGE_MESSAGES)
    ledger = RangeLedger()
    for record in (old, new):
        ledger.take(record)
    assert [len(ledger), ledger.known_through() > 0] == [2, True]
    ledger.forget_before(new.through)
    assert len(ledger) == 1
    assert ledger.take(old) is None  # folded again: it was counted before
    ledger.forget_before(2e6)
    assert len(ledger) == 1
    assert ledger.known_through() == 0


def test_the_last_range_of_a_partition_grows_on_after_any_pause() -> None:
    first, second = records_of(10, (3, 4))
    ledger = RangeLedger()
    ledger.take(first)
    ledger.forget_before(9e9)
    growth = ledger.take(second)
    assert growth is not None
    assert growth.events == 3


def test_ranges_of_old_messages_that_nobody_folded_before_are_counted() -> None:
    (old,), (new,) = records_of(11, (2,)), records_of(11, (4,), start=2 * RANGE_MESSAGES)
    ledger = RangeLedger()
    ledger.take(old)
    ledger.forget_before(9e9)
    assert ledger.take(new) is not None


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_pieces_grow_by_what_their_record_does_also_if_partitions_are_added(
    data: st.DataObject,
) -> None:
    records = records_of(12, (3, 6, 9))
    began, grown = divide(records[0], 3), divide(records[1], 3)
    came = data.draw(st.sets(st.integers(0, 2)))  # before the worker was killed
    again = [piece for record in records for piece in divide(record, 5)]
    order = data.draw(st.permutations([grown[piece] for piece in came]))
    ledger = RangeLedger()
    growths = [ledger.take(piece) for piece in [*began, *order, *again, *again, *grown]]
    wanted = sums_of([RangeLedger().take(records[-1]) or _nothing()])
    assert differences(sums_of(growth for growth in growths if growth), wanted) == ()


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_range_may_be_divided_anew_any_number_of_times(data: st.DataObject) -> None:
    """By workers that know of new partitions, and ones that do not yet; read in any interleaving.

    Each partition's pieces come in the order in which they were written.
    """
    ends = (3, 6, RANGE_MESSAGES)
    records = records_of(12, ends)
    divisions = data.draw(st.lists(st.integers(1, 4), min_size=3, max_size=3))
    written = [divide(record, of) for record, of in zip(records, divisions, strict=True)]
    if data.draw(st.booleans()):  # the last worker was killed before that was committed
        written.append(divide(records[-1], data.draw(st.integers(1, 4))))
    parts = [[of[n] for of in written if n < len(of)] for n in range(4)]
    ledger, growths = RangeLedger(), []
    while left := [part for part in parts if part]:
        growths.append(ledger.take(data.draw(st.sampled_from(left)).pop(0)))
    wanted = sums_of([RangeLedger().take(records[-1]) or _nothing()])
    assert differences(sums_of(growth for growth in growths if growth), wanted) == ()


def test_a_range_goes_on_in_other_pieces_after_a_worker_was_killed_between_two() -> None:
    first, last = records_of(12, (3, 6))
    ledger = RangeLedger()
    pieces = [*divide(first, 2), divide(last, 2)[0], *divide(last, 3)]
    growths = [growth for piece in pieces if (growth := ledger.take(piece))]
    wanted = sums_of([RangeLedger().take(last) or _nothing()])
    assert differences(sums_of(growths), wanted) == ()


def test_a_complete_range_does_not_count_again_in_other_pieces() -> None:
    (complete,) = records_of(13, (RANGE_MESSAGES,))
    ledger = RangeLedger()
    assert all(ledger.take(piece) is not None for piece in divide(complete, 3))
    assert [ledger.take(piece) for piece in divide(complete, 4)] == [None] * 4


def test_what_is_known_waits_for_the_piece_that_lags() -> None:
    first, second = records_of(14, (3, 4))
    ledger = RangeLedger()
    for piece in [*divide(first, 2), divide(second, 2)[1]]:
        ledger.take(piece)
    assert ledger.known_through() == first.through
    ledger.take(divide(second, 2)[0])
    assert ledger.known_through() == second.through


def test_what_is_known_waits_for_pieces_that_were_added_and_not_for_those_that_are_gone() -> None:
    (first,), (second,), (third,) = (
        records_of(15, (3,), start=start * RANGE_MESSAGES) for start in (0, 2, 4)
    )
    ledger = RangeLedger()
    for piece in [*divide(first, 2), *divide(second, 3)[:2]]:
        ledger.take(piece)
    assert ledger.known_through() == first.through
    ledger.take(divide(second, 3)[2])
    assert ledger.known_through() == second.through
    for piece in divide(third, 2):
        ledger.take(piece)
    assert ledger.known_through() == third.through


def _nothing() -> Growth:
    return Growth(10, (), {}, 0, 0, 0)
