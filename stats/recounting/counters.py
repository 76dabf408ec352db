"""The exporter's counters, held against the merged windows since it started.

The counters are the exporter's document ``/counters.json``. The topic of window records is read
between the offsets that it names, without a group, and changes nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from contracts.windows import TOPIC, WindowRecord
from measures.counters import Numbers, count_gains, read_document
from measures.recounting import CountDifference, RawMessage, differing
from service.kafka import KafkaAddress
from stats.reading.record_log import largest
from stats.recounting.raw_log import KafkaRawLog, RawLog


@dataclass
class CounterRecount:
    """What was found.

    Attributes:
        since: when the counters began at 0, unix seconds.
        numbers: numbers that were compared.
        why_not: why nothing could be compared; empty if it could.
        overflow: bounds of labels that were reached: what is beyond them is summed, so that single
            numbers differ; under ``forgotten``, how many arms and endpoints made room for others.
        differences: what differs; ``written`` is what the exporter shows.
    """

    since: float = 0.0
    numbers: int = 0
    why_not: str = ""
    overflow: dict[str, int] = field(default_factory=dict)
    differences: tuple[CountDifference, ...] = ()


def recount_counters(counters: Mapping[str, Any], log: RawLog) -> CounterRecount:
    """Adds up the windows between the offsets of an exporter's counters, and compares.

    Args:
        counters: the exporter's document.
        log: the topic of window records.

    Raises:
        StreamError: Kafka is away, or did not go on.
        msgspec.ValidationError: it is no such document.
    """
    found = CounterRecount(since=counters["since"])
    began, read = counters["began"], counters["read"]
    beginnings = log.beginnings()
    if began is None:
        found.why_not = "the counters have not begun, or the topic was made again since"
    elif counters["topic_id"] not in {"", log.topic_id}:
        found.why_not = "the counters are of a topic that was deleted since"
    elif any(beginnings[int(partition)] > offset for partition, offset in began.items()):
        found.why_not = "Kafka has deleted records that came after the counters began"
    elif began and read.keys() - began.keys():
        found.why_not = "partitions were added after the counters began"
    if found.why_not:
        return found
    shown, counted = read_document(counters), Numbers()
    for partition, end in read.items():
        messages = log.messages(int(partition), beginnings[int(partition)], end)
        counted.update(_count_partition(messages, began.get(partition, 0)))
    bounds = counters["overflow"] | {"forgotten": counters.get("forgotten", 0)}
    found.overflow = {what: amount for what, amount in bounds.items() if amount}
    found.numbers = len(shown.keys() | counted.keys())
    found.differences = differing(shown, counted)
    return found


def _count_partition(messages: Iterable[RawMessage], began: int) -> Numbers:
    """What pieces from an offset on add to those before; other partitions have their own."""
    before, after = dict[object, WindowRecord](), dict[object, WindowRecord]()
    for message in messages:
        for piece in largest([message.value]):
            key = (piece.topic_id, piece.partition, piece.start)
            for newest in (after, before) if message.offset < began else (after,):
                if key not in newest or newest[key].end < piece.end:
                    newest[key] = piece
    return count_gains(before.values(), after.values())


def recount_counters_kafka(
    bootstrap: str, counters: Mapping[str, Any], *, topic: str = TOPIC
) -> CounterRecount:
    """The same over a Kafka; raises ``StreamError``.

    Args:
        bootstrap: ``host:port``, comma-separated.
        counters: the exporter's document.
        topic: of the window records.
    """
    log = KafkaRawLog(KafkaAddress.of(bootstrap), topic)
    try:
        return recount_counters(counters, log)
    finally:
        log.close()
