"""How every process reaches Kafka: sign-in, clients with deadlines, topics, and ends of clients.

Each call that may wait has a deadline of ``KafkaAddress``. Whatever kafka-python raises in
``kafka_errors`` leaves as ``KafkaAwayError``. A client is made from a ``KafkaAddress`` and ended by
``close``, which never raises. A missing topic is made when asked to, and one that exists is left as
it is. Members of kafka-python that are not public are used only here.

A folder signs in, with a file for each thing, as Secrets are mounted: ``username`` and ``password``
for SASL, ``mechanism`` (``SCRAM-SHA-512`` if it is missing), ``ca.crt`` for TLS under a private
authority, ``tls.crt`` and ``tls.key`` for a certificate of the client, and ``protocol`` if
Kafka's name of it does not follow from these. OAUTHBEARER takes its tokens from the file ``token``,
read at each sign-in, or as ``token-url`` gives them for ``client-id``, ``client-secret`` and
``scope``; AWS_MSK_IAM signs them for ``region`` with what AWS's own chain of credentials finds.
What is in a file is never put into a message.
"""

import logging
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import KafkaError, RetriableError, TopicAlreadyExistsError
from kafka.net.compat import KafkaNetClient

from service.kafka_tokens import ClientCredentials, KafkaTokens, sign_as_aws

log = logging.getLogger(__name__)

_BY_TOKEN = ("OAUTHBEARER", "AWS_MSK_IAM")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", *_BY_TOKEN)
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_AUTHORITY, _CERTIFICATE, _KEY = "ca.crt", "tls.crt", "tls.key"
_CLIENT = ("token-url", "client-id", "client-secret")
_TOKENS = "sasl_oauth_token_provider"
_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s@]*)?")

_Client = TypeVar("_Client", KafkaAdminClient, KafkaConsumer, KafkaProducer)
_NO_ERROR = 0


class KafkaLoginError(Exception):
    """The folder can't be used; says which file and why, never what is in it."""


class StreamError(Exception):
    """Base of all that can go wrong with a topic: connect again, and go on from what is safe."""


class KafkaAwayError(StreamError):
    """Kafka can't be reached, did not answer in time, or refused."""


class TopicMissingError(StreamError):
    """The topic does not exist (yet)."""


@dataclass(frozen=True)
class KafkaAddress:
    """How to reach Kafka, and with what deadlines.

    Attributes:
        bootstrap: ``host:port`` of one broker or more.
        connect_seconds: deadline of a connection and its handshake.
        request_seconds: deadline of one answer of a broker.
        options: further options of kafka-python's clients, by its names (``login_options``).
    """

    bootstrap: tuple[str, ...]
    connect_seconds: float = 2.0
    request_seconds: float = 5.0
    options: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(
        cls, bootstrap: str | tuple[str, ...], *, login: str = "", request_seconds: float = 5.0
    ) -> "KafkaAddress":
        """An address out of flags: brokers comma-separated, or one by one.

        Raises:
            KafkaLoginError: the folder can't be used.
        """
        brokers = tuple(bootstrap.split(",")) if isinstance(bootstrap, str) else bootstrap
        return cls(brokers, request_seconds=request_seconds, options=login_options(login))

    @property
    def connect_ms(self) -> int:
        """``connect_seconds`` as kafka-python wants it."""
        return int(self.connect_seconds * 1000)

    @property
    def request_ms(self) -> int:
        """``request_seconds`` as kafka-python wants it."""
        return int(self.request_seconds * 1000)


@dataclass(frozen=True)
class Topic:
    """How a topic is made if it is missing; one that exists is left as it is.

    ``max_message_bytes`` is of a message as it is stored, and ``segment_hours`` how long messages
    go into one segment, which is deleted as a whole; None leaves them to the broker.
    """

    name: str
    partitions: int = 4
    replication: int = 1
    retention_hours: float = 168.0
    max_message_bytes: int | None = None
    segment_hours: float | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """A consumer group as its coordinator describes it.

    Attributes:
        state: in Kafka's words, or the error that was the answer.
        members: member id -> the partitions of our topic that the group gave it.
    """

    state: str = ""
    members: Mapping[str, frozenset[int]] = field(default_factory=dict)


