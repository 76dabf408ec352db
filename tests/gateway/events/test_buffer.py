"""Leaving an event never waits, and what finds no room is counted."""

import threading
from collections.abc import Callable

import msgspec
import pytest

from contracts.endpoint import Arm
from contracts.events import EventLosses, Feedback, PredictionEvent, Refusals
from gateway.events.buffer import MAX_COUNTERS, EventBuffer

MakeEvent = Callable[..., PredictionEvent]
TOLD = Feedback(1.0, "r", "sentiment", "1", "a", Arm.STABLE, "positive", "negative", 0, 1.0)


def test_a_full_buffer_drops_and_counts_by_endpoint_and_status(make_event: MakeEvent) -> None:
    buffer = EventBuffer(capacity_records=4, wake_events=100)
    for status in (200, 200, 200, 504):
        buffer.attempt(make_event(status=status))
    assert buffer.dropped() == [
        EventLosses("sentiment", 200, "buffer_full", 1, answered=1),
        EventLosses("sentiment", 504, "buffer_full", 1, answered=0),
    ]
    assert buffer.waiting_events() == 2
    assert buffer.totals().events == 4


def test_feedback_shares_the_room_of_events_and_its_loss_is_counted_apart(
    make_event: MakeEvent,
) -> None:
    buffer = EventBuffer(capacity_records=3, wake_events=100)
    buffer.attempt(make_event())
    buffer.feedback(TOLD)
    buffer.feedback(TOLD)
    assert buffer.dropped() == [EventLosses("sentiment", 202, "buffer_full", 1, answered=0)]
    assert buffer.take(max_events=10, max_records=10).events[1:] == [TOLD]
    assert (buffer.totals().feedback, buffer.totals().events) == (2, 1)


def test_an_event_of_many_texts_takes_the_room_of_many(make_event: MakeEvent) -> None:
    buffer = EventBuffer(capacity_records=20, wake_events=100)
    buffer.attempt(make_event(texts=30))
    buffer.attempt(make_event(texts=19))
    assert [loss.count for loss in buffer.dropped()] == [1]
    assert buffer.totals().records == 20


def test_what_hooks_observed_takes_room_too(make_event: MakeEvent) -> None:
    buffer = EventBuffer(capacity_records=12, wake_events=100)
    observed = msgspec.structs.replace(
        make_event(), observations={"price": [1.0] * 6, "kind": ["a", "b", "c"]}
    )
    buffer.attempt(observed)
    assert buffer.totals().records == 11
    buffer.attempt(make_event())
    assert [loss.count for loss in buffer.dropped()] == [1]
    taken = buffer.take(max_events=10, max_records=1)
    buffer.release(taken.records)
    assert (taken.events, buffer.totals().records) == ([observed], 0)


def test_room_comes_back_only_when_events_are_acknowledged_or_dropped(
    make_event: MakeEvent,
) -> None:
    buffer = EventBuffer(capacity_records=2, wake_events=100)
    buffer.attempt(make_event())
    taken = buffer.take(max_events=10, max_records=10)
    buffer.attempt(make_event())
    assert sum(loss.count for loss in buffer.dropped()) == 1
    buffer.release(taken.records)
    buffer.attempt(make_event())
    assert buffer.waiting_events() == 1


def test_a_message_takes_the_oldest_events_up_to_its_bounds(make_event: MakeEvent) -> None:
    buffer = EventBuffer(capacity_records=100, wake_events=100)
    left = [make_event(texts=2) for _ in range(5)]
    for event in left:
        buffer.attempt(event)
    assert buffer.take(max_events=10, max_records=6).events == left[:2]
    assert buffer.take(max_events=1, max_records=100).events == left[2:3]
    assert buffer.take(max_events=10, max_records=1).events == left[3:4]


def test_refusals_are_handed_out_once_as_counts() -> None:
    buffer = EventBuffer(capacity_records=1, wake_events=1)
    for _ in range(3):
        buffer.refusal("sentiment", 503, "overloaded")
    buffer.refusal("sentiment", 429, "rate_limited")
    assert buffer.take(max_events=1, max_records=1).refusals == [
        Refusals("sentiment", 503, "overloaded", 3),
        Refusals("sentiment", 429, "rate_limited", 1),
    ]
    assert buffer.take(max_events=1, max_records=1).refusals == []


def test_only_every_full_message_wakes_the_publisher(make_event: MakeEvent) -> None:
    buffer = EventBuffer(capacity_records=1000, wake_events=10)
    woken: list[int] = []
    buffer.wake_with(lambda: woken.append(buffer.waiting_events()))
    for _ in range(25):
        buffer.attempt(make_event())
    assert woken == [10, 20]


def test_feedback_wakes_the_publisher_like_any_event(make_event: MakeEvent) -> None:
    woken: list[int] = []
    buffer = EventBuffer(capacity_records=100, wake_events=2)
    buffer.wake_with(lambda: woken.append(buffer.waiting_events()))
    buffer.attempt(make_event())
    for _ in range(3):
        buffer.feedback(TOLD)
    assert woken == [2, 4]


def test_names_without_end_do_not_fill_the_memory() -> None:
    buffer = EventBuffer(capacity_records=1, wake_events=1)
    for number in range(MAX_COUNTERS + 50):
        buffer.refusal(f"endpoint-{number}", 503, "overloaded")
    refusals = buffer.take(max_events=1, max_records=1).refusals
    assert len(refusals) == MAX_COUNTERS + 1
    assert refusals[-1] == Refusals("", 503, "overloaded", 50)


def test_threads_lose_no_count(make_event: MakeEvent) -> None:
    buffer = EventBuffer(capacity_records=500, wake_events=50)
    event = make_event()

    def leave() -> None:
        for _ in range(1000):
            buffer.attempt(event)
            buffer.refusal("sentiment", 503, "overloaded")

    threads = [threading.Thread(target=leave) for _ in range(4)]
    for thread in threads:
        thread.start()
    taken = refused = 0
    while any(thread.is_alive() for thread in threads) or buffer.waiting_events():
        batch = buffer.take(max_events=10, max_records=1000)
        buffer.release(batch.records)
        taken += len(batch.events)
        refused += sum(refusal.count for refusal in batch.refusals)
    for thread in threads:
        thread.join()
    last = buffer.take(max_events=1, max_records=1)
    refused += sum(refusal.count for refusal in last.refusals)
    assert taken + sum(loss.count for loss in buffer.dropped()) == 4000
    assert refused == 4000


@pytest.mark.parametrize("bounds", [(0, 1), (1, 0)])
def test_a_buffer_without_room_is_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        EventBuffer(capacity_records=bounds[0], wake_events=bounds[1])
