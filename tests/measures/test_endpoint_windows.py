"""An endpoint's windows are those of all records, in any order and in any pieces."""

import copy

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from merged_windows import all_endpoints, all_windows
from prediction_batches import batches_of, record_of

from contracts.endpoint import Arm
from contracts.windows import RANGE_MESSAGES, EndpointWindow, WindowAggregate, WindowRecord
from measures.dividing import divide
from measures.endpoint_windows import EndpointWindows
from measures.merging import MergedWindows


def ranges(seed: int, number: int) -> list[WindowRecord]:
    """Records of ranges as they grow; all but the last range come to their end."""
    found = []
    for place in range(number):
        start = place * RANGE_MESSAGES
        batches = batches_of(seed + place, 4)
        grown = [record_of(batches[:end], start=start, partition=place % 2) for end in (1, 3, 4)]
        if place < number - 1:
            ended = msgspec.structs.replace(grown[-1], end=start + RANGE_MESSAGES)
            grown.append(ended)
        found += grown
    return found


def in_order(windows: tuple[EndpointWindow, ...]) -> tuple[EndpointWindow, ...]:
    found = copy.deepcopy(windows)
    for window in found:
        for aggregate in window.aggregates:
            aggregate.own.sort(key=lambda own: own.spec.name)
    return found


def everything(windows: EndpointWindows) -> tuple[EndpointWindow, ...]:
    return in_order(windows.list_between(0.0, float("inf")))


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), number=st.integers(1, 4), data=st.data())
def test_any_order_and_repetition_gives_the_windows_of_all_records(
    seed: int, number: int, data: st.DataObject
) -> None:
    records = ranges(seed, number)
    again = data.draw(st.lists(st.sampled_from(records), max_size=6))
    pieces = data.draw(st.integers(1, 3))
    plain = MergedWindows()
    windows: dict[str, EndpointWindows] = {}
    for record in data.draw(st.permutations([*records, *again])):
        plain.put(record)
        for aggregate in record.aggregates:
            windows.setdefault(aggregate.endpoint, EndpointWindows(aggregate.endpoint))
    for record in data.draw(st.permutations([*records, *again])):
        for piece in divide(record, pieces):
            for each in windows.values():
                each.put(piece)
    assert all_endpoints(plain) == tuple(sorted(windows))
    for endpoint, found in windows.items():
        assert everything(found) == in_order(all_windows(plain, endpoint))


def record(start: int, window: int, *, ended: bool = True, count: int = 1) -> WindowRecord:
    aggregate = WindowAggregate("e", "1", "p", Arm.STABLE, window, statuses={200: count})
    end = start + (RANGE_MESSAGES if ended else 1)
    return WindowRecord(
        "t", 0, start, end, window + 9.0, 1, through=window + 9.0, aggregates=[aggregate]
    )


def counts(windows: EndpointWindows) -> dict[int, int]:
    return {each.start: each.aggregates[0].statuses[200] for each in everything(windows)}


def test_a_range_that_ended_is_told_once_however_often_it_is_written() -> None:
    windows = EndpointWindows("e")
    windows.put(record(0, 100, ended=False))
    windows.put(record(0, 100, count=5))
    windows.put(record(0, 100, count=5))
    windows.put(record(0, 100, ended=False))
    windows.put(record(64, 100, count=2))
    assert counts(windows) == {100: 7}


def test_windows_that_are_too_old_are_forgotten_and_others_stay() -> None:
    windows = EndpointWindows("e")
    for place in range(10):
        windows.put(record(place * RANGE_MESSAGES, 100 + 10 * place))
    windows.forget_before(150.0)
    assert list(counts(windows)) == [140, 150, 160, 170, 180, 190]


def test_a_window_that_did_not_change_is_not_made_again() -> None:
    windows = EndpointWindows("e")
    windows.put(record(0, 100))
    windows.put(record(64, 110))
    before = windows.list_between(0.0, 1e12)
    windows.put(record(128, 110))
    after = windows.list_between(0.0, 1e12)
    assert after[0].aggregates[0] is before[0].aggregates[0]
    assert after[1] is not before[1]
    assert before[1].aggregates[0].statuses == {200: 1}
