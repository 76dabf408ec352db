"""``headrace stats unk-words``: from events to what people see, by version."""

import json
import random

import msgspec
import pytest
from memory_kafka import MemoryKafka, MemoryLog, MemorySink
from merged_windows import all_windows
from prediction_batches import event_of

from contracts.events import EventBatch, PredictionEvent
from contracts.windows import UnkWordCounts
from headrace.commands.unk_words import by_version, tell
from stats.folding.fold import FoldCounts, Folder, FoldPace


def test_the_most_frequent_words_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"3": UnkWordCounts(10, {"zoom": 2, "corona": 6, "[bold]x": 1}, 1)}
    tell("tone", found, 2, as_json=False)
    said = capsys.readouterr().out
    assert said.index("corona") < said.index("zoom")
    assert "60.0%" in said
    assert "bold" not in said
    assert "too small by up to 1" in said


def test_words_of_strangers_can_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    tell("tone", {"3": UnkWordCounts(2, {"\x1b[31mred": 1, "[red]x": 1})}, 9, as_json=False)
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "\\u001b[31mred" in said
    assert "[red]x" in said


def test_scripts_get_counts_with_their_bound(capsys: pytest.CaptureFixture[str]) -> None:
    tell("tone", {"3": UnkWordCounts(5, {"zoom": 2}, 1)}, 9, as_json=True)
    (version,) = json.loads(capsys.readouterr().out)["versions"]
    assert version == {
        "version": "3",
        "seen": 5,
        "too_small_by_at_most": 1,
        "words": [{"word": "zoom", "count": 2}],
    }


def test_nothing_is_said_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    tell("tone", {}, 9, as_json=False)
    assert "No word of tone became UNK" in capsys.readouterr().out


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
    found = by_version(all_windows(windows, "tone"), 0.0)
    assert {version: sketch.counts for version, sketch in found.items()} == {
        "1": {"zoom": 200, "corona": 200},
        "2": {"zoom": 200},
    }
    assert found["1"].seen == 400
    assert by_version(all_windows(windows, "tone"), 1e6 + 100)["1"].seen == 200
    assert by_version(all_windows(windows, "silent"), 0.0) == {}
