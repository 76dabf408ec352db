"""Up to when events are in the windows, from the time that Kafka gave the last message of each log.

The smallest over partitions of the largest time in each. Pure.
"""


class Watermark:
    """How far each partition has been folded, of every topic whose records were seen."""

    def __init__(self) -> None:
        # Topic id and partition -> piece -> unix seconds.
        self._largest: dict[tuple[str, int], dict[int, float]] = {}

    def take(
        self, topic_id: str, partition: int, time: float, piece: int = 0, pieces: int = 1
    ) -> None:
        """Takes the largest time of a message in a range of a partition.

        A reader of all pieces of records tells which one it is, and of how many: others, which may
        lie where nothing lay before, may come later.
        """
        times = self._largest.setdefault((topic_id, partition), {})
        if times and time > max(times.values()):
            known = min(times.values())
            for other in {*times, *range(pieces)}:
                if other >= pieces:
                    del times[other]
                else:
                    times.setdefault(other, known)
        times[piece] = max(times.get(piece, 0.0), time)

    def forget_before(self, time: float) -> None:
        """Drops the partitions that ended earlier, unix seconds."""
        self._largest = {
            log: times for log, times in self._largest.items() if max(times.values()) >= time
        }

    def known_until(self) -> float:
        """The time up to which every partition has been folded, unix seconds; 0 without records.

        The smallest over partitions of the largest time that Kafka gave a message in each, for a
        partition whose worker lags must hold the windows open. What events say of their own time
        tells nothing here: a gateway's clock may be an hour ahead. Partitions of a topic that was
        replaced don't count.
        """
        if not self._largest:
            return 0.0
        topic_id = max(self._largest, key=lambda log: max(self._largest[log].values()))[0]
        return min(
            min(times.values()) for log, times in self._largest.items() if log[0] == topic_id
        )
