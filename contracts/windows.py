"""Window records: exact counts over an aligned range of offsets, on Kafka ``headrace.windows``.

A range of a partition of ``headrace.predictions`` starts at a multiple of ``RANGE_MESSAGES``. Its
record holds an aggregate for every (endpoint, package, arm, window of event time) in it and is
rewritten from the range's start as the range grows. Readers keep, per (topic id, partition, start),
the record with the largest end; records of different ranges add. So a record is a function of the
log, and repeats, late writers and crashes do no harm. It is divided by endpoint into pieces, one
for every partition of the topic, so that each partition by itself has every range
(``measures.dividing``). A gateway that got no answer from Kafka may write a message twice: the copy
is told by its number, however far away (``measures.sequences``).

All counts are integers, sums included, so that adding in any order gives the same number.
"""

from bisect import bisect_left
from typing import Final

import msgspec

from contracts.endpoint import Arm
from contracts.events import StatisticSpec, check_schema, decode_with

TOPIC = "headrace.windows"
SCHEMA_VERSION = 2  # 1, of release 0.1.0, did not divide records: they are one piece
RANGE_MESSAGES = 64  # messages, each of many events; a constant of the topic
# Before a range's start: in them a truth that was told before is looked for.
LOOKBACK_MESSAGES = 256
WINDOW_SECONDS = 10  # of event time, aligned to the epoch
# What an event may take from its request's end into Kafka: half a second in its gateway's buffer,
# and as much for Kafka and for clocks that differ. How long folding takes is told by the records.
ON_THE_WAY_SECONDS = 1.0
MICRO = 1_000_000  # sums are in millionths of their unit
# A message whose events are further than this from when Kafka took it was sent by a gateway whose
# clock is off, or whose Kafka was away for long.
MISTIMED_SECONDS = 300.0
UNSERVED = 503  # status of attempts that no version had a part in: no Triton, or no room in one
CALLER_CAP = 20  # attempts of one caller in one aggregate of one range that count as evidence
CALLER_GROUPS = 32  # that callers are put into by their hash; a constant of the topic
CALLER_BUCKETS = 4096  # the same, for what each caller had: among hundreds, few share one
# Of ``EvidenceCounts.caller_latency``: more than there are buckets of LATENCY_EDGES. And the most
# entries of it, and of ``caller_requests``, in one aggregate of one range.
CALLER_STRIDE = 512
CALLER_ENTRIES = 1024

# Upper ends of buckets of ``Pairing.distance`` of vectors, (1 - cosine) / 2 of the dense ones: from
# a cosine of 0.999 to one of 0.5. And how many nearest texts are looked for.
SPACE_EDGES: Final = (0.0005, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25)
NEAREST = 10

# Labels come seconds to weeks after their answer. Class k of ages, in seconds, ends at
# ``LABEL_AGES[k]``, where the next one begins; what is older is in one more, the last.
LABEL_AGES: Final = tuple(10.0 * 2 ** (half / 2) for half in range(37))  # to 30 days
AGE_STRIDE = CALLER_GROUPS + 1  # of ``aged_feedback``: callers' groups, and nobody's behind them

# Of what fold counts. A record says which revision wrote it, for later ones to know.
REVISION = 1

# Bucket -> count, of the edges in contracts.statistics; buckets without a count are left out.
Sparse = dict[int, int]


