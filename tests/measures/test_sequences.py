"""Doubles are impossible by a message's identity, over all that gateways and brokers may do."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.endpoint import Arm
from contracts.events import EventBatch, Latency, PredictionEvent, encode
from contracts.windows import RANGE_MESSAGES, WindowRecord
from contracts.windows import decode as decode_record
from contracts.windows import encode as encode_record
from measures.ranges import PartitionFold, range_start
from measures.recounting import Duplicates, RawMessage, recount_record
from measures.sequences import GATEWAYS_KEPT, GatewaySequences

# What a broker takes beside an offset, unless it was set up otherwise (offset.metadata.max.bytes).
METADATA_BYTES = 4096


def test_a_number_that_is_not_larger_than_the_largest_is_a_copy() -> None:
    known = GatewaySequences()
    told = [known.is_copy("g", number) for number in (3, 3, 7, 5, 7, 8)]
    assert told == [False, True, False, True, True, False]
    assert not known.is_copy("h", 3)


def test_what_is_known_can_be_written_down() -> None:
    known = GatewaySequences()
    for number in range(GATEWAYS_KEPT + 50):
        known.is_copy(f"gateway-{number}", 2**32 - 1 - number)
    text = known.encode()
    assert len(text) < METADATA_BYTES - 100
    again = GatewaySequences.decode(text)
    assert again.encode() == text
    assert again.is_copy(f"gateway-{GATEWAYS_KEPT}", 5)
    assert not again.is_copy("gateway-0", 5)  # others were heard since


def test_a_gateway_that_is_heard_stays_known_whoever_comes() -> None:
    known = GatewaySequences()
    for number in range(2 * GATEWAYS_KEPT):
        known.is_copy(f"gateway-{number}", 0)
        known.is_copy("g", number)
    assert known.is_copy("g", 2 * GATEWAYS_KEPT - 1)


@pytest.mark.parametrize("text", ["x", "AAAA", "é"])
def test_what_is_no_such_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no sequences"):
        GatewaySequences.decode(text)


@pytest.mark.parametrize("number", [-1, 2**32, 2**80])
def test_what_can_be_no_number_is_never_a_copy(number: int) -> None:
    known = GatewaySequences()
    assert [known.is_copy("g", number) for _ in range(2)] == [False, False]


@dataclass
class Gateway:
    """One start of a gateway as ``gateway.events`` has it: a message at a time, till it is told."""

    name: str
    number: int = 0
    pending: bytes | None = None
    home: int = -1
    old: list[tuple[int, bytes]] = field(default_factory=list)  # copies that may still arrive


@dataclass
class Cluster:
    """Gateways, a topic that may get more partitions, and all that may happen between them."""

    rng: random.Random
    partitions: int
    log: list[list[bytes]] = field(default_factory=list)
    gateways: list[Gateway] = field(default_factory=list)
    distinct: int = 0  # messages that are in the log, each once
    starts: int = 0

    def __post_init__(self) -> None:
        self.log = [[] for _ in range(self.partitions)]

    def start(self) -> None:
        self.gateways.append(Gateway(f"gateway-{self.starts}"))
        self.starts += 1

    def step(self) -> None:
        gateway = self.rng.choice(self.gateways)
        what = self.rng.random()
        if what < 0.02:  # killed with a message under way
            self.gateways.remove(gateway)
            self.start()
        elif what < 0.04:
            self.log.append([])
        elif what < 0.15 and gateway.old:  # a copy that was long under way arrives
            home, message = self.rng.choice(gateway.old)
            self.log[home].append(message)
        else:
            self.send(gateway)

    def send(self, gateway: Gateway) -> None:
        if gateway.pending is None:
            event = PredictionEvent(
                "r", 1e6, "e", "1", "p", Arm.STABLE, 200, True, Latency(0, 0, 0, 0, 0.1)
            )
            gateway.pending = encode(EventBatch(gateway.name, gateway.number, [event]))
            gateway.home = gateway.number % len(self.log)
            self.log[gateway.home].append(gateway.pending)
            self.distinct += 1
        else:
            self.log[gateway.home].append(gateway.pending)
        if self.rng.random() < 0.6:  # the answer arrives
            gateway.old.append((gateway.home, gateway.pending))
            gateway.pending, gateway.number = None, gateway.number + 1


def folded(log: list[list[bytes]], rng: random.Random) -> Iterator[WindowRecord]:
    """All records, by workers that die at any message and go on from what was kept."""
    for partition, messages in enumerate(log):
        fold = PartitionFold("t", partition, first=0, window_seconds=10)
        for offset, message in enumerate(messages):
            complete = fold.take(offset, 1e6 + offset, message)
            yield from (decode_record(encode_record(record)) for record in complete)
            if rng.random() < 0.02:
                kept = fold.checkpoint
                first = range_start(fold.next)
                assert kept.offset == first
                known = GatewaySequences.decode(kept.sequences)
                fold = PartitionFold("t", partition, first=first, window_seconds=10, known=known)
                for again in range(first, offset + 1):
                    fold.take(again, 1e6 + again, messages[again])
        growing = fold.growing()
        if growing is not None:
            yield decode_record(encode_record(growing))


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    gateways=st.sampled_from([1, 2, 30]),
    partitions=st.integers(1, 4),
    steps=st.integers(1, 3000),
)
def test_what_is_counted_is_the_set_of_distinct_messages(
    seed: int, gateways: int, partitions: int, steps: int
) -> None:
    """Resends at any distance, gateways that die, partitions that are added, workers that die."""
    rng = random.Random(seed)
    cluster = Cluster(rng, partitions)
    for _ in range(gateways):
        cluster.start()
    for _ in range(steps):
        cluster.step()
    records = list(folded(cluster.log, rng))
    assert sum(record.events for record in records) == cluster.distinct
    identities = [
        (name, number)
        for record in records
        for name, sender in record.senders.items()
        for number in sender.numbers
    ]
    assert len(identities) == len(set(identities)) == cluster.distinct
    for partition, messages in enumerate(cluster.log):
        raw = [RawMessage(n, 1e6 + n, message) for n, message in enumerate(messages)]
        copies = Duplicates()
        for record in records:
            if record.partition == partition:
                inside = raw[record.start : record.end]
                assert recount_record(record, inside, copies).senders == record.senders


def test_a_recount_looks_as_far_back_as_a_message_was_made() -> None:
    """It knows nothing of what the fold role kept, and reads no more than it must."""
    late = encode(EventBatch("g", 7, made=1000.0))
    soon = [encode(EventBatch("h", n, made=5000.0 + n)) for n in range(RANGE_MESSAGES - 1)]
    asked: list[float] = []

    def earlier(since: float) -> list[RawMessage]:
        asked.append(since)
        return [RawMessage(0, 1001.0, late)]

    messages = [RawMessage(64 + n, 5001.0 + n, one) for n, one in enumerate([*soon, late])]
    record = WindowRecord("t", 0, 64, 128, 0.0, 0)
    again = recount_record(record, messages, Duplicates(earlier, since=5001.0))
    assert again.copies == 1
    assert asked == [700.0]
