"""Prediction events: one an attempt, many a message, on Kafka topic ``headrace.predictions``.

A message is JSON. It carries the gateway's instance and a sequence number without holes, so that
even a killed gateway's loss shows as a gap; it has no key and mixes endpoints. Exactly one event of
an answered request is marked ``answered``. The text itself is never in it, and of its words only
those that became UNK, if an endpoint asks for them.
"""

from typing import Annotated, Literal, TypeVar
from zlib import crc32

import msgspec

from contracts.endpoint import Arm

TOPIC = "headrace.predictions"
SCHEMA_VERSION = 1

# What is larger is no count: arithmetic must not fail on whatever is in a message.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Status = Annotated[int, msgspec.Meta(ge=0, le=999)]

NO_ENTITY = "O"  # as in the tags of such models: outside of any
TOPIC_BUCKETS = 256
# Of directions of vectors: planes that make a partition, whose cells have numbers of this many
# bits.
VECTOR_PARTITIONS = 4
VECTOR_PLANES = 6

# gc=False: these hold no cycles, and tens of thousands of them may wait in a gateway's buffer,
# when each collection of garbage would look at every one.


class TextRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One text of an attempt. ``label`` and ``score`` for classifiers, ``norm`` for vectors.

    ``non_zeros``: how many weights of a sparse vector are not 0.

    ``entities``, type and score of each, for labels of tokens. A text without any has the label
    ``NO_ENTITY``, so that texts in which nothing is found are counted too. Of an answer to a
    question there is one, with the class of its length in the place of a type.

    ``generated``: how many tokens were written after a prompt. Its label is why the text ended.
    """

    tokens: Count  # special tokens included, after truncation
    words: Count
    unk: Count
    truncated: bool
    label: str | None = None
    score: float | None = None
    norm: float | None = None
    entities: list[tuple[str, float]] | None = None
    non_zeros: Count | None = None
    generated: Count | None = None


class Latency(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Seconds in each stage of an attempt; a stage that was not reached is 0.

    No moment is in two stages. ``wait`` and ``infer`` are of the text that took longest, all tries
    of it together.
    """

    queue: float
    tokenise: float
    wait: float
    infer: float
    total: float


