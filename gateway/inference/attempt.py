"""One try of a call on one version, and the event that is left of it.

Callers wait for most attempts; for those of mirrored requests nobody does. No I/O.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.events import Latency, Pairing, PredictionEvent, TextRecord
from gateway.batching.jobs import Job
from gateway.calls import Call
from gateway.inference import unknown
from gateway.inference.caller import caller_hash
from gateway.packages import ServedModel
from gateway.routing.routes import RouteTarget
from gateway.telemetry.tracing import trace_id
from preprocess.encoder import Encoded


@dataclass(frozen=True, slots=True)
class Answered:
    """A request that stable has answered, with what a mirrored copy of it needs."""

    call: Call
    model: ServedModel
    encoded: Encoded
    values: NDArray[np.float32]
    tokenise: float  # seconds
    seconds: float  # tokenise + wait + infer


@dataclass(slots=True)
class Attempt:
    """One try of a call on one version, with what its event needs."""

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
        unk_words=unknown.words_of(call, model, attempt.encoded),
    )
