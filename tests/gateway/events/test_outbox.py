"""The account balances whatever the sink does: recorded = read by a reader + dropped + waiting."""

from collections import Counter
from collections.abc import Callable

import pytest
from gateway_world import event_of
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contracts.endpoint import Arm
from contracts.events import (
    EventBatch,
    Feedback,
    PredictionEvent,
    Refusals,
    TextRecord,
    decode,
)
from gateway.events.buffer import FEEDBACK_STATUS, DropReason, EventBuffer, Item
from gateway.events.outbox import Message, Outbox

MakeEvent = Callable[..., PredictionEvent]


def an_outbox(max_events: int = 500, max_bytes: int = 900_000) -> tuple[EventBuffer, Outbox]:
    buffer = EventBuffer(capacity_records=10_000, wake_events=1000)
    return buffer, Outbox(buffer, gateway="g-1", max_events=max_events, max_bytes=max_bytes)


def sent(outbox: Outbox, **how: bool) -> EventBatch:
    message = outbox.message(**how)
    assert message is not None
    outbox.acknowledged()
    return decode(message.payload)


def test_sequences_count_up_from_zero(make_event: MakeEvent) -> None:
    buffer, outbox = an_outbox(max_events=2)
    for _ in range(5):
        buffer.attempt(make_event())
    batches = [sent(outbox) for _ in range(3)]
    assert [batch.sequence for batch in batches] == [0, 1, 2]
    assert [len(batch.events) for batch in batches] == [2, 2, 1]
    assert {batch.gateway for batch in batches} == {"g-1"}
    assert outbox.message() is None


def test_a_message_is_made_in_stretches_between_which_the_event_loop_runs(
    make_event: MakeEvent,
) -> None:
    buffer = EventBuffer(capacity_records=10_000, wake_events=1000)
    pauses: list[int] = []

    def pause() -> None:
        pauses.append(buffer.waiting_events())
        buffer.attempt(make_event())  # is for the next message

    outbox = Outbox(buffer, gateway="g-1", pause=pause)
    for _ in range(500):
        buffer.attempt(make_event())
    assert len(sent(outbox).events) == 500
    assert pauses == list(range(10))
    assert len(sent(outbox).events) == 10


def test_an_unacknowledged_message_is_sent_again_byte_for_byte(make_event: MakeEvent) -> None:
    buffer, outbox = an_outbox()
    buffer.attempt(make_event())
    first = outbox.message()
    outbox.unavailable(maybe_written=True)
    buffer.attempt(make_event())
    buffer.refusal("sentiment", 503, "overloaded")
    again = outbox.message()
    assert first is not None
    assert again is not None
    assert again.payload == first.payload
    outbox.acknowledged()
    assert sent(outbox).refusals == [Refusals("sentiment", 503, "overloaded", 1)]


def test_feedback_about_one_answer_goes_where_all_gateways_send_it(make_event: MakeEvent) -> None:
    keys: dict[str, set[int | None]] = {}
    for _ in range(2):  # gateways, which were told in another order
        buffer, outbox = an_outbox()
        buffer.attempt(make_event())
        for number in range(20):
            told = Feedback(1.0, f"r-{number}", "e", "1", "p", Arm.STABLE, "a", "b", 0, 1.0)
            buffer.feedback(told)
        while not outbox.empty:
            message = outbox.message()
            assert message is not None
            assert message.key is None or not decode(message.payload).events
            for one in decode(message.payload).feedback:
                keys.setdefault(one.request_id, set()).add(message.key)
            outbox.acknowledged()
    assert len(keys) == 20
    assert all(len(used) == 1 and used != {None} for used in keys.values())


def test_an_event_too_large_for_any_message_is_counted(make_event: MakeEvent) -> None:
    buffer, outbox = an_outbox(max_bytes=1500)
    buffer.attempt(make_event(texts=500))
    buffer.attempt(make_event())
    batches = []
    while not outbox.empty:
        batches.append(sent(outbox))
    assert [event.request_id for batch in batches for event in batch.events] == ["request-1"]
    assert [(loss.reason, loss.count) for loss in batches[-1].dropped] == [("too_large", 1)]
    assert buffer.totals().records == 0


