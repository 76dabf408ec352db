"""Asking for the ends of the event log, where Kafka does not play along."""

import pytest
from kafka.errors import KafkaConnectionError

from service.kafka import KafkaAddress, KafkaAwayError
from stats.reading.published import KafkaPublished


class Broken:
    """A client whose end fails too."""

    def close(self, **_: object) -> None:
        raise KafkaConnectionError("gone")


def test_nobody_there_is_told_and_asked_anew() -> None:
    published = KafkaPublished(KafkaAddress(("127.0.0.1:1",)))
    for _ in range(2):
        with pytest.raises(KafkaAwayError):
            published.ends()


def test_a_connection_that_does_not_end_in_order_ends_nobody_else() -> None:
    published = KafkaPublished(KafkaAddress(("127.0.0.1:1",)))
    published._consumer = Broken()
    with pytest.raises(KafkaAwayError):
        published.ends()
    assert published._consumer is None
