"""Where the fold role keeps what it knows of copies: beside offsets, in a consumer group's commits.

The group has no members and is called like that of the fold role, with ``.sequences`` behind.
For one thread.
"""

import logging
from collections.abc import Iterable, Mapping

from kafka import OffsetAndMetadata, TopicPartition
from kafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError

from measures.sequences import Checkpoint, GatewaySequences
from service.kafka import KafkaAddress, KafkaAwayError, close, consumer, kafka_errors

log = logging.getLogger(__name__)

_SUFFIX = ".sequences"
_NOT_ALLOWED = (GroupAuthorizationFailedError, TopicAuthorizationFailedError)


class KafkaCheckpoints:
    """The checkpoints of one topic.

    If the broker does not let this role use the group, there are none, and copies are told by
    the messages of ``LOOKBACK_MESSAGES`` before a range after each change of a partition's owner.
    """

    def __init__(self, address: KafkaAddress, group: str, topic: str) -> None:
        """Connects; raises ``KafkaAwayError``."""
        self._request_ms = address.request_ms
        self._topic = topic
        self._group = group + _SUFFIX
        self._consumer = consumer(address, group_id=self._group)
        self._saved: dict[int, Checkpoint] = {}
        self._is_allowed = True

    def load(self, topic_id: str, partitions: Iterable[int]) -> dict[int, Checkpoint]:
        """The newest checkpoint of each partition that has one of this topic's id.

        Raises:
            KafkaAwayError: the broker did not answer.
        """
        found: dict[int, Checkpoint] = {}
        self._saved = {}
        for number in partitions:
            part = TopicPartition(self._topic, number)
            try:
                with kafka_errors():
                    told = self._consumer.committed(
                        part, metadata=True, timeout_ms=self._request_ms
                    )
            except KafkaAwayError as error:
                self._note_refusal(error)
                return {}
            name, _, sequences = ("", "", "") if told is None else told.metadata.partition(" ")
            if name == topic_id and _is_readable(sequences):
                found[number] = Checkpoint(told.offset, sequences)
        return found

    def save(self, topic_id: str, checkpoints: Mapping[int, Checkpoint]) -> None:
        """Keeps those that are new; raises ``KafkaAwayError``."""
        new = {
            number: checkpoint
            for number, checkpoint in checkpoints.items()
            if self._saved.get(number) != checkpoint
        }
        if not new or not self._is_allowed:
            return
        wanted = {
            TopicPartition(self._topic, number): OffsetAndMetadata(
                checkpoint.offset, f"{topic_id} {checkpoint.sequences}", -1
            )
            for number, checkpoint in new.items()
        }
        try:
            with kafka_errors():
                self._consumer.commit(wanted, timeout_ms=self._request_ms)
        except KafkaAwayError as error:
            self._note_refusal(error)
        self._saved |= new

    def close(self) -> None:
        """Ends the connection."""
        close(self._consumer)

    def _note_refusal(self, error: KafkaAwayError) -> None:
        if not isinstance(error.__cause__, _NOT_ALLOWED):
            raise error
        self._is_allowed = False
        log.warning(
            "what is known of copies can't be kept: allow this consumer group",
            extra={"group": self._group, "reason": str(error)},
        )


def _is_readable(sequences: str) -> bool:
    try:
        GatewaySequences.decode(sequences)
    except ValueError:
        return False
    return True
