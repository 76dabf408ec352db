"""Pairs of answers that disagree, and their labels, on Kafka topic ``headrace.pairs``.

It is the only topic that holds texts, and nobody writes one to it unless an operator lets texts be
kept. Gateways write what they compared in a rollout's shadow, people what they say of it. A message
is JSON and says by its ``type`` which of both it is.

Of each mirrored request one text is compared, drawn by lot. A pair that disagrees gets an id drawn
by lot, and its place in the order of labelling follows from the id only (``place``). Each gateway
keeps the pairs that come first in that order, up to a bound, and writes them. So whatever is among
the first ``kept`` of all gateways together, each of which keeps as many, is on the topic. They are
a uniform sample of all pairs that disagree. How many were compared, and how many of them disagree,
is counted by every gateway from its start on, and told with its pairs in one message.
"""

from hashlib import blake2b
from typing import Annotated

import msgspec

from contracts.events import Count, check_schema, decode_with

TOPIC = "headrace.pairs"
SCHEMA_VERSION = 1
KEPT = 500  # pairs of a rollout that a gateway keeps
LONGEST_TEXT = 8192  # characters; the rest of a text is cut off

Name = Annotated[str, msgspec.Meta(max_length=512)]


class Disagreement(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One text that both versions labelled differently. ``second`` is read together with it."""

    id: Name
    stable: str
    candidate: str
    text: str
    second: str | None = None


class ShadowComparison(msgspec.Struct, frozen=True, tag="compared"):
    """What a gateway has compared in one rollout's shadow, since it started.

    Attributes:
        gateway: unique for each start of a gateway process.
        sequence: 0, 1, 2, ... of this gateway and these versions, so that a loss shows.
        endpoint: name.
        stable: version that answered callers.
        candidate: version that answered copies.
        compared: texts, one a request, so far.
        disagree: of these.
        kept: number of pairs that the gateway keeps; those that come first are all on the topic.
        pairs: that disagree, and have come among the first since the last message.
    """

    gateway: str
    sequence: Count
    endpoint: str
    stable: str
    candidate: str
    compared: Count
    disagree: Count
    kept: Count = KEPT
    pairs: list[Disagreement] = []
    schema_version: int = SCHEMA_VERSION


class Label(msgspec.Struct, frozen=True, tag="label"):
    """What a person says of a pair: the right label, null if it can't be told.

    Of several labels of one pair the last counts.
    """

    endpoint: str
    stable: str
    candidate: str
    id: Name
    label: str | None
    schema_version: int = SCHEMA_VERSION


class _MessageSchema(msgspec.Struct):
    schema_version: int


Message = ShadowComparison | Label
_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_version_decoder = msgspec.json.Decoder(_MessageSchema)


def encode(message: Message) -> bytes:
    """The message's bytes."""
    return _encoder.encode(message)


def decode(message: bytes) -> Message:
    """What is in a message.

    Raises:
        UnknownSchemaError: another schema version.
        msgspec.DecodeError: not such a message at all.
    """
    check_schema(decode_with(_version_decoder, message).schema_version, SCHEMA_VERSION)
    return decode_with(_decoder, message)


def place(pair_id: str) -> tuple[int, str]:
    """Where a pair stands in the order of labelling: by a hash of its id, so whatever is in it."""
    key = f"\n{pair_id}\n0".encode(errors="replace")
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big"), pair_id
