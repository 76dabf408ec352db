"""The event stream as the process has it: off without a Kafka, patient with one that is away."""

from gateway_world import event_of

from contracts.endpoint import Arm
from contracts.events import Feedback
from gateway.events.stream import EventStream, NoEvents, open_events
from gateway.settings import Settings
from gateway.telemetry.metrics import ObservedMetric

EVENT = event_of()

TOLD = Feedback(0.0, "r", "e", "1", "p", Arm.STABLE, "positive", "negative", 0, 1.0)


async def test_without_a_kafka_nothing_is_kept() -> None:
    events = open_events(Settings(), "g", lambda _: [])
    assert isinstance(events, NoEvents)
    events.start()
    events.recorder.attempt(EVENT)
    events.recorder.refusal("e", 503, "overloaded")
    events.recorder.feedback(TOLD)
    assert list(events.readings()) == []
    await events.close(0.0)


async def test_a_kafka_that_never_answers_ends_in_counted_losses() -> None:
    events = open_events(Settings(kafka_bootstrap=("127.0.0.1:1",)), "g", lambda _: [])
    assert isinstance(events, EventStream)
    events.start()
    events.recorder.attempt(EVENT)
    events.recorder.feedback(TOLD)
    await events.close(0.1)
    found = {reading.metric: reading.value for reading in events.readings()}
    assert found[ObservedMetric.EVENTS] == 1
    assert found[ObservedMetric.FEEDBACK] == 1
    dropped = {
        (r.labels[1], r.value)
        for r in events.readings()
        if r.metric is ObservedMetric.EVENTS_DROPPED
    }
    assert dropped == {("200", 1), ("202", 1)}
    assert found[ObservedMetric.EVENTS_PUBLISHED] == 0
