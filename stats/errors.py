"""What can go wrong between the statistics and Kafka. None of it is for callers of predictions."""


class StatsError(Exception):
    """Base of all: go on by connecting anew, from what is committed."""


class KafkaAwayError(StatsError):
    """Kafka can't be reached, did not answer in time, or refused."""


class TopicMissingError(StatsError):
    """The topic does not exist (yet)."""


class LogReplacedError(StatsError):
    """The topic was deleted and made again: offsets of before mean nothing now."""


class RecordTooLargeError(StatsError):
    """A window record is larger than a message may be."""


class StalledError(StatsError):
    """Kafka answers, and reading does not go on: messages wait, or the group does not hold us."""
