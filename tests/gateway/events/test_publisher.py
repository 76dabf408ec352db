"""The publisher tries on for ever, paces itself, and ends with every event accounted for."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

import pytest
from gateway_world import event_of
from hypothesis import given
from hypothesis import strategies as st
from memory_sink import MemorySink

from contracts.backoff import Backoff
from contracts.events import EventBatch, PredictionEvent, TextRecord, decode
from gateway.events.buffer import EventBuffer
from gateway.events.outbox import Outbox
from gateway.events.publisher import (
    EventSink,
    MessageRefusedError,
    Pace,
    Publisher,
    SinkUnavailableError,
)

MakeEvent = Callable[..., PredictionEvent]
PACE = Pace(
    flush_seconds=1.0,
    heartbeat_seconds=10.0,
    pauses=Backoff(1.0, 8.0, jitter=0.5),
    acknowledge_seconds=20.0,
)
OUTCOMES = ("written", "answer lost", "never arrived", "away", "refused", "silent")


class ScriptedSink:
    """A sink that does what its script says, then whatever ``then`` says."""

    def __init__(self, *script: str, then: str = "written") -> None:
        self.script = list(script)
        self.then = then
        self.log: dict[int, bytes] = {}
        self.submitted: list[bytes] = []
        self.closed = False

    def submit(self, sequence: int, message: bytes, key: int | None = None) -> "Future[None]":
        self.submitted.append(message)
        outcome = self.script.pop(0) if self.script else self.then
        future: Future[None] = Future()
        if outcome in {"written", "answer lost"}:
            assert self.log.setdefault(sequence, message) == message
        match outcome:
            case "written":
                future.set_result(None)
            case "answer lost" | "never arrived":
                future.set_exception(SinkUnavailableError(outcome, maybe_written=True))
            case "away":
                raise SinkUnavailableError("away", maybe_written=False)
            case "refused":
                future.set_exception(MessageRefusedError("no", reason="send_failed"))
            case "defect":
                raise ZeroDivisionError
        return future

    def close(self, timeout_seconds: float) -> None:
        self.closed = True

    def batches(self) -> list[EventBatch]:
        return [decode(self.log[sequence]) for sequence in sorted(self.log)]


@dataclass
class Bench:
    """A publisher whose clock stands still until it is moved."""

    sink: EventSink
    now: float = 0.0
    buffer: EventBuffer = field(
        default_factory=lambda: EventBuffer(capacity_records=100, wake_events=5)
    )

    def __post_init__(self) -> None:
        self.outbox = Outbox(self.buffer, gateway="g", max_events=5)
        self.publisher = Publisher(
            self.buffer,
            self.outbox,
            self.sink,
            pace=PACE,
            clock=lambda: self.now,
            jitter=lambda: 1.0,
        )

    def step(self) -> float:
        delay = self.publisher.step()
        assert delay is not None
        return delay

    def run_for(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + max(self.step(), 0.0))
        self.step()


def test_an_event_waits_for_company_until_the_flush_is_due(make_event: MakeEvent) -> None:
    sink = ScriptedSink()
    bench = Bench(sink)
    bench.buffer.attempt(make_event())
    assert bench.step() == 1.0
    assert sink.submitted == []
    bench.now = 1.0
    bench.step()
    assert [len(batch.events) for batch in sink.batches()] == [1]


def test_full_messages_go_at_once_one_after_the_other(make_event: MakeEvent) -> None:
    sink = ScriptedSink()
    bench = Bench(sink)
    for _ in range(12):
        bench.buffer.attempt(make_event())
    assert bench.step() == 0.0
    assert bench.step() == 1.0
    assert [len(batch.events) for batch in sink.batches()] == [5, 5]


def test_pauses_grow_to_their_bound_and_the_same_bytes_are_sent(make_event: MakeEvent) -> None:
    sink = ScriptedSink(then="away")
    bench = Bench(sink)
    bench.buffer.attempt(make_event())
    bench.now = 1.0
    pauses = []
    for _ in range(6):
        pauses.append(bench.step())
        bench.now += pauses[-1]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    assert len(set(sink.submitted)) == 1
    sink.then = "written"
    bench.step()
    assert [len(batch.events) for batch in sink.batches()] == [1]
    assert bench.publisher.counts.unavailable == 6


def test_a_message_without_an_answer_is_sent_again_and_counts_once(make_event: MakeEvent) -> None:
    sink = ScriptedSink("silent")
    bench = Bench(sink)
    bench.buffer.attempt(make_event())
    bench.run_for(30.0)
    assert sink.submitted[0] == sink.submitted[1]
    assert bench.outbox.published.events == 1


def test_an_idle_gateway_shows_that_it_lives() -> None:
    sink = ScriptedSink()
    Bench(sink).run_for(35.0)
    assert [batch.sequence for batch in sink.batches()] == [0, 1, 2]


def test_refusals_alone_are_sent_too() -> None:
    sink = ScriptedSink()
    bench = Bench(sink)
    bench.buffer.refusal("sentiment", 503, "overloaded")
    bench.run_for(2.0)
    assert [refusal.count for batch in sink.batches() for refusal in batch.refusals] == [1]


def test_closing_sends_what_waits_and_says_farewell(make_event: MakeEvent) -> None:
    sink = ScriptedSink("away", "answer lost")
    bench = Bench(sink)
    publisher = Publisher(
        bench.buffer, bench.outbox, sink, pace=Pace(pauses=Backoff(0.001, 5.0, jitter=0.5))
    )
    publisher.start()
    for _ in range(12):
        bench.buffer.attempt(make_event())
    assert publisher.close(30.0) == []
    assert sum(len(batch.events) for batch in sink.batches()) == 12
    assert [batch.last for batch in sink.batches()][-1]
    assert sink.closed


def test_closing_without_a_sink_counts_the_rest_in_time(make_event: MakeEvent) -> None:
    sink = ScriptedSink(then="silent")
    bench = Bench(sink)
    publisher = Publisher(bench.buffer, bench.outbox, sink)
    publisher.start()
    for _ in range(7):
        bench.buffer.attempt(make_event())
    losses = publisher.close(0.05)
    assert [(loss.reason, loss.count) for loss in losses] == [("shutdown", 7)]
    assert sink.closed


def test_a_farewell_that_is_refused_does_not_keep_the_gateway() -> None:
    sink = ScriptedSink(then="refused")
    bench = Bench(sink)
    publisher = Publisher(bench.buffer, bench.outbox, sink)
    publisher.start()
    publisher.close(60.0)
    assert publisher.counts.refused == 1


def test_a_defect_of_the_sink_does_not_end_the_thread(make_event: MakeEvent) -> None:
    arrived = threading.Event()

    class Telling(ScriptedSink):
        def submit(self, sequence: int, message: bytes, key: int | None = None) -> "Future[None]":
            future = super().submit(sequence, message, key)
            arrived.set()
            return future

    sink = Telling("defect")
    bench = Bench(sink)
    pace = Pace(flush_seconds=0.01, pauses=Backoff(0.01, 0.01, jitter=0.5))
    publisher = Publisher(bench.buffer, bench.outbox, sink, pace=pace)
    publisher.start()
    bench.buffer.attempt(make_event())
    assert arrived.wait(30.0)
    assert publisher.close(30.0) == []
    assert sum(len(batch.events) for batch in sink.batches()) == 1


def test_the_thread_sleeps_until_a_message_is_full(make_event: MakeEvent) -> None:
    arrived = threading.Event()

    class Telling(MemorySink):
        def submit(self, sequence: int, message: bytes, key: int | None = None) -> "Future[None]":
            arrived.set()
            return super().submit(sequence, message, key)

    sink = Telling()
    bench = Bench(sink)
    never = Pace(flush_seconds=1e6, heartbeat_seconds=1e6)
    publisher = Publisher(bench.buffer, bench.outbox, sink, pace=never)
    publisher.start()
    for _ in range(4):
        bench.buffer.attempt(make_event())
    assert not arrived.is_set()
    bench.buffer.attempt(make_event())
    assert arrived.wait(30.0)
    publisher.close(30.0)
    assert len(decode(sink.messages[0]).events) == 5


def test_rounding_never_makes_a_wait_of_nothing() -> None:
    """A moment that is 0.2 + 0.5 and, seen from 0.2, less than 0.5 away."""
    pace = Pace(flush_seconds=50.0, heartbeat_seconds=0.5)
    now = 0.2
    buffer = EventBuffer(capacity_records=100, wake_events=5)
    outbox = Outbox(buffer, gateway="g", max_events=5)
    publisher = Publisher(buffer, outbox, ScriptedSink(), pace=pace, clock=lambda: now)
    now = 0.2 + 0.5
    assert now - 0.2 < 0.5
    assert publisher.step() != 0.0


@pytest.mark.parametrize("closing", ["in time", "too late"])
@given(
    script=st.lists(st.sampled_from(OUTCOMES), max_size=25),
    bursts=st.lists(st.tuples(st.integers(0, 60), st.floats(0, 20)), max_size=8),
)
def test_whatever_a_sink_does_the_account_balances(
    closing: str, script: list[str], bursts: list[tuple[int, float]]
) -> None:
    sink = ScriptedSink(*script)
    bench = Bench(sink)
    recorded: Counter[int] = Counter()
    event = event_of(TextRecord(1, 1, 0, False))
    for size, seconds in bursts:
        for _ in range(size):
            bench.buffer.attempt(event)
            bench.buffer.refusal("sentiment", 503, "overloaded")
        recorded.update({200: size, 503: size})
        bench.run_for(seconds)
    written_unknown: Counter[int] = Counter()
    if closing == "in time":
        sink.script.clear()
        bench.run_for(100.0)
    elif (pending := bench.outbox.pending) is not None and pending.sequence in sink.log:
        written_unknown = counted([decode(sink.log[pending.sequence])])
    losses = bench.publisher.close(0.0)
    found = counted(sink.batches())
    for loss in losses:
        found[loss.status] += loss.count
    refused_though_written = "answer lost" in script and "refused" in script
    if refused_though_written:
        assert all(found[status] >= count for status, count in recorded.items())
    else:
        assert found == recorded + written_unknown


def counted(batches: list[EventBatch]) -> Counter[int]:
    """Requests by status in messages."""
    counts: Counter[int] = Counter()
    for batch in batches:
        counts.update(event.status for event in batch.events)
        for refusal in batch.refusals:
            counts[refusal.status] += refusal.count
    return counts
