"""Asking for the ends of the event log, where Kafka does not play along."""

import pytest

from service.kafka import KafkaAddress, KafkaAwayError
from stats.reading.published import KafkaEventLogEnds


def test_nobody_there_is_told_and_asked_again() -> None:
    published = KafkaEventLogEnds(KafkaAddress(("127.0.0.1:1",)))
    for _ in range(2):
        with pytest.raises(KafkaAwayError):
            published.ends()
