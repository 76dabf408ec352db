"""Up to when events are in the windows, from the time that Kafka gave the last message of each log.

The smallest over partitions of the largest time in each. Pure.
"""


class Watermark:
    """How far each partition has been folded, of every topic whose records were seen."""

    def __init__(self) -> None:
        self._largest: dict[tuple[str, int], float] = {}  # topic id, partition -> unix seconds

    def take(self, topic_id: str, partition: int, time: float) -> None:
        """Takes the largest time of a message in a range of a partition."""
        log = (topic_id, partition)
        self._largest[log] = max(self._largest.get(log, 0.0), time)

    def forget_before(self, time: float) -> None:
        """Drops the partitions that ended earlier, unix seconds."""
        self._largest = {log: seen for log, seen in self._largest.items() if seen >= time}

    def known_until(self) -> float:
        """The time up to which every partition has been folded, unix seconds; 0 without records.

        The smallest over partitions of the largest time that Kafka gave a message in each, for a
        partition whose worker lags must hold the windows open. What events say of their own time
        tells nothing here: a gateway's clock may be an hour ahead. Partitions of a topic that was
        replaced don't count.
        """
        if not self._largest:
            return 0.0
        topic_id = max(self._largest, key=lambda log: self._largest[log])[0]
        return min(seen for log, seen in self._largest.items() if log[0] == topic_id)