class Pairing(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A shadow's attempt beside that of the caller, and their answers text by text.

    Of an attempt that failed, of either version, there are no answers to compare.
    """

    version: str  # that answered the caller
    seconds: float  # tokenise + wait + infer of the answer that the caller got
    equal: list[bool] = []  # of labels, or of each entity that either found; empty for vectors
    distance: list[float] = []  # 0 to 1: total variation of scores, (1 - cosine) / 2, 1 - F1
    labels: list[str] = []  # that the caller got; empty for vectors
    scores: list[float] = []  # of these labels
    status: Status = 0  # HTTP status of the caller's attempt
    norms: list[float] = []  # of the vectors that the caller got; empty of labels
    # Of the first texts, how many of the ten nearest among earlier ones both vectors find.
    neighbours: list[int] = []


class PredictionEvent(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One attempt of one request on one version, failures included."""

    request_id: str
    time: float  # unix, seconds, when the request arrived
    endpoint: str
    version: str
    package: str
    arm: Arm
    status: Status  # HTTP status that the attempt would be answered with
    answered: bool
    latency: Latency
    texts: list[TextRecord] = []
    trace_id: str = ""
    # Users' own statistics: name -> observed values.
    observations: dict[str, list[float | str]] = {}
    # Whose request it was: a hash of the sticky key (``x-headrace-key``), 0 without one. Few
    # attempts of one caller count as evidence (``windows.CALLER_CAP``), and checks take it to stay
    # on one arm. Not the gateway's ``caller``, the name of an API key.
    caller: int = 0
    repeated: bool = False  # a second attempt, after a candidate's failed: no evidence on its arm
    pairing: Pairing | None = None  # of a shadow's attempt
    unk_words: list[str] = []  # a few of what became UNK, as written; of endpoints that ask for it
    cached: Count = 0  # texts whose answers were kept, or on their way for another request
    # At most four tokens of a text, each as its id modulo ``TOPIC_BUCKETS``, all sorted. A bucket
    # holds a hundred tokens of a usual vocabulary, so that no text can be read from it.
    topics: bytes = b""
    # Of embeddings: cells of the directions of some of the texts' vectors, all sorted, as
    # ``preprocess.directions`` has them. 24 bits of a vector, whatever its dimension.
    vectors: bytes = b""
    space: str = ""  # of the vectors that the version gives; only those of one may be compared


class Feedback(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The truth about one answered text, as a caller told it later."""

    time: float  # unix, seconds, when it arrived
    request_id: str  # of the answer
    endpoint: str
    version: str
    package: str
    arm: Arm
    answered: str  # label
    truth: str  # label
    text: int  # which text of the request, from 0
    answered_at: float  # unix, seconds, of the answer: tells requests of one id apart
    score: float | None = None  # of the answered label
    caller: int = 0


# Feedback about one answer goes to one partition, by its request id: there a second telling of it
# is told, whichever gateway it came through. There are that many groups of answers.
FEEDBACK_KEYS = 4


def partition_key(feedback: Feedback) -> int:
    """Which of ``FEEDBACK_KEYS`` feedback belongs to."""
    return crc32(feedback.request_id.encode(errors="replace")) % FEEDBACK_KEYS


class StatisticSpec(msgspec.Struct, frozen=True, array_like=True):
    """A statistic of the users' own, as it was declared when it was observed."""

    name: str
    kind: Literal["histogram", "category", "counter"]
    edges: list[float] = []
    values: list[str] = []


class Refusals(msgspec.Struct, frozen=True, array_like=True):
    """Requests that an endpoint refused before any attempt, since the last message."""

    endpoint: str
    status: Status
    reason: str
    count: Count


class EventLosses(msgspec.Struct, frozen=True, array_like=True):
    """What this gateway lost since it started, attempts and refusals: never a silent loss.

    ``answered`` of the ``count`` were what their caller got; the rest were attempts that another
    one made good. So requests = answered events + refusals + answered losses, by status.
    """

    endpoint: str
    status: Status
    reason: str
    count: Count
    answered: Count = 0


class EventBatch(msgspec.Struct, frozen=True):
    """One Kafka message."""

    gateway: str  # unique for each start of a gateway process
    sequence: int  # 0, 1, 2, ... of this gateway
    events: list[PredictionEvent] = []
    refusals: list[Refusals] = []
    dropped: list[EventLosses] = []
    feedback: list[Feedback] = []
    # endpoint -> the declarations of what ``observations`` in this message hold, so that a window
    # stays a function of the log.
    statistics: dict[str, list[StatisticSpec]] = {}
    made: float = 0.0  # unix, seconds, by the gateway's clock
    # The gateway ended in order: one that falls silent without it was killed, and lost its tail.
    last: bool = False
    schema_version: int = SCHEMA_VERSION


class UnknownSchemaError(ValueError):
    """The message was written by a schema that this program does not know."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(EventBatch)


class _BatchSchema(msgspec.Struct):
    schema_version: int


_Decoded = TypeVar("_Decoded")
_version_decoder = msgspec.json.Decoder(_BatchSchema)


def encode(batch: EventBatch) -> bytes:
    """The message's bytes."""
    return _encoder.encode(batch)


def encode_event(event: PredictionEvent) -> msgspec.Raw:
    """An event's part of a message, for ``encode_around``."""
    return msgspec.Raw(_encoder.encode(event))


def encode_around(batch: EventBatch, events: list[msgspec.Raw]) -> bytes:
    """The bytes of a message with these events in place of the batch's own."""
    return _encoder.encode(msgspec.structs.replace(batch, events=events))


def decode(message: bytes) -> EventBatch:
    """The batch in a message.

    Raises:
        UnknownSchemaError: another schema version.
        msgspec.DecodeError: not such a message at all.
    """
    check_schema(decode_with(_version_decoder, message).schema_version, SCHEMA_VERSION)
    return decode_with(_decoder, message)


def check_schema(found: int, *known: int) -> None:
    """Refuses a message of another schema than those that this program knows, the newest last.

    Raises:
        UnknownSchemaError: it is of another.
    """
    if found not in known:
        raise UnknownSchemaError(f"schema version {found} is not known, only {known[-1]}")


def decode_with(decoder: msgspec.json.Decoder[_Decoded], message: bytes) -> _Decoded:
    """What a decoder makes of a message; ``msgspec.DecodeError`` is all that it raises."""
    try:
        return decoder.decode(message)
    except (UnicodeDecodeError, RecursionError) as error:
        # msgspec lets these two through: text that is no UTF-8, and nesting without end.
        raise msgspec.DecodeError(str(error)) from error
