"""Keeps what is known of counting up to date: asks Kafka what there is, and takes what was folded.

For one thread, which reads window records; what ``state`` returns is a value that others may keep.
It never raises for a Kafka that is away: not knowing is one of the states.
"""

import logging
from collections.abc import Iterable

from contracts.windows import WindowRecord
from measures.counting import Counting, CountingState, CountingWatch
from stats.errors import StatsError
from stats.published import Published

log = logging.getLogger(__name__)

ASK_SECONDS = 2.0


class Counted:
    """Compares the ends of the event log with the records that were read.

    Args:
        published: whoever knows the ends.
        now: unix seconds.
    """

    def __init__(self, published: Published, now: float) -> None:
        self._published = published
        self._watch = CountingWatch(now)
        self._ask_at = now
        self._said = CountingState.UNKNOWN

    def take(self, records: Iterable[WindowRecord], now: float) -> None:
        """Takes records as they are read; ``now`` in unix seconds."""
        for record in records:
            self._watch.folded(record.topic_id, record.partition, record.end, record.through, now)

    def ask(self, now: float) -> None:
        """Asks Kafka for the ends, where it is time to."""
        if now < self._ask_at:
            return
        self._ask_at = now + ASK_SECONDS
        try:
            told = self._published.ends()
        except StatsError:
            return  # the state says since when nobody answers
        self._watch.published(told.topic_id, told.ends, now)

    def state(self, now: float) -> Counting:
        """What is known now. A change between good and bad is logged."""
        found = self._watch.look(now)
        if found.state is not self._said:
            level = logging.WARNING if found.holds else logging.INFO
            log.log(level, "%s", found.said(), extra={"messages": found.messages})
            self._said = found.state
        return found

    def close(self) -> None:
        """Ends the connection."""
        self._published.close()