@contextmanager
def kafka_errors() -> Iterator[None]:
    """Turns what kafka-python raises into ``KafkaAwayError``, which keeps it as its cause."""
    try:
        yield
    except (KafkaError, OSError) as error:
        raise KafkaAwayError(sentence(error)) from error


def sentence(error: BaseException) -> str:
    """An error of kafka-python with its name, once."""
    text, name = str(error), type(error).__name__
    return text if text.startswith(name) else f"{name}: {text}"


def consumer(address: KafkaAddress, **options: object) -> KafkaConsumer:
    """A consumer without automatic commits; raises ``KafkaAwayError``."""
    return _connect(
        KafkaConsumer,
        address,
        enable_auto_commit=False,
        allow_auto_create_topics=False,
        metadata_max_age_ms=5000,
        metrics_enabled=False,
        **options,
    )


def producer(
    address: KafkaAddress,
    *,
    compression: Literal["lz4", "zstd"] = "lz4",
    max_request_bytes: int,
    delivery_seconds: float,
    **options: object,
) -> KafkaProducer:
    """A producer whose messages count as sent when all in-sync replicas have them.

    A message above ``max_request_bytes`` is refused before it is sent, uncompressed.
    ``delivery_seconds`` bounds one message with the client's own repetitions.

    Raises:
        KafkaAwayError: Kafka can't be reached.
    """
    return _connect(
        KafkaProducer,
        address,
        acks="all",
        enable_idempotence=True,
        linger_ms=0,
        compression_type=compression,
        max_request_size=max_request_bytes,
        delivery_timeout_ms=int(delivery_seconds * 1000),
        allow_auto_create_topics=False,
        metrics_enabled=False,
        **options,
    )


def close(
    client: KafkaAdminClient | KafkaConsumer | KafkaProducer, timeout_seconds: float = 2.0
) -> None:
    """Ends a client, and gives up what it has under way; never raises, commits nothing."""
    try:
        if isinstance(client, KafkaProducer):
            # Only close() waits for a message under way, and leaves the thread running when it
            # gives up waiting: so what is under way is ended first. That is no public method.
            client._sender.force_close()  # noqa: SLF001
            client.close(timeout_seconds)
        elif isinstance(client, KafkaConsumer):
            client.close(autocommit=False, timeout_ms=int(timeout_seconds * 1000))
        else:
            client.close()
    except (KafkaError, OSError) as error:
        level = logging.WARNING if isinstance(client, KafkaProducer) else logging.INFO
        log.log(level, "a client of Kafka did not end in order", extra={"reason": str(error)})


def keep_rejoining(client: KafkaConsumer) -> None:
    """Has a member take part in a rebalance until it knows its partitions.

    To be called at each revocation, from the client's own thread. A rebalance that the client
    begins for a change of the topic's partitions is over for it as soon as it has sent its
    SyncGroup: if a poll gives up before the answer, no later poll takes the answer up, and the
    member leaves the group without a word. Asked to rejoin, it goes on until it has taken up the
    answer. ``docs/decisions/0025-kafka-group-membership.md`` has the whole story.
    """
    client._coordinator.request_rejoin()  # noqa: SLF001 - there is no public way


