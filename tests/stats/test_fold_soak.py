"""The fold role killed again and again while it folds, in full size: run by ``make soak``."""

import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from fold_world import FIRST_TIME, Topics, Workers, agree, until
from own_servers import KafkaProcess
from soak_record import record

from contracts.events import encode

pytestmark = [pytest.mark.real, pytest.mark.soak, pytest.mark.timeout(900)]

EVENTS = int(os.environ.get("HEADRACE_SOAK_EVENTS", "200000"))
EVENTS_A_MESSAGE = 25
KILLS = 3
HOUR = 3600.0


@pytest.fixture
def topics(kafka: KafkaProcess) -> Iterator[Topics]:
    found = Topics(kafka.bootstrap, partitions=8)
    yield found
    found.close()


@pytest.fixture
def workers(topics: Topics, tmp_path: Path) -> Iterator[Workers]:
    found = Workers(topics, tmp_path, write_seconds=1.0)
    yield found
    found.end()


class Traffic(threading.Thread):
    """Sends all messages, a few at a time: late ones, copies and what is no batch among them."""

    def __init__(self, topics: Topics) -> None:
        super().__init__(name="traffic", daemon=True)
        self.topics = topics
        self.copies = self.poison = self.off_by_an_hour = 0
        self.enough = threading.Event()  # nothing needs to happen under load any more
        self._random = random.Random(5)

    def run(self) -> None:
        """Until all events are sent, and all has happened that is to happen meanwhile."""
        sequence, turn = 0, self.topics.partitions * 4
        while self.topics.events < EVENTS or not self.enough.is_set():
            values = [self._next(sequence + number) for number in range(turn)]
            sequence += turn
            if self._random.random() < 0.2:
                self.copies += 1
                values.insert(self.topics.partitions, values[0])  # in the same partition
            self.topics.send(values)

    def until(self, share: float) -> None:
        """Returns when this share of the events is on its way."""
        until(lambda: self.topics.events > EVENTS * share, "the traffic stands still")

    def _next(self, sequence: int) -> bytes | None:
        """A message, or what may come in its place."""
        chance = self._random.random()
        if chance < 0.002:
            self.poison += 1
            strange = (b"?", None, b"\xff\x00", b"[" * 9999, _of_tomorrow(sequence))
            return self._random.choice(strange)
        at = FIRST_TIME + sequence / 100
        if chance < 0.02:
            self.off_by_an_hour += 1
            at += self._random.choice((-HOUR, HOUR))
        return encode(self.topics.batch(sequence, EVENTS_A_MESSAGE, at))


def _of_tomorrow(sequence: int) -> bytes:
    return msgspec.json.encode({"schema_version": 99, "gateway": "new", "sequence": sequence})


def test_killed_and_rebalanced_workers_count_every_event_once(
    topics: Topics, workers: Workers
) -> None:
    topics.make()
    order = random.Random(20261121)
    pair = [workers.start(), workers.start()]
    until(lambda: workers.assignments >= 2, "the workers do not share the partitions")
    traffic = Traffic(topics)
    traffic.start()
    tick = threading.Event()
    for number in range(KILLS):
        traffic.until((number + 0.5) / (KILLS + 1.5))
        tick.wait(order.random())
        victim = pair.pop(order.randrange(2))
        victim.kill()
        pair.append(workers.start())
    until(lambda: workers.has_partitions(pair[-1]), "the killed worker has no successor")
    third = workers.start()
    until(lambda: workers.has_partitions(third), "no rebalance when a worker came")
    before = workers.assignments
    third.send_signal(signal.SIGTERM)
    assert third.wait(60) == 0
    until(lambda: workers.assignments > before, "no rebalance when a worker went")
    assert traffic.is_alive()
    traffic.enough.set()
    traffic.join(400)
    assert topics.events >= EVENTS
    topics.until_folded()
    found = agree(topics)
    merged = topics.merged().records()
    assert sum(record.skipped for record in merged) >= traffic.poison
    record(
        "fold-exactness",
        {
            "events": topics.events,
            "messages": topics.sent,
            "partitions": topics.partitions,
            "workers": 2,
            "kills": KILLS,
            "rebalances_by_joining_and_leaving": 2,
            "assignments": workers.assignments,
            "copies_of_messages": traffic.copies,
            "messages_that_are_no_batches": traffic.poison,
            "messages_with_a_clock_an_hour_off": traffic.off_by_an_hour,
            "window_records_written": topics.written(),
            "ranges": found.ranges,
            "numbers_compared": found.numbers,
            "numbers_that_differ": len(found.differences),
            "messages_in_no_window": found.unfolded,
        },
    )