def test_messages_that_the_sink_finds_too_large_come_smaller_and_stay_so(
    make_event: MakeEvent,
) -> None:
    buffer, outbox = an_outbox()
    largest = 2000  # of the sink, which nobody told the outbox

    def send(events: int) -> tuple[int, int]:
        """Events that arrive, and messages that are refused on the way."""
        for _ in range(events):
            buffer.attempt(make_event())
        arrived = refused = 0
        while not outbox.empty:
            message = outbox.message()
            assert message is not None
            if len(message.payload) > largest:
                refused += 1
                assert refused <= 10, "it comes as large as before"
                outbox.refused("too_large")
            else:
                arrived += len(decode(message.payload).events)
                outbox.acknowledged()
        return arrived, refused

    arrived, refused = send(200)
    assert arrived == 200
    assert refused > 0
    assert send(200) == (200, 0)
    assert buffer.dropped() == []


def test_an_event_that_cannot_be_encoded_is_counted_alone(make_event: MakeEvent) -> None:
    buffer, outbox = an_outbox()
    for label in ("positive", "\ud800", "negative"):
        buffer.attempt(make_event(label=label))
    batches = []
    while not outbox.empty:
        batches.append(sent(outbox))
    assert sum(len(batch.events) for batch in batches) == 2
    assert [(loss.reason, loss.count) for loss in buffer.dropped()] == [("invalid", 1)]


def test_the_loss_of_a_message_that_may_be_written_shows_as_a_gap(make_event: MakeEvent) -> None:
    buffer, outbox = an_outbox()
    buffer.attempt(make_event())
    assert outbox.message() is not None
    outbox.unavailable(maybe_written=True)
    outbox.refused("send_failed")
    buffer.attempt(make_event())
    after = sent(outbox)
    assert after.sequence == 1
    assert [(loss.reason, loss.count) for loss in after.dropped] == [("send_failed", 1)]


def test_an_idle_gateway_has_nothing_to_say_but_a_heartbeat() -> None:
    _, outbox = an_outbox()
    assert outbox.message() is None
    assert sent(outbox, heartbeat=True).events == []


def test_an_outcome_without_a_message_is_a_defect() -> None:
    _, outbox = an_outbox()
    with pytest.raises(RuntimeError, match="no message is pending"):
        outbox.acknowledged()


def status_of(item: Item) -> int:
    return FEEDBACK_STATUS if isinstance(item, Feedback) else item.status


def items_of(batch: EventBatch) -> list[Item]:
    return [*batch.events, *batch.feedback]