class Topics:
    """Asks about topics, one question a call and no cache."""

    def __init__(self, address: KafkaAddress) -> None:
        self._request_ms = address.request_ms
        self._admin = _connect(KafkaAdminClient, address)

    def ensure(self, topic: Topic) -> None:
        """Makes the topic if it is missing, with retention by time, never compacted.

        Compaction would keep the newest record of a window's range, and a late writer's is not the
        one with the largest end. Time is the broker's: it refuses messages of a clock that is an
        hour ahead, and those of a clock that is behind would keep windows open.
        """
        with kafka_errors():
            if topic.name in self._admin.list_topics():
                return
            configs = {
                "cleanup.policy": "delete",
                "message.timestamp.type": "LogAppendTime",
                "retention.ms": str(int(topic.retention_hours * 3_600_000)),
            }
            if topic.max_message_bytes is not None:
                configs["max.message.bytes"] = str(topic.max_message_bytes)
            if topic.segment_hours is not None:
                configs["segment.ms"] = str(int(topic.segment_hours * 3_600_000))
            wanted = {
                "num_partitions": topic.partitions,
                "replication_factor": topic.replication,
                "configs": configs,
            }
            try:
                self._admin.create_topics({topic.name: wanted})
            except TopicAlreadyExistsError:
                return  # another process was faster
            self._admin.wait_for_topics([topic.name], timeout_ms=self._request_ms)
            log.warning("made the missing topic", extra={"topic": topic.name})

    def describe(self, name: str) -> tuple[str, tuple[int, ...]]:
        """The topic's id and its partitions, as the broker says now.

        Raises:
            TopicMissingError: there is none of that name.
            KafkaAwayError: nobody answered.
        """
        with kafka_errors():
            (told,) = self._admin.describe_topics([name])
        if told["error_code"] != _NO_ERROR:
            raise TopicMissingError(f"topic {name} does not exist (yet)")
        partitions = (part["partition_index"] for part in told["partitions"])
        return str(told["topic_id"]), tuple(sorted(partitions))

    def spans(self, name: str, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Partition -> its first offset and the one behind its last, as the broker says now."""
        parts = [TopicPartition(name, number) for number in partitions]
        if not parts:
            return {}
        with kafka_errors():
            first, end = (
                self._admin.list_partition_offsets(dict.fromkeys(parts, spec))
                for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
            )
        return {part.partition: (first[part].offset, end[part].offset) for part in parts}

    def group(self, name: str, topic: str) -> ConsumerGroup:
        """A consumer group, as its coordinator says now; an answer of "not now" is its state."""
        try:
            with kafka_errors():
                told = self._admin.describe_groups([name])[name]
        except KafkaAwayError as error:
            if isinstance(error.__cause__, RetriableError):
                return ConsumerGroup(str(error))
            raise
        if told["error"]:
            return ConsumerGroup(str(told["error"]))
        members = {
            str(member["member_id"]): _parse_assignment(member["member_assignment"], topic)
            for member in told["members"]
        }
        return ConsumerGroup(str(told["group_state"]), members)

    def close(self) -> None:
        """Ends the connection."""
        close(self._admin)


def _parse_assignment(assignment: Mapping[str, Any] | bytes | None, topic: str) -> frozenset[int]:
    """The partitions of a topic in a member's assignment, which has none before the first."""
    if not isinstance(assignment, Mapping):
        return frozenset()
    return frozenset(
        number
        for each in assignment["assigned_partitions"]
        if each["topic"] == topic
        for number in each["partitions"]
    )


def _connect(kind: Callable[..., _Client], address: KafkaAddress, **options: object) -> _Client:
    _probe(address)
    if isinstance(tokens := address.options.get(_TOKENS), KafkaTokens):
        with kafka_errors():
            tokens.token()  # or kafka-python would not tell why it can't bootstrap
    opened: list[KafkaNetClient] = []

    def client(**settings: object) -> KafkaNetClient:
        # The only way to the sockets and thread of a client whose construction failed.
        opened.append(KafkaNetClient(**settings))
        return opened[-1]

    common: dict[str, Any] = {
        "bootstrap_servers": list(address.bootstrap),
        "bootstrap_timeout_ms": address.connect_ms,
        "request_timeout_ms": address.request_ms,
        "reconnect_backoff_max_ms": 1000,
        "kafka_client": client,
    }
    try:
        with kafka_errors():
            return kind(**{**common, **options, **address.options})
    except BaseException:
        for leftover in opened:
            leftover.close()
        raise


def _probe(address: KafkaAddress) -> None:
    """A plain connection first: far cheaper than a client while Kafka is down for long."""
    last: OSError | None = None
    for broker in address.bootstrap:
        host, _, port = broker.rpartition(":")
        try:
            socket.create_connection((host, int(port)), address.connect_seconds).close()
        except OSError as error:
            last = error
        else:
            return
    raise KafkaAwayError(f"no Kafka at {', '.join(address.bootstrap)}: {last}")


def login_options(folder: str) -> dict[str, object]:
    """Options that sign in, for kafka-python's clients; none if ``folder`` is empty.

    Raises:
        KafkaLoginError: the folder or a file in it is missing, or says what Kafka does not know.
    """
    if not folder:
        return {}
    home = Path(folder).expanduser()
    if not home.is_dir():
        raise KafkaLoginError(f"--kafka-login: there is no folder {home}")
    username = _read(home, "username")
    tokens = _read(home, "mechanism") in _BY_TOKEN
    secured = tokens or any((home / name).exists() for name in (_AUTHORITY, _CERTIFICATE))
    protocol = _read(home, "protocol") or _protocol(sasl=tokens or bool(username), tls=secured)
    if protocol not in PROTOCOLS:
        raise _build_unknown_error(home / "protocol", PROTOCOLS)
    found: dict[str, object] = {"security_protocol": protocol}
    if protocol.startswith("SASL"):
        found |= _sasl(home, username)
    if protocol.endswith("SSL"):
        found |= _tls(home)
    return found


def _protocol(*, sasl: bool, tls: bool) -> str:
    if sasl:
        return "SASL_SSL" if tls else "SASL_PLAINTEXT"
    return "SSL" if tls else "PLAINTEXT"


def _sasl(home: Path, username: str) -> dict[str, object]:
    password = _read(home, "password")
    mechanism = _read(home, "mechanism") or "SCRAM-SHA-512"
    if mechanism not in MECHANISMS:
        raise _build_unknown_error(home / "mechanism", MECHANISMS)
    if mechanism in _BY_TOKEN:
        # MSK takes AWS's signature by OAUTHBEARER too. kafka-python's own AWS_MSK_IAM looks for
        # credentials again at each connection, and without a deadline.
        tokens = KafkaTokens(_token_source(home, mechanism))
        return {"sasl_mechanism": "OAUTHBEARER", _TOKENS: tokens}
    if not username or not password:
        raise KafkaLoginError(
            f"--kafka-login: SASL needs the files username and password in {home}"
        )
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": username,
        "sasl_plain_password": password,
    }


