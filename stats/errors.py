"""What can go wrong while a topic is read or written, beyond a Kafka that is away.

``StreamError`` is the base of all, ``KafkaAwayError`` and ``TopicMissingError`` included: code that
catches it connects again, and goes on from what is committed.
"""

from service.kafka import StreamError


class LogReplacedError(StreamError):
    """The topic was deleted and made again: offsets of before mean nothing now."""


class RecordTooLargeError(StreamError):
    """A window record is larger than a message may be."""


class StalledError(StreamError):
    """Kafka answers, and reading does not go on: messages wait, or the group does not hold us."""
