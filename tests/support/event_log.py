"""What the topic of prediction events comes to, read from its start as a counter would."""

import socket
from collections import Counter
from dataclasses import dataclass, field

from kafka_topics import everything
from waiting import until

from contracts.events import TOPIC, EventBatch, decode


@dataclass
class Totals:
    """What the events say, each message counted once by (gateway, sequence)."""

    by_status: "Counter[int]" = field(default_factory=Counter)
    answered: "Counter[int]" = field(default_factory=Counter)
    refused: "Counter[int]" = field(default_factory=Counter)
    dropped: "Counter[int]" = field(default_factory=Counter)
    sequences: dict[str, set[int]] = field(default_factory=dict)
    last: set[str] = field(default_factory=set)

    def gaps(self, gateway: str) -> set[int]:
        """Sequence numbers that never came."""
        seen = self.sequences[gateway]
        return set(range(max(seen) + 1)) - seen

    def without(self, earlier: "Totals") -> "Counter[int]":
        """Requests by status since ``earlier``: in events, refusals or counted drops."""
        mine = self.by_status + self.refused + self.dropped
        mine.subtract(earlier.by_status + earlier.refused + earlier.dropped)
        return Counter({status: count for status, count in mine.items() if count})


def read_all(bootstrap: str) -> Totals:
    """What every message from the first to the present end of the log comes to."""
    return total(read_batches(bootstrap))


def read_batches(bootstrap: str) -> list[EventBatch]:
    """Every message from the first to the present end of the log, of a Kafka that may yet start."""
    until("Kafka takes connections", 120, lambda: _listens(bootstrap))
    return [decode(record.value) for record in everything(bootstrap, TOPIC)]


def _listens(bootstrap: str) -> bool:
    host, _, port = bootstrap.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def total(batches: list[EventBatch]) -> Totals:
    """The totals of messages in any order, repeats among them."""
    totals = Totals()
    newest: dict[str, EventBatch] = {}
    for batch in batches:
        seen = totals.sequences.setdefault(batch.gateway, set())
        if batch.sequence in seen:
            continue
        seen.add(batch.sequence)
        if batch.last:
            totals.last.add(batch.gateway)
        for event in batch.events:
            if event.answered:
                totals.by_status[event.status] += 1
        for refusal in batch.refusals:
            totals.refused[refusal.status] += refusal.count
        if batch.gateway not in newest or newest[batch.gateway].sequence < batch.sequence:
            newest[batch.gateway] = batch
    for batch in newest.values():
        for drop in batch.dropped:
            totals.dropped[drop.status] += drop.answered
    return totals