def _token_source(home: Path, mechanism: str) -> Callable[[], str]:
    if mechanism == "AWS_MSK_IAM":
        try:
            return sign_as_aws(_read(home, "region"))
        except (ImportError, ValueError) as error:
            raise KafkaLoginError(f"--kafka-login: AWS_MSK_IAM: {error}") from error
    if (home / "token").exists():
        return (home / "token").read_text
    url, client, secret = (_read(home, name) for name in _CLIENT)
    if missing := [name for name in _CLIENT if not _read(home, name)]:
        needs = f"OAUTHBEARER needs the file token, or {', '.join(missing)}"
        raise KafkaLoginError(f"--kafka-login: {needs}, in {home}")
    if not _URL.fullmatch(url):
        raise KafkaLoginError("--kafka-login: token-url is no address of http or https")
    authority = home / _AUTHORITY if (home / _AUTHORITY).exists() else None
    return ClientCredentials(url, client, secret, _read(home, "scope"), authority)


def _tls(home: Path) -> dict[str, object]:
    """Files of TLS; without an authority of its own, those that the system trusts."""
    certificate, key = (home / _CERTIFICATE).exists(), (home / _KEY).exists()
    if certificate != key:
        raise KafkaLoginError(f"--kafka-login: {_CERTIFICATE} and {_KEY} go together in {home}")
    found: dict[str, object] = {"ssl_check_hostname": True}
    if (home / _AUTHORITY).exists():
        found["ssl_cafile"] = str(home / _AUTHORITY)
    if certificate:
        found |= {"ssl_certfile": str(home / _CERTIFICATE), "ssl_keyfile": str(home / _KEY)}
    return found


def _read(home: Path, name: str) -> str:
    """A file's content without the line's end; empty if there is no such file."""
    try:
        return (home / name).read_text(encoding="utf-8").strip("\r\n")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        kind = type(error).__name__
        raise KafkaLoginError(f"--kafka-login: {home / name} can't be read: {kind}") from error


def _build_unknown_error(file: Path, known: tuple[str, ...]) -> KafkaLoginError:
    return KafkaLoginError(f"--kafka-login: {file} is none of {', '.join(known)}")