class Account(RuleBasedStateMachine):
    """Requests, a sink that fails in every way it can, and a reader of its log.

    The reader keeps one copy of each sequence. ``both`` counts what a reader finds although the
    gateway had to count it as lost: a message that was written without the gateway's knowledge and
    then given up.
    """

    def __init__(self) -> None:
        super().__init__()
        self.buffer = EventBuffer(capacity_records=30, wake_events=5)
        self.outbox = Outbox(self.buffer, gateway="g", max_events=4, max_records=12, max_bytes=1200)
        self.log: dict[int, bytes] = {}
        self.recorded: Counter[int] = Counter()
        self.requests = 0
        self.both: Counter[int] = Counter()
        self.given_up: set[int] = set()
        self.in_order = True

    @rule(texts=st.integers(0, 12), status=st.sampled_from([200, 504]), answered=st.booleans())
    def attempt(self, texts: int, status: int, answered: bool) -> None:
        number = self.recorded.total()
        self.recorded[status] += 1
        self.requests += answered
        records = [TextRecord(1, 1, 0, False)] * texts
        event = event_of(*records, request_id=str(number), status=status, answered=answered)
        self.buffer.attempt(event)

    @rule(count=st.integers(1, 6))
    def tell_the_truth(self, count: int) -> None:
        for _ in range(count):
            number = str(self.recorded.total())
            self.recorded[FEEDBACK_STATUS] += 1
            told = Feedback(0.0, number, "sentiment", "1", "", Arm.STABLE, "a", "b", 0, 1.0)
            self.buffer.feedback(told)

    @rule(status=st.sampled_from([429, 503]), count=st.integers(1, 5))
    def refuse_requests(self, status: int, count: int) -> None:
        self.recorded[status] += count
        self.requests += count
        for _ in range(count):
            self.buffer.refusal("sentiment", status, "overloaded")

    @rule(heartbeat=st.booleans())
    def begin(self, heartbeat: bool) -> None:
        self.outbox.message(heartbeat=heartbeat)

    @precondition(lambda self: self.outbox.pending is not None)
    @rule()
    def acknowledge(self) -> None:
        self.write()
        self.outbox.acknowledged()

    @precondition(lambda self: self.outbox.pending is not None)
    @rule(written=st.booleans(), known=st.booleans())
    def lose_the_answer(self, written: bool, known: bool) -> None:
        if written:
            self.write()
        self.outbox.unavailable(maybe_written=written or not known)

    @precondition(lambda self: self.outbox.pending is not None)
    @rule(reason=st.sampled_from(["too_large", "send_failed"]))
    def refuse_message(self, reason: DropReason) -> None:
        message = self.outbox.pending
        assert message is not None
        if message.maybe_written:
            self.given_up.add(message.sequence)
        self.count_both(message)
        self.outbox.refused(reason)

    @rule()
    def be_told_to_end_at_once(self) -> None:
        self.in_order = False

    def teardown(self) -> None:
        if self.in_order:
            while not self.pending(last=True).last:
                self.acknowledge()
            self.acknowledge()
            assert decode(self.log[max(self.log)]).last
        else:
            if self.outbox.pending is not None:
                self.count_both(self.outbox.pending)
            self.outbox.give_up()
            assert not any(decode(payload).last for payload in self.log.values())
        assert self.buffer.totals().records == 0
        assert self.found() == self.recorded + self.both
        if not self.both:
            told = sum(event.answered for batch in self.batches() for event in batch.events)
            told += sum(lost.count for batch in self.batches() for lost in batch.refusals)
            assert told + sum(loss.answered for loss in self.buffer.dropped()) == self.requests

    @invariant()
    def nothing_is_counted_twice(self) -> None:
        known = self.recorded + self.both
        assert all(count <= known[status] for status, count in self.found().items())

    @invariant()
    def events_are_read_at_most_once(self) -> None:
        items = [item for batch in self.batches() for item in items_of(batch)]
        assert len(items) == len({item.request_id for item in items})

    @invariant()
    def a_number_is_missing_only_where_a_message_was_given_up(self) -> None:
        numbers = set(self.log)
        assert set(range(max(numbers, default=-1) + 1)) - numbers <= self.given_up

    @invariant()
    def told_losses_only_grow(self) -> None:
        losses = [sum(loss.count for loss in batch.dropped) for batch in self.batches()]
        assert losses == sorted(losses)

    def pending(self, **how: bool) -> Message:
        message = self.outbox.message(**how)
        assert message is not None
        return message

    def write(self) -> None:
        message = self.outbox.pending
        assert message is not None
        copy = self.log.setdefault(message.sequence, message.payload)
        assert copy == message.payload, "two copies of one message differ"

    def count_both(self, message: Message) -> None:
        if message.sequence in self.log:
            self.both.update(map(status_of, message.events))
            self.both.update({refusal.status: refusal.count for refusal in message.refusals})

    def batches(self) -> list[EventBatch]:
        return [decode(self.log[sequence]) for sequence in sorted(self.log)]

    def found(self) -> Counter[int]:
        """By status: what the reader has, and what the gateway counts as lost."""
        counts: Counter[int] = Counter()
        for batch in self.batches():
            counts.update(map(status_of, items_of(batch)))
            for refusal in batch.refusals:
                counts[refusal.status] += refusal.count
        for loss in self.buffer.dropped():
            counts[loss.status] += loss.count
        return counts


TestAccount = Account.TestCase
TestAccount.settings = settings(stateful_step_count=40, deadline=None)
