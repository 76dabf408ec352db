"""``headrace label`` of an endpoint: pairs that gateways kept in a rollout's shadow, and labels.

Both lie on one topic of Kafka (``contracts.pairs``), which exists only if an operator lets texts
be kept. Labels are written to the same topic, so that several people can label, and go with the
pairs when their time is over. What labels show is computed as for a file (``label.py``).
"""

import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Protocol

import msgspec

from contracts.events import UnknownSchemaError
from contracts.pairs import TOPIC, Label, Message, ShadowComparison, decode, encode
from contracts.rollout import RolloutState
from headrace import home as homes
from headrace.commands.label import ComparedPair, LabelFile, PairLabel, order_pairs
from headrace.commands.recount_rollout import rollout_of
from headrace.endpoints import edits
from headrace.errors import NotRunningError, RefusedError
from headrace.home import Where
from headrace.program import say_wait
from service.kafka import (
    KafkaAddress,
    StreamError,
    TopicMissingError,
    close,
    kafka_errors,
    producer,
)
from stats.recounting.raw_log import KafkaRawLog

_OFF = (
    "No text of {name} is kept. An operator lets texts be kept that two versions label "
    "differently: gateway.pairTextsHours in the chart's values, or "
    "headrace up --pair-texts-hours 24."
)
_LARGEST, _DELIVERY_SECONDS = 1_000_000, 10.0


class PairLog(Protocol):
    """The topic of pairs and labels."""

    def messages(self) -> Iterable[bytes]:
        """All that is there, in order; raises ``StreamError``, a missing topic included."""

    def append(self, messages: Sequence[bytes]) -> None:
        """Writes these, durably; raises ``StreamError``."""


class RolloutPairs:
    """The pairs of one endpoint's rollout, or of its last one."""

    def __init__(self, name: str, state: RolloutState, log: PairLog) -> None:
        self._name = name
        self._versions = name, state.stable.version, state.candidate.version
        self._log = log

    def read(self) -> LabelFile:
        """What is there now.

        Raises:
            RefusedError: no texts may be kept, or none was compared yet.
            NotRunningError: Kafka is away.
        """
        try:
            messages = list(self._log.messages())
        except TopicMissingError as error:
            raise RefusedError(_OFF.format(name=self._name)) from error
        except StreamError as error:
            raise NotRunningError(f"No pairs can be read: {error}.") from error
        found = kept_of(messages, self._versions)
        if not found.compared:
            _, stable, candidate = self._versions
            raise RefusedError(
                f"No text was compared yet between versions {stable} and {candidate} of "
                f"{self._name}, or its time is over: pairs come while the rollout is in shadow, "
                "from endpoints whose texts get one label each."
            )
        return found

    def answer(self, answers: Sequence[PairLabel]) -> None:
        """Writes what a person says of pairs.

        Raises:
            RefusedError: there is no such pair.
            NotRunningError: Kafka is away.
        """
        known = {pair.id for pair in self.read().pairs}
        for answer in answers:
            if answer.id not in known:
                raise RefusedError(f"{self._name} has no pair {answer.id} to label.")
        messages = [encode(Label(*self._versions, each.id, each.label)) for each in answers]
        try:
            self._log.append(messages)
        except StreamError as error:
            raise NotRunningError(f"The labels can't be written: {error}.") from error


def kept_of(messages: Iterable[bytes], versions: tuple[str, str, str]) -> LabelFile:
    """What messages say of an endpoint, its stable and its candidate; others are passed over."""
    told: dict[str, dict[int, ShadowComparison]] = {}
    answers: list[PairLabel] = []
    for message in map(_decode, messages):
        if message is None or (message.endpoint, message.stable, message.candidate) != versions:
            continue
        if isinstance(message, Label):
            answers.append(PairLabel(message.id, message.label))
        else:
            told.setdefault(message.gateway, {})[message.sequence] = message
    last = [of_gateway[max(of_gateway)] for of_gateway in told.values()]
    pairs = {
        pair.id: ComparedPair(pair.id, pair.stable, pair.candidate, _text(pair.text, pair.second))
        for of_gateway in told.values()
        for message in of_gateway.values()
        for pair in message.pairs
    }
    return LabelFile(
        compared=sum(each.compared for each in last),
        disagree=sum(each.disagree for each in last),
        pairs=order_pairs(pairs.values())[: min((each.kept for each in last), default=0)],
        answers=answers,
        gaps=sum(len(each) <= max(each) for each in told.values()),
    )


def _decode(message: bytes) -> Message | None:
    """None for what another version of Headrace wrote."""
    try:
        return decode(message)
    except (UnknownSchemaError, msgspec.DecodeError):
        return None


def _text(text: str, second: str | None) -> str:
    return text if second is None else f"{text}\n{second}"


class KafkaPairLog:
    """The real one."""

    def __init__(self, address: KafkaAddress, topic: str) -> None:
        self._address = address
        self._topic = topic

    def messages(self) -> Iterable[bytes]:
        """See ``PairLog``."""
        with closing(KafkaRawLog(self._address, self._topic)) as log:
            for partition, (first, end) in log.spans(0.0, time.time()).items():
                for message in log.messages(partition, first, end):
                    yield message.value

    def append(self, messages: Sequence[bytes]) -> None:
        """See ``PairLog``."""
        client = producer(
            self._address, max_request_bytes=_LARGEST, delivery_seconds=_DELIVERY_SECONDS
        )
        try:
            with kafka_errors():
                sent = [client.send(self._topic, value=each) for each in messages]
                for each in sent:
                    each.get(_DELIVERY_SECONDS)
        finally:
            close(client)


def open_pairs(where: Where, kafka: str | None, topic: str | None, name: str) -> RolloutPairs:
    """The pairs of an endpoint's rollout.

    Raises:
        NotRunningError: nobody knows where Kafka is.
        RefusedError: there was no rollout.
    """
    state = rollout_of(edits.find_existing(homes.site(where).store, name))
    brokers = homes.kafka_of(where, kafka)
    say_wait(f"Kafka at {brokers}")
    log = KafkaPairLog(KafkaAddress.of(brokers), topic or TOPIC)
    return RolloutPairs(name, state, log)