class EvidenceCounts(msgspec.Struct, omit_defaults=True):
    """What checks rest on: attempts that count as evidence, each caller's at most ``CALLER_CAP``.

    What the cache answered says nothing of errors and latency, and is told apart for the answers:
    ``labels`` and ``cached_labels`` together are all of an arm's answers, of each caller the first
    ``CALLER_CAP``, whether a text was inferred for them or not.

    Left out: forced attempts, second attempts (``repeated``), requests of whose texts none was
    inferred (``cached``), callers who hung up (499), and what is above a caller's cap, the first
    ones in the log counting. Feedback is capped by itself. Requests of nobody (caller 0) have no
    cap, because they are not one caller's.
    """

    requests: int = 0
    errors: int = 0  # status 500 and above
    # Longest text's length bucket (power of two, tokens) -> tokenise + wait + infer, buckets of
    # LATENCY_EDGES. Answered in time (200), or too late (504, in the bucket to infinity). Without
    # requests of whose texts some were not inferred.
    latency: dict[int, Sparse] = {}
    # The part of it that is of callers with a name: length bucket -> their hash modulo
    # CALLER_BUCKETS, times CALLER_STRIDE, plus the bucket of LATENCY_EDGES -> count. In a range
    # with more than CALLER_ENTRIES of these, only of the lower half of the buckets of callers, or
    # of a quarter, and so on: who is told does not depend on how long the answers took.
    caller_latency: dict[int, Sparse] = {}
    # Of callers with a name, their hash modulo CALLER_BUCKETS -> attempts, and those of them with
    # status 500 and above. With more callers than CALLER_ENTRIES, of the lower half of the buckets
    # only, and so on.
    caller_requests: Sparse = {}
    caller_errors: Sparse = {}
    labels: dict[str, int] = {}  # of answered texts, or of the entities in them
    # How much the texts of one request resemble one another: label -> neighbours of the texts that
    # have it, which are the other answered texts of their requests; and those that have it as well.
    label_neighbours: dict[str, int] = {}
    label_like_neighbours: dict[str, int] = {}
    norms: Sparse = {}  # of answered texts, buckets of Statistic.VECTOR_NORM
    # What requests of whose texts none was inferred add to ``labels`` and ``norms``, under one cap
    # with the others: below 0 if they come before others of their caller, which are then beyond
    # the cap.
    cached_labels: dict[str, int] = {}
    cached_norms: Sparse = {}
    pairs: int = 0  # texts, or entities in them, that were compared, of a shadow
    pairs_equal: int = 0
    # Of a shadow, texts whose original's label is known: label that the caller got -> the shadow's
    # -> millionths of requests, where each of a request's n texts is 1 / n of it.
    pair_labels: dict[str, dict[str, int]] = {}
    # The shadow's score less the original's, from -1 to 1, in buckets of Statistic.SCORE of
    # (1 + difference) / 2.
    pair_scores: Sparse = {}
    # Buckets of LATENCY_EDGES that the shadow's time is above the original's; below 0: faster.
    pair_latency: Sparse = {}
    # Of a shadow whose original's status is known: that status -> the shadow's -> attempts. Events
    # of gateways that mirror no failed attempts tell none.
    pair_statuses: dict[int, Sparse] = {}
    # Of a shadow's vectors: bucket of the original's norm (Statistic.VECTOR_NORM) -> the shadow's
    # -> millionths of requests, as in ``pair_labels``.
    pair_norms: dict[int, Sparse] = {}
    # Of a shadow's vectors, texts by how near they are to the original's: ``NEAREST + 1`` times the
    # bucket of SPACE_EDGES that their distance is in, plus how many of the ten nearest texts both
    # vectors find among the original's.
    pair_nearness: Sparse = {}
    hung_up: int = 0  # attempts whose callers gave up, each caller's first ``CALLER_CAP``
    unnamed: int = 0  # attempts of nobody, with kept answers and hung-up ones: spread one by one
    feedback: int = 0  # texts with a truth
    feedback_wrong: int = 0
    # The same by age and by group of callers: class of LABEL_AGES times AGE_STRIDE, plus the group
    # (nobody's: CALLER_GROUPS) -> count. They tell which answers the labels of a window are about.
    aged_feedback: Sparse = {}
    aged_wrong: Sparse = {}
    # The same by group of callers (their hash modulo CALLER_GROUPS): group -> count. They tell how
    # much callers differ. Requests of nobody are in no group.
    group_requests: Sparse = {}
    group_errors: Sparse = {}
    group_labels: dict[str, Sparse] = {}
    group_cached_labels: dict[str, Sparse] = {}
    group_feedback: Sparse = {}
    group_wrong: Sparse = {}


def age_class(seconds: float) -> int:
    """The class of a label that came so long after its answer; clocks may differ: below 0 is 0.

    >>> [age_class(seconds) for seconds in (-1.0, 10.0, 11.0, 20.0, 1e9)]
    [0, 0, 1, 2, 37]
    """
    return bisect_left(LABEL_AGES, seconds)


class OwnCounts(msgspec.Struct):
    """Counts of a statistic of the users' own, with the declaration that they were made under."""

    spec: StatisticSpec
    counts: dict[str, int] = {}  # bucket number or category -> count
    sum_micro: int = 0
    unfit: int = 0  # observations that the declaration does not allow


class UnkWordCounts(msgspec.Struct, omit_defaults=True):
    """A sketch of the words that became UNK, of endpoints that ask for it (``measures.frequent``).

    A word's true count is its count here, and at most ``below`` more; 0 of a word that is not here.
    """

    seen: int = 0  # words in all
    counts: dict[str, int] = {}
    below: int = 0


