"""Pieces of window records as a member of evaluate's group reads them, and states that it leaves.

States lie in a compacted topic, by endpoint. They are written before offsets are committed, and
tell what they hold of each range, so that whoever gets a partition next goes on from both. For one
thread, but for ``hand_over``, which a poll calls.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Protocol

from kafka.consumer.fetcher import ConsumerRecord

from measures.dividing import partition_of
from service.kafka import KafkaAddress, Topic, Topics, close, kafka_errors, producer
from stats.reading.group import GroupReader, GroupSettings, Membership
from stats.reading.tail import TopicTail

STATES = "headrace.states"
_PARTITION = "/"  # before a partition's number, as the key of its state: no endpoint's name has one
_STATE_BYTES = 16_000_000
_RESTORE_SECONDS = 60.0
_PART_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class WindowMessage:
    """A message of a partition."""

    partition: int
    offset: int
    value: bytes


@dataclass(frozen=True, slots=True)
class OwnPartitions:
    """All partitions that are ours from now on, of so many, and what is known of them.

    ``states`` are by endpoint, and by partition; ``offsets`` say where the next messages are.
    """

    topic_id: str
    offsets: Mapping[int, int]
    count: int
    states: Mapping[str, bytes]
    partition_states: Mapping[int, bytes]

    def owns(self, endpoint: str) -> bool:
        """Whether an endpoint lies in one of them."""
        return bool(self.offsets) and partition_of(endpoint, self.count) in self.offsets


class WindowGroup(Protocol):
    """All methods but ``close`` raise ``StreamError``."""

    def poll(self, seconds: float) -> Sequence[WindowMessage] | OwnPartitions:
        """Messages in the order of each partition, none within ``seconds``, or an assignment."""

    def messages(self, partition: int, first: int) -> Iterator[Sequence[bytes]]:
        """All that a partition has from an offset on, whoever's it is, in parts."""

    def write(self, states: Mapping[str, bytes | None], of: Mapping[int, bytes]) -> None:
        """Writes states by endpoint and by partition, None for one that is gone."""

    def commit(self, offsets: Mapping[int, int]) -> None:
        """All states hold what came before these."""

    def membership(self) -> Membership:
        """Asks the broker what it knows of us."""

    def close(self) -> None:
        """Ends the connection."""


