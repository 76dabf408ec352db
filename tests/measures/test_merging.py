"""Records add to the same windows, in any order, any number of times, cut anywhere."""

import copy
import pickle
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from merged_windows import all_endpoints, all_windows
from prediction_batches import batches_of, record_of

from contracts.endpoint import Arm
from contracts.windows import (
    EndpointWindow,
    EvidenceCounts,
    WindowAggregate,
    WindowRecord,
    decode,
    encode,
)
from measures.dividing import divide
from measures.merging import MergedWindows, merge


def windows_of(*records: WindowRecord) -> MergedWindows:
    windows = MergedWindows()
    for record in records:
        windows.put(record)
    return windows


def everything(windows: MergedWindows) -> dict[str, tuple[EndpointWindow, ...]]:
    """All windows; what depends on the order of the log left out or sorted."""
    found = {name: copy.deepcopy(all_windows(windows, name)) for name in all_endpoints(windows)}
    for of in found.values():
        for window in of:
            for aggregate in window.aggregates:
                aggregate.evidence = EvidenceCounts()
                aggregate.own.sort(key=lambda own: own.spec.name)
    return found


@pytest.mark.slow
@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), cuts=st.sets(st.integers(1, 11)), data=st.data())
def test_any_cut_order_and_repetition_gives_the_same_windows(
    seed: int, cuts: set[int], data: st.DataObject
) -> None:
    batches = batches_of(seed, 12)
    bounds = [0, *sorted(cuts), 12]
    records = [record_of(batches[a:b], start=a, partition=a % 3) for a, b in pairwise(bounds)]
    again = data.draw(st.lists(st.sampled_from(records)))
    shuffled = data.draw(st.permutations([*records, *again]))
    assert everything(windows_of(*shuffled)) == everything(windows_of(record_of(batches)))


@pytest.mark.slow
@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), order=st.permutations(range(1, 9)))
def test_of_a_range_the_largest_end_is_all_that_counts(seed: int, order: list[int]) -> None:
    batches = batches_of(seed, 8)
    windows = windows_of(*(record_of(batches[:end]) for end in order))
    assert windows.records() == (record_of(batches),)
    assert everything(windows) == everything(windows_of(record_of(batches)))


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_a_record_is_there_once_all_its_pieces_of_one_division_came(data: st.DataObject) -> None:
    record = record_of(batches_of(1, 4))
    four, six = divide(record, 4), divide(record, 6)
    lost = data.draw(st.integers(0, 3))
    first = data.draw(st.permutations(four[:lost] + four[lost + 1 :]))
    *second, last = data.draw(st.permutations(six))
    assert windows_of(*first, *second).records() == ()
    assert everything(windows_of(*first, *second, last)) == everything(windows_of(record))


def test_a_smaller_end_that_is_whole_later_changes_nothing() -> None:
    batches = batches_of(1, 3)
    older, newer = divide(record_of(batches[:2]), 2), divide(record_of(batches), 2)
    windows = windows_of(*newer, *older)
    assert [record.end for record in windows.records()] == [3]


def test_older_pieces_go_once_a_record_is_whole() -> None:
    batches = batches_of(1, 20)
    pieces = [divide(record_of(batches[:end]), 3) for end in range(1, 21)]
    kept = windows_of(*(of[0] for of in pieces), *pieces[-1])
    assert len(pickle.dumps(kept)) < len(pickle.dumps(windows_of(*pieces[-1]))) + 100


def test_records_of_another_topic_id_are_other_ranges() -> None:
    batches = batches_of(1, 3)
    windows = windows_of(record_of(batches), record_of(batches[:1], topic_id="u"))
    assert len(windows.records()) == 2


def test_reading_and_merging_change_no_record() -> None:
    one, other = (record_of(batches_of(seed, 4), partition=seed) for seed in (1, 2))
    before = copy.deepcopy((one, other))
    windows = windows_of(one, other)
    all_windows(windows, "sentiment")
    assert all_windows(windows, "sentiment") == all_windows(windows, "sentiment")
    assert (one, other) == before


def test_aggregates_of_different_keys_do_not_add() -> None:
    one = WindowAggregate("a", "1", "p", Arm.STABLE, 10)
    with pytest.raises(ValueError, match="different keys"):
        merge([one, WindowAggregate("a", "1", "p", Arm.CANARY, 10)])
    with pytest.raises(ValueError, match="no aggregates"):
        merge([])


def test_windows_of_two_lengths_stay_apart() -> None:
    batches = batches_of(1, 2)
    windows = windows_of(record_of(batches), record_of(batches, start=64, seconds=2))
    assert {window.seconds for window in all_windows(windows, "sentiment")} == {2, 10}


def aggregate_at(start: int) -> WindowAggregate:
    return WindowAggregate("e", "1", "p", Arm.STABLE, start, statuses={200: 1})


def record_at(
    partition: int, *starts: int, through: float, topic_id: str = "t", end: int = 1
) -> WindowRecord:
    aggregates = [aggregate_at(start) for start in starts]
    return WindowRecord(
        topic_id, partition, 0, end, 0.0, len(aggregates), through=through, aggregates=aggregates
    )


def test_records_lie_in_kafka_under_these_names() -> None:
    aggregate = aggregate_at(1_000_000)
    aggregate.evidence.requests = 3
    written = WindowRecord("t", 0, 0, 1, 0.0, 1, aggregates=[aggregate])
    assert b'"aggregates":[{"endpoint":' in encode(written)
    assert b'"evidence":{"requests":3}' in encode(written)
    assert decode(encode(written)) == written