class WindowAggregate(msgspec.Struct, omit_defaults=True):
    """Everything about one (endpoint, package, arm, window). ``start`` in unix seconds."""

    endpoint: str
    version: str
    package: str
    arm: Arm
    start: int
    statuses: dict[int, int] = {}  # attempts by status
    answered: int = 0
    repeated: int = 0
    texts: int = 0
    truncated: int = 0
    histograms: dict[str, Sparse] = {}  # by contracts.statistics.Statistic
    sums: dict[str, int] = {}  # of the same, in millionths
    # By contracts.statistics.LatencyStage, buckets of LATENCY_EDGES; of the stages that were
    # reached.
    latency: dict[str, Sparse] = {}
    latency_sums: dict[str, int] = {}  # microseconds
    labels: dict[str, int] = {}
    topics: Sparse = {}  # of tokens by bucket; see ``contracts.events.PredictionEvent``
    vectors: Sparse = {}  # of vectors' directions by cell; see there
    label_scores: dict[str, Sparse] = {}  # predicted label -> its scores, Statistic.SCORE
    label_score_sums: dict[str, int] = {}  # of the same, in millionths
    pair_distance: Sparse = {}  # of shadows, buckets of Statistic.SCORE
    pair_distance_sum: int = 0  # millionths
    feedback: dict[str, dict[str, int]] = {}  # answered label -> true label -> texts
    # Of texts with feedback whose score is known, by bucket of Statistic.SCORE: how many, how many
    # of them were right, and the sum of their scores in millionths.
    feedback_scores: Sparse = {}
    feedback_right: Sparse = {}
    feedback_score_sums: Sparse = {}
    own: list[OwnCounts] = []
    undeclared: dict[str, int] = {}  # observations of names that nobody declared
    unk_words: UnkWordCounts = msgspec.field(default_factory=UnkWordCounts)
    evidence: EvidenceCounts = msgspec.field(default_factory=EvidenceCounts)


class EndpointWindow(msgspec.Struct):
    """One endpoint's aggregates in one window of event time, merged over partitions and ranges."""

    endpoint: str
    start: int  # unix seconds
    seconds: int
    aggregates: list[WindowAggregate] = []  # one for each (package, arm)


class Sender(msgspec.Struct, omit_defaults=True):
    """What a range holds of one start of a gateway process."""

    numbers: list[int] = []  # of its messages that count, in the order of the log
    # Endpoint -> reason -> requests, events and feedback that it lost since its start, as the
    # newest of these messages says.
    dropped: dict[str, dict[str, int]] = {}
    ended: bool = False  # it said that this was its last message


class WindowRecord(msgspec.Struct):
    """One Kafka message of ``headrace.windows``: offsets ``[start, end)`` of one partition."""

    topic_id: str
    partition: int
    start: int  # first offset of the range, a multiple of RANGE_MESSAGES
    end: int  # behind the last offset that is in it
    newest: float  # largest event time in it, unix seconds
    events: int
    through: float = 0.0  # largest time of a message in it, as Kafka keeps it, unix seconds
    skipped: int = 0  # messages of an unknown schema, or that were no batches at all
    copies: int = 0  # messages that were in the log before
    mistimed: int = 0  # messages whose events are more than MISTIMED_SECONDS from Kafka's time
    aggregates: list[WindowAggregate] = []
    # endpoint -> status and reason ("503 overloaded") -> count
    refusals: dict[str, dict[str, int]] = {}
    window_seconds: int = WINDOW_SECONDS
    senders: dict[str, Sender] = {}  # by the name of a gateway's start
    feedback_repeated: int = 0  # texts whose truth was told before
    piece: int = 0  # of ``pieces`` that the range's record is divided into
    pieces: int = 1
    schema_version: int = SCHEMA_VERSION
    revision: int = REVISION


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(WindowRecord)


class RangeHead(msgspec.Struct, frozen=True):
    """Which range a record is of, and how far it got: all that tells which record to keep."""

    topic_id: str
    partition: int
    start: int
    end: int
    schema_version: int
    piece: int = 0
    pieces: int = 1

    @property
    def key(self) -> tuple[str, int, int, int, int]:
        """The range, and which piece of its record."""
        return self.topic_id, self.partition, self.start, self.piece, self.pieces


_head_decoder = msgspec.json.Decoder(RangeHead)


def encode(record: WindowRecord) -> bytes:
    """The message's bytes."""
    return _encoder.encode(record)


def head(message: bytes) -> RangeHead:
    """The range of a record, many times faster than the record; raises as ``decode``."""
    found = decode_with(_head_decoder, message)
    check_schema(found.schema_version, 1, SCHEMA_VERSION)
    return found


def decode(message: bytes) -> WindowRecord:
    """The record in a message.

    Raises:
        UnknownSchemaError: another schema version.
        msgspec.DecodeError: not such a message at all.
    """
    head(message)
    return decode_with(_decoder, message)
