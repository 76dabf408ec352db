"""One attempt at a call on one version, and the event that tells of it. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

import numpy as np
from numpy.typing import NDArray

from contracts.events import Latency, Pairing, PredictionEvent, TextRecord
from gateway.batching.jobs import Job
from gateway.calls import Call
from gateway.errors import GatewayError
from gateway.packages import ServedModel
from gateway.routing.routes import RouteTarget
from gateway.telemetry.tracing import trace_id
from preprocess.encoder import EncodedTexts
from preprocess.hooks import Observed
from preprocess.unknown import unknown_words_of

# Bounds on the hashed tokens of one event.
MOST_TOPICS = 64
TOPICS_A_TEXT = 4


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """A request that stable has answered, or has failed at, with what is needed to mirror it."""

    call: Call
    model: ServedModel
    encoded: EncodedTexts
    values: NDArray[np.float32] | None  # None: the attempt failed
    tokenise: float  # seconds
    seconds: float  # tokenise + wait + infer
    written: int = 0  # tokens of a text that was written; then ``seconds`` are of all of it
    status: int = int(HTTPStatus.OK)  # of the attempt

    @property
    def compared_seconds(self) -> float:
        """What versions are compared by; see ``measures.folding``."""
        return self.seconds / max(1, self.written)


@dataclass(slots=True)
class Attempt:
    """One attempt at a call on one version, with what its event needs.

    Attributes:
        call: as the version's own code leaves it, which is what ``encoded`` is of.
        original: the call as it came to the version, for another version.
        tokenise: seconds, of users' own code too.
        failure: of the version's own code, before anything was inferred.
    """

    call: Call
    target: RouteTarget
    encoded: EncodedTexts
    tokenise: float
    queue: float = 0.0  # seconds from the request's arrival to the pipeline
    job: Job | None = None
    repeated: bool = False  # another version's attempt has failed before
    waits: bool = True  # for a Triton to come back; false if another version answers
    cached: int = 0  # texts that were not inferred for it
    original: Call | None = None  # None: ``call`` itself
    failure: GatewayError | None = None
    observed: Observed | None = None  # of the call and its answer; None for the call's alone
    answers: dict[str, list[float | str]] | None = None  # counted of them like features of rows
    vectors: bytes = b""  # cells of the answer's vectors, where it has any
    stages: tuple[float, float] | None = None  # wait and infer, seconds, where there is no job


def event_of(
    attempt: Attempt,
    status: int,
    texts: list[TextRecord],
    *,
    answered: bool,
    total: float | None = None,
    pairing: Pairing | None = None,
) -> PredictionEvent:
    """The event of an attempt.

    Args:
        attempt: the attempt, which has ended.
        status: its HTTP status.
        texts: a record of each text.
        answered: whether it is the attempt whose result was the caller's.
        total: seconds since the request arrived; None for the sum of the stages, as for a
            mirrored request.
        pairing: how far a shadow's answer is from stable's.
    """
    call, job, model = attempt.call, attempt.job, attempt.target.model
    wait = infer = 0.0
    if job is not None:
        wait, infer = job.times
    elif attempt.stages is not None:
        wait, infer = attempt.stages
    if total is None:
        total = attempt.tokenise + wait + infer
    return PredictionEvent(
        request_id=call.request_id,
        time=call.received,
        endpoint=call.endpoint,
        version=model.ref.version,
        package=model.ref.package,
        space=model.ref.space,
        arm=attempt.target.arm,
        status=status,
        answered=answered,
        latency=Latency(attempt.queue, attempt.tokenise, wait, infer, total),
        texts=texts,
        trace_id=trace_id(call.trace_parent),
        caller=call.caller_hash,
        repeated=attempt.repeated,
        pairing=pairing,
        observations=_observations(attempt),
        unk_words=_unknown_words(call, model, attempt.encoded),
        cached=attempt.cached,
        topics=topics_of(_beginnings(attempt.encoded)),
        vectors=attempt.vectors,
    )


def _observations(attempt: Attempt) -> dict[str, list[float | str]]:
    """Values of features and answers, and of users' own statistics, which go before them."""
    own = attempt.observed or attempt.call.observed
    features, answers = attempt.encoded.observed, attempt.answers
    if features is None:
        return own or {}
    return {**(answers or {}), **features, **(own or {})}


def _beginnings(encoded: EncodedTexts) -> Sequence[Sequence[int]]:
    """The ids of each text's only or first row: so a long text counts as much as another.

    Of rows of tables none: they hold numbers in the place of tokens.
    """
    if encoded.observed is not None:
        return []
    windows = encoded.windows
    if windows is None:
        return encoded.ids
    return [row for row, start in zip(encoded.ids, windows.starts, strict=True) if start == 0]


def topics_of(ids: Sequence[Sequence[int]]) -> bytes:
    """Some of the tokens of a request's texts, each as its id modulo 256.

    At most ``MOST_TOPICS``, taken evenly from its texts and from each text's length, so that it
    takes as long for a book as for a sentence. They are sorted: of a text, no more than 32 bits
    leave the gateway. A text's first and last token are special ones, and left out.
    """
    texts = ids[:: -(-len(ids) // MOST_TOPICS)] if ids else ids
    most = max(1, min(TOPICS_A_TEXT, MOST_TOPICS // max(1, len(texts))))
    found: list[int] = []
    for row in texts:
        inner = len(row) - 2
        if inner > 0:
            step = -(-inner // most)
            found += row[1 + (step - 1) // 2 : 1 + inner : step]
    return bytes(sorted([token & 0xFF for token in found]))


def _unknown_words(call: Call, model: ServedModel, encoded: EncodedTexts) -> list[str]:
    """Some of the words that are unknown to the tokeniser, if the endpoint asks for them.

    A tokeniser in a process of its own has looked them up already.
    """
    if not call.unk_words:
        return []
    if encoded.unknown is not None or model.opened is None:
        return encoded.unknown or []
    return unknown_words_of(model.opened, call.texts, call.pairs, encoded)
