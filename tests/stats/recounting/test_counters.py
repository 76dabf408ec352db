"""What the exporter's counters say is what the windows gained, by another way of adding."""

import random
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest
from prediction_batches import batch_of

from contracts.events import encode
from contracts.windows import RANGE_MESSAGES, WindowRecord
from contracts.windows import encode as encode_record
from measures.increments import RangeLedger
from measures.ranges import PartitionFold
from measures.recounting import RawMessage
from stats.evaluation.totals import TrafficTotals
from stats.recounting.counters import recount_counters


class MemoryRecords:
    """The topic of window records, in one partition."""

    topic_id = "w"

    def __init__(self) -> None:
        self.messages_: list[bytes] = []
        self.beginning = 0

    def beginnings(self) -> Mapping[int, int]:
        return {0: self.beginning}

    def spans(self, begin: float, end: float) -> Mapping[int, tuple[int, int]]:
        raise NotImplementedError

    def messages(self, partition: int, first: int, end: int) -> Iterator[RawMessage]:
        for offset in range(first, end):
            yield RawMessage(offset, 1e6, self.messages_[offset])


@pytest.fixture(scope="module")
def written() -> list[WindowRecord]:
    """Records as they are written: each range again and again while it grows."""
    rng = random.Random(1)
    fold = PartitionFold("t", 0, first=0, window_seconds=10)
    records: list[WindowRecord] = []
    for offset in range(3 * RANGE_MESSAGES):
        message = b"?" if offset % 50 == 7 else encode(batch_of(rng, sequence=offset, events=2))
        records += fold.take(offset, 1e6, message)
        growing = fold.growing()
        if growing is not None and offset % 5 == 0:
            records.append(msgspec.convert(msgspec.to_builtins(growing), WindowRecord))
    return records


def exporter(written: list[WindowRecord], began: int) -> tuple[dict[str, Any], MemoryRecords]:
    """An exporter that started at an offset, and what it read."""
    log, ledger, totals = MemoryRecords(), RangeLedger(), TrafficTotals()
    for offset, record in enumerate(written):
        log.messages_.append(encode_record(record))
        growth = ledger.take(record)
        if growth is not None and offset >= began:
            totals.add(growth, 0.0)
    arms = [
        {
            "endpoint": key.endpoint,
            "version": key.version,
            "arm": key.arm.value,
            **msgspec.to_builtins(arm, str_keys=True),
        }
        for key, arm in totals.arms.items()
    ]
    return {
        "topic_id": "w",
        "since": 5.0,
        "began": {"0": began},
        "read": {"0": len(written)},
        "arms": arms,
        "refusals": totals.refusals,
        "skipped": totals.skipped,
        "copies": totals.copies,
        "mistimed": totals.mistimed,
        "overflow": totals.overflow,
    }, log


@pytest.mark.slow
@pytest.mark.parametrize("began", [0, 9, 20])
def test_counters_are_what_the_windows_gained_since(
    written: list[WindowRecord], began: int
) -> None:
    counters, log = exporter(written, began)
    found = recount_counters(counters, log)
    assert found.differences == ()
    assert found.numbers > 500
    assert (found.since, found.overflow, found.why_not) == (5.0, {}, "")


def test_arms_that_made_room_for_others_are_told_beside_what_differs(
    written: list[WindowRecord],
) -> None:
    counters, log = exporter(written, 9)
    del counters["arms"][0]
    counters["forgotten"] = 1
    found = recount_counters(counters, log)
    assert found.differences
    assert found.overflow == {"forgotten": 1}


def test_a_counter_that_missed_or_doubled_something_is_found(written: list[WindowRecord]) -> None:
    counters, log = exporter(written, 9)
    counters["arms"][0]["texts"] += 1
    counters["skipped"] -= 1
    found = recount_counters(counters, log)
    names = {what.where.split()[-1]: what.written - what.counted for what in found.differences}
    assert names == {"texts": 1, "skipped": -1}


def test_counters_from_a_wrong_beginning_differ(written: list[WindowRecord]) -> None:
    counters, log = exporter(written, 9)
    counters["began"] = {"0": 20}
    assert len(recount_counters(counters, log).differences) > 100


def test_what_can_not_be_compared_is_told(written: list[WindowRecord]) -> None:
    counters, log = exporter(written, 9)
    assert "not begun" in recount_counters(counters | {"began": None}, log).why_not
    assert "deleted since" in recount_counters(counters | {"topic_id": "old"}, log).why_not
    grown = counters | {"read": counters["read"] | {"1": 5}}
    assert "partitions were added" in recount_counters(grown, log).why_not
    log.beginning = 10
    assert "Kafka has deleted" in recount_counters(counters, log).why_not
