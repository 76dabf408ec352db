"""Whatever partitions lag and whatever order records come in, gaps are told, each once."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.events import EventBatch, encode
from contracts.windows import Sender, WindowRecord
from contracts.windows import decode as decode_record
from contracts.windows import encode as encode_record
from measures.losses import (
    GRACE_SECONDS,
    MOST_AHEAD,
    SHOWN_SECONDS,
    SILENT_SECONDS,
    Losses,
    MessageLosses,
)
from measures.ranges import PartitionFold
from measures.watermark import Watermark


def record_of(
    senders: dict[str, Sender], *, partition: int = 0, start: int = 0, through: float = 100.0
) -> WindowRecord:
    return WindowRecord(
        "t", partition, start, start + 64, through, 0, through=through, senders=senders
    )


def settled(losses: Losses, known_through: float) -> MessageLosses:
    """When what is known through has been so for long enough."""
    losses.settle(known_through)
    return losses.settle(known_through + GRACE_SECONDS)


def test_a_number_between_two_others_is_missing() -> None:
    losses = Losses()
    losses.take(record_of({"g": Sender([0, 2]), "h": Sender([0])}))
    losses.take(record_of({"g": Sender([1, 5])}, partition=1))
    assert settled(losses, 100.0) == MessageLosses(2)
    assert settled(losses, 100.0) == MessageLosses(2)


def test_what_a_lagging_partition_may_hold_is_not_missing_yet() -> None:
    losses = Losses()
    losses.take(record_of({"g": Sender([0, 2, 4])}, through=100.0))
    assert losses.settle(90.0).messages == 0
    losses.take(record_of({"g": Sender([1])}, partition=1, through=95.0))
    assert losses.settle(95.0).messages == 0
    losses.take(record_of({"g": Sender([1, 3])}, partition=1, through=101.0))
    assert settled(losses, 100.0).messages == 0


def test_a_partition_that_was_just_added_has_time_for_its_first_record() -> None:
    losses = Losses()
    losses.take(record_of({"g": Sender([0, 2])}, through=100.0))
    assert losses.settle(100.0).messages == 0
    losses.take(record_of({"g": Sender([1])}, partition=9, through=99.0))
    assert settled(losses, 100.0).messages == 0


def test_what_came_before_the_first_that_was_read_is_not_missing() -> None:
    losses = Losses()
    losses.take(record_of({"g": Sender([50, 53])}))
    assert settled(losses, 100.0).messages == 0
    losses.take(record_of({"g": Sender([54, 56])}, start=64, through=200.0))
    assert settled(losses, 200.0).messages == 1


def test_drops_are_totals_of_the_newest_message_whatever_comes_when() -> None:
    losses = Losses()
    losses.take(record_of({"g": Sender([0], {"a": {"buffer_full": 4}})}))
    losses.begin()
    newer = record_of({"g": Sender([3], {"a": {"buffer_full": 9, "too_large": 1}})}, start=64)
    older = record_of({"g": Sender([2], {"a": {"buffer_full": 7}})}, partition=1)
    for record in (newer, older, newer):
        losses.take(record)
    found = losses.settle(0.0)
    assert found.dropped == {"a": {"buffer_full": 5, "too_large": 1}}
    assert found.events == 6
    assert found.sentence() == "gateways lost 6 events"


def test_a_gateway_that_falls_silent_without_a_last_message_is_told_for_an_hour() -> None:
    losses = Losses()
    losses.take(record_of({"g": Sender([0]), "h": Sender([0], ended=True)}))
    assert losses.settle(100.0 + SILENT_SECONDS).silent == 0
    assert losses.settle(101.0 + SILENT_SECONDS).silent == 1
    assert losses.settle(101.0 + SHOWN_SECONDS).silent == 0
    losses.take(record_of({"g": Sender([1])}, start=64, through=5000.0))
    assert losses.settle(5000.0).silent == 0


def test_numbers_that_wait_for_a_partition_for_long_have_a_bound() -> None:
    losses = Losses()
    numbers = list(range(0, 2 * MOST_AHEAD + 4, 2))
    losses.take(record_of({"g": Sender(numbers)}))
    losses.take(record_of({"g": Sender([numbers[-1] + 1])}, start=64, through=200.0))
    assert settled(losses, 200.0).messages == 0


class Partitions:
    """Partitions that are folded, and whose records come when ``deliver`` says so."""

    def __init__(self, count: int) -> None:
        self.losses, self._watermark = Losses(), Watermark()
        self._folds = [PartitionFold("t", n, first=0, window_seconds=10) for n in range(count)]
        self._offsets = [0] * count
        self._waiting: list[list[WindowRecord]] = [[] for _ in range(count)]

    def send(self, gateway: str, number: int, partition: int, time: float) -> None:
        fold = self._folds[partition]
        records = fold.take(self._offsets[partition], time, encode(EventBatch(gateway, number)))
        self._offsets[partition] += 1
        growing = fold.growing()
        for record in [*records, *([growing] if growing else [])]:
            self._waiting[partition].append(decode_record(encode_record(record)))

    def deliver(self, *partitions: int) -> int:
        """The newest record comes again the next time; returns what is missing by now."""
        for partition in partitions:
            for record in self._waiting[partition]:
                self.losses.take(record)
                self._watermark.take("t", partition, record.through)
            self._waiting[partition] = self._waiting[partition][-1:]
        return self.losses.settle(self._watermark.known_until()).messages


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    gateways=st.integers(1, 5),
    count=st.integers(1, 4),
    steps=st.integers(1, 400),
)
def test_gaps_are_those_that_were_made(seed: int, gateways: int, count: int, steps: int) -> None:
    """Records of partitions come late and twice; what is told never shrinks."""
    rng = random.Random(seed)
    partitions, sent = Partitions(count), [[0] for _ in range(gateways)]
    for which in range(gateways):
        partitions.send(f"gateway-{which}", 0, which % count, 1000.0)
    told = partitions.deliver(*range(count))
    for step in range(steps):
        which = rng.randrange(gateways)
        sent[which].append(sent[which][-1] + (2 if rng.random() < 0.1 else 1))
        partitions.send(f"gateway-{which}", sent[which][-1], rng.randrange(count), 1001.0 + step)
        now = partitions.deliver(*(n for n in range(count) if rng.random() < 0.3))
        assert now >= told
        told = now
    partitions.deliver(*range(count))
    made = sum(numbers[-1] + 1 - len(numbers) for numbers in sent)
    assert settled(partitions.losses, 2000.0).messages == made
