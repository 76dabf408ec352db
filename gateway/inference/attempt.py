"""One attempt at a call on one version, and the event that tells of it. No I/O."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.events import Latency, Pairing, PredictionEvent, TextRecord
from gateway.batching.jobs import Job
from gateway.calls import Call
from gateway.packages import ServedModel
from gateway.routing.routes import RouteTarget, position
from gateway.telemetry.tracing import trace_id
from preprocess.encoder import Encoded

# Bounds on the unknown words of one event, so that no request can hold up the event loop: a list of
# the most frequent words needs a sample of them, not each.
MOST_WORDS = 32
MOST_CHARACTERS = 8_192  # of the texts that are looked at; those without an unknown word are not
LONGEST_WORD = 40  # characters; the rest of a word is cut off


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """A request that stable has answered, with what a mirrored copy of it needs."""

    call: Call
    model: ServedModel
    encoded: Encoded
    values: NDArray[np.float32]
    tokenise: float  # seconds
    seconds: float  # tokenise + wait + infer


@dataclass(slots=True)
class Attempt:
    """One attempt at a call on one version, with what its event needs."""

    call: Call
    target: RouteTarget
    encoded: Encoded
    tokenise: float  # seconds
    queue: float = 0.0  # seconds before it was begun
    job: Job | None = None
    repeated: bool = False  # another version's attempt has failed before


def event_of(
    attempt: Attempt,
    status: int,
    texts: list[TextRecord],
    *,
    answered: bool,
    total: float | None = None,
    pairing: Pairing | None = None,
) -> PredictionEvent:
    """What is told of an attempt.

    Args:
        attempt: at its end.
        status: HTTP's.
        texts: a record of each.
        answered: whether its caller got this.
        total: seconds since the request arrived; None for those of the stages, as of a copy.
        pairing: of a copy that was answered.
    """
    call, job, model = attempt.call, attempt.job, attempt.target.model
    wait, infer = (0.0, 0.0) if job is None else (job.wait, job.infer)
    if total is None:
        total = attempt.tokenise + wait + infer
    return PredictionEvent(
        request_id=call.request_id,
        time=call.received,
        endpoint=call.endpoint,
        version=model.ref.version,
        package=model.ref.package,
        arm=attempt.target.arm,
        status=status,
        answered=answered,
        latency=Latency(attempt.queue, attempt.tokenise, wait, infer, total),
        texts=texts,
        trace_id=trace_id(call.trace_parent),
        caller=caller_hash(call.endpoint, call.sticky_key),
        repeated=attempt.repeated,
        pairing=pairing,
        observations=call.observed or {},
        unk_words=_unknown_words(call, model, attempt.encoded),
    )


def caller_hash(endpoint: str, sticky_key: str | None) -> int:
    """64 bits that tell callers apart and name nobody; 0 where no sticky key was sent.

    Requests without ``x-headrace-key`` are spread over the arms one by one, so that none of them
    weighs more than another: whoever sent them, under whatever API key, need not be known. The
    hash of a caller is the same in every rollout of an endpoint, and another one in each endpoint.
    """
    if sticky_key is None:
        return 0
    return position(f"{endpoint}/caller", sticky_key)


def _unknown_words(call: Call, model: ServedModel, encoded: Encoded) -> list[str]:
    """Some of the words that became UNK, as they were written, where the endpoint asks for them.

    Args:
        call: says whether its endpoint asks.
        model: whose tokeniser made ``encoded``.
        encoded: the call's texts.
    """
    if not call.unk_words:
        return []
    found: list[str] = []
    left = MOST_CHARACTERS
    for row, unk in enumerate(encoded.unk):
        if len(found) >= MOST_WORDS:
            break
        text, pair = call.texts[row], None if call.pairs is None else call.pairs[row]
        characters = len(text) + len(pair or "")
        if unk and characters <= left:
            left -= characters
            found += model.encoder.unknown_words(text, pair)
    return [word[:LONGEST_WORD] for word in found[:MOST_WORDS]]