class KafkaWindowGroup:
    """The real one. Makes the topic of states if it is missing."""

    def __init__(
        self,
        address: KafkaAddress,
        settings: GroupSettings,
        *,
        states: str,
        replication: int,
        hand_over: Callable[["KafkaWindowGroup"], None],
    ) -> None:
        """Connects.

        Args:
            address: of Kafka.
            settings: who we are.
            states: topic of states.
            replication: of that topic, if it is made.
            hand_over: is called before others may get our partitions, to ``write``.

        Raises:
            TopicMissingError: nothing was ever folded.
            KafkaAwayError: Kafka can't be reached.
        """
        self._address = address
        self._windows, self._states = settings.topic, states
        self._group = GroupReader(
            address,
            settings,
            revoked=lambda: hand_over(self),
            fetch_max_bytes=32 << 20,
            max_partition_fetch_bytes=8 << 20,
            max_poll_records=500,
        )
        self._seconds = address.request_seconds * 2
        try:
            wanted = Topic(
                states,
                len(self._group.partitions),
                replication,
                max_message_bytes=_STATE_BYTES,
                is_compacted=True,
            )
            self._group.topics.ensure(wanted)
            _, self._state_parts = self._group.topics.describe(states)
            self._producer = producer(
                address,
                max_request_bytes=_STATE_BYTES,
                delivery_seconds=self._seconds,
                max_block_ms=address.request_ms,
            )
        except BaseException:
            self._group.close()
            raise
        self.membership = self._group.membership

    def poll(self, seconds: float) -> Sequence[WindowMessage] | OwnPartitions:
        """See ``WindowGroup``."""
        polled = self._group.poll(seconds)
        if polled is None:
            return self._own()
        return [WindowMessage(each.partition, each.offset, each.value or b"") for each in polled]

    def messages(self, partition: int, first: int) -> Iterator[Sequence[bytes]]:
        """See ``WindowGroup``."""
        with TopicTail(self._address, self._windows, {partition: first}) as tail:
            while not tail.is_whole:
                yield [each.value or b"" for each in tail.read(_PART_SECONDS)]

    def write(self, states: Mapping[str, bytes | None], of: Mapping[int, bytes]) -> None:
        """See ``WindowGroup``."""
        keyed = {(name, self._place(name)): state for name, state in states.items()}
        keyed |= {
            (f"{_PARTITION}{number}", number % len(self._state_parts)): state
            for number, state in of.items()
        }
        with kafka_errors():
            sent = [
                self._producer.send(self._states, state, key=key.encode(), partition=place)
                for (key, place), state in keyed.items()
            ]
            for future in sent:
                future.get(self._seconds + 1.0)

    def commit(self, offsets: Mapping[int, int]) -> None:
        """See ``WindowGroup``."""
        self._group.commit(offsets)

    def close(self) -> None:
        """See ``WindowGroup``."""
        close(self._producer, 1.0)
        self._group.close()

    def _place(self, name: str) -> int:
        return self._state_parts[partition_of(name, len(self._state_parts))]

    def _own(self) -> OwnPartitions:
        group = self._group
        numbers = group.assigned()
        group.verify()
        beginnings, committed = group.beginnings(numbers), group.committed(numbers)
        # Before states are read: what is committed meanwhile is not in them.
        offsets = {number: max(committed[number] or 0, beginnings[number]) for number in numbers}
        count = len(group.partitions)
        # An endpoint that moved since partitions were added has its state where it always was.
        places = {number % len(self._state_parts) for number in numbers}
        wanted = places if len(self._state_parts) == count else set(self._state_parts)
        found = newest_states(self._address, self._states, wanted) if numbers else {}
        own = OwnPartitions(
            group.topic_id,
            offsets,
            count,
            {},
            {number: found[key] for number in numbers if (key := f"{_PARTITION}{number}") in found},
        )
        states = {name: state for name, state in found.items() if own.owns(name)}
        for number, offset in offsets.items():
            group.seek(number, offset)
        return replace(own, states=states)


def newest_states(
    address: KafkaAddress, topic: str, partitions: Collection[int]
) -> dict[str, bytes]:
    """The newest state under each key."""
    with TopicTail(address, topic, dict.fromkeys(partitions, 0)) as tail:
        found: dict[str, bytes] = {}
        put_newest(found, tail.read_all(_RESTORE_SECONDS))
        return found


def put_newest(found: dict[str, bytes], records: Sequence[ConsumerRecord]) -> None:
    """Keeps the newest state under each key, and none of what is gone."""
    for record in records:
        key = (record.key or b"").decode(errors="replace")
        if record.value:
            found[key] = record.value
        else:
            found.pop(key, None)


class StatesOfAll:
    """The newest states of all endpoints, whoever's they are. For one thread at a time.

    It reads on only when it is asked, so that nothing is read while nobody looks.
    """

    def __init__(self, address: KafkaAddress, topic: str) -> None:
        self._address = address
        self._topic = topic
        self._tail: TopicTail | None = None
        self._newest: dict[str, bytes] = {}

    def newest(self, seconds: float) -> Mapping[str, bytes]:
        """By endpoint, as far as could be read within ``seconds``; raises ``StreamError``."""
        try:
            if self._tail is None:
                with closing(Topics(self._address)) as topics:
                    _, partitions = topics.describe(self._topic)
                self._newest = {}
                self._tail = TopicTail(self._address, self._topic, dict.fromkeys(partitions, 0))
            put_newest(self._newest, self._tail.read(seconds))
        except BaseException:
            self.close()
            raise
        return {k: state for k, state in self._newest.items() if not k.startswith(_PARTITION)}

    def close(self) -> None:
        """Ends the connection; the next question makes a new one."""
        if self._tail is not None:
            self._tail.close()
        self._tail = None
