"""Words from events to what people see, by version."""

import random

import msgspec
from memory_kafka import MemoryKafka, MemoryLog, MemorySink
from prediction_batches import event_of

from contracts.events import EventBatch, PredictionEvent
from stats.fold import FoldCounts, Folder, FoldPace
from stats.unk_words import by_version


def event_with(version: str, *words: str, time: float = 1e6) -> PredictionEvent:
    return msgspec.structs.replace(
        event_of(random.Random(1), time=time, spread=0),
        endpoint="tone",
        version=version,
        unk_words=list(words),
    )


def test_words_are_added_over_partitions_ranges_and_windows() -> None:
    kafka = MemoryKafka()
    for number in range(200):
        event = event_with("1", "zoom", "corona", time=1e6 + number)
        kafka.produce(number % 2, EventBatch("g", number, [event, event_with("2", "zoom")]))
    silent = msgspec.structs.replace(event_with("1"), endpoint="silent")
    kafka.produce(0, EventBatch("g", 200, [silent]))
    folder = Folder(
        MemoryLog(kafka, given={0, 1}, most=300), MemorySink(kafka), FoldPace(10, 0.0), FoldCounts()
    )
    for _ in range(3):
        folder.step()
    windows = kafka.merged()
    found = by_version(windows, "tone", 0.0)
    assert {version: sketch.counts for version, sketch in found.items()} == {
        "1": {"zoom": 200, "corona": 200},
        "2": {"zoom": 200},
    }
    assert found["1"].seen == 400
    assert by_version(windows, "tone", 1e6 + 100)["1"].seen == 200
    assert by_version(windows, "silent", 0.0) == {}
