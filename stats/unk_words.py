"""The words that became UNK, by version, out of the window records.

Called by ``headrace stats unk-words``. Reads ``headrace.windows`` from a time onwards, without a
group, and changes nothing. Words that nobody asked for are not there.
"""

from contracts.windows import TOPIC, UnkWordCounts
from measures.frequent import summed
from measures.merging import Windows
from stats.kafka_clients import KafkaAddress
from stats.record_log import KafkaRecordLog, written


def by_version(windows: Windows, endpoint: str, begin: float) -> dict[str, UnkWordCounts]:
    """Version -> its words in all arms, in windows that start at ``begin`` or later, unix seconds.

    Versions without a word are left out.
    """
    found: dict[str, list[UnkWordCounts]] = {}
    for window in windows.all(endpoint):
        if window.start < begin:
            continue
        for cell in window.cells:
            if cell.unk_words.seen:
                found.setdefault(cell.version, []).append(cell.unk_words)
    return {version: summed(sketches) for version, sketches in sorted(found.items())}


def read(
    bootstrap: str, endpoint: str, begin: float, *, topic: str = TOPIC
) -> dict[str, UnkWordCounts]:
    """The same out of a Kafka; raises ``StatsError``.

    Args:
        bootstrap: ``host:port``, comma-separated.
        endpoint: its name.
        begin: unix seconds.
        topic: of the window records.
    """
    log = KafkaRecordLog(KafkaAddress(tuple(bootstrap.split(","))), begin, topic)
    try:
        return by_version(written(log), endpoint, begin)
    finally:
        log.close()
