"""From an admitted call to its answer: attempts on versions, each recorded once.

``Attempts.answer`` is where ``Handler.predict`` goes once a call is admitted and tokenised: infer,
decode, record, answer. What a version on trial fails at, the one that stands in for it makes good,
once. It never waits for the event stream, nor for a copy of a request.
"""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from time import monotonic
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from contracts.endpoint import Arm
from contracts.events import PredictionEvent, TextRecord
from gateway.batching.batcher import Batcher
from gateway.calls import Answer, Call
from gateway.errors import CLIENT_GONE_STATUS, GatewayError
from gateway.events.recorder import Recorder
from gateway.inference.attempt import Answered, Attempt, event_of
from gateway.inference.encoding import Encoding
from gateway.inference.fallback_deadline import first_deadline, usual_seconds
from gateway.inference.receipts import Receipts
from gateway.routing.routes import EndpointRoutes, RouteTarget, Shadow
from gateway.telemetry.metrics import Metrics
from preprocess.observe import answered as answered_records
from preprocess.observe import unanswered as unanswered_records


class Tracer(Protocol):
    """Where spans go, when tracing is configured."""

    def attempt(self, call: Call, event: PredictionEvent) -> None:
        """One attempt with the time of its stages."""
        ...


class Mirror(Protocol):
    """Who copies answered requests for versions on trial."""

    def offer(
        self,
        shadow: Shadow,
        answered: Answered,
        batchers: Mapping[str, Batcher],
        timeout_seconds: float,
    ) -> None:
        """Takes a copy, or drops it and counts that; never waits, never raises."""
        ...


class Attempts:
    """Makes attempts and records them.

    Args:
        recorder: hears of every attempt.
        metrics: counts them.
        encoding: for a second version with another tokeniser.
        tracer: None for no spans, at no cost.
        shadows: takes copies of requests for versions on trial; None for none.
        receipts: sign what was answered; None where feedback is off.
    """

    def __init__(
        self,
        recorder: Recorder,
        metrics: Metrics,
        encoding: Encoding,
        *,
        tracer: Tracer | None = None,
        shadows: Mirror | None = None,
        receipts: Receipts | None = None,
    ) -> None:
        self._recorder = recorder
        self._metrics = metrics
        self._encoding = encoding
        self._tracer = tracer
        self._shadows = shadows
        self._receipts = receipts

    async def answer(
        self,
        batchers: Mapping[str, Batcher],
        routes: EndpointRoutes,
        batcher: Batcher,
        attempt: Attempt,
    ) -> Answer:
        """Tries the chosen version; what one on trial fails at, another one makes good."""
        call = attempt.call
        second = self._second(batchers, routes, attempt)
        deadline = call.deadline
        if second is not None:
            usual = usual_seconds(second[1], call.endpoint, attempt.encoded.tokens)
            deadline = first_deadline(monotonic(), deadline, usual)
        try:
            values = await self._infer(batcher, attempt, deadline)
        except asyncio.CancelledError:
            self._failed(attempt, CLIENT_GONE_STATUS, answered=True)
            raise
        except Exception as error:
            # Not a GatewayError: a mistake of ours; the front logs it and answers 500.
            if second is None or monotonic() >= call.deadline:
                self._failed(attempt, _status(error), answered=True)
                raise
            target, batcher = second
            again = await self._again(attempt, target, error)
        else:
            answer = self._answer(attempt, values)
            if routes.shadow is not None:
                self._copy(batchers, routes, routes.shadow, attempt, values)
            return answer
        return await self.answer(batchers, routes, batcher, again)

    def _copy(
        self,
        batchers: Mapping[str, Batcher],
        routes: EndpointRoutes,
        shadow: Shadow,
        attempt: Attempt,
        values: NDArray[np.float32],
    ) -> None:
        """Leaves a copy of what stable has answered, for a version on trial."""
        job = attempt.job
        if self._shadows is None or job is None or attempt.target.arm is not Arm.STABLE:
            return
        model, seconds = attempt.target.model, attempt.tokenise + job.wait + job.infer
        answered = Answered(attempt.call, model, attempt.encoded, values, attempt.tokenise, seconds)
        timeout = routes.endpoint.spec.limits.timeout_seconds
        self._shadows.offer(shadow, answered, batchers, timeout)

    async def _again(self, attempt: Attempt, target: RouteTarget, error: Exception) -> Attempt:
        """The same call for another version, with that version's tokens; records the failure.

        Raises:
            Exception: ``error`` itself, where there is no second attempt in it.
        """
        call, encoded, tokenise = attempt.call, attempt.encoded, attempt.tokenise
        if not target.model.encodes_like(attempt.target.model):
            try:
                encoded, tokenise = self._encoding.here(
                    target.model, call
                ) or await self._encoding.in_thread(target.model, call)
            except asyncio.CancelledError:
                self._failed(attempt, CLIENT_GONE_STATUS, answered=True)
                raise
            except GatewayError:
                self._failed(attempt, _status(error), answered=True)
                raise error from None
        self._failed(attempt, _status(error), answered=False)
        return Attempt(call, target, encoded, tokenise, attempt.queue, repeated=True)

    def _second(
        self, batchers: Mapping[str, Batcher], routes: EndpointRoutes, attempt: Attempt
    ) -> tuple[RouteTarget, Batcher] | None:
        """Who answers if this attempt fails."""
        if attempt.repeated or len(routes.targets) < 2:
            return None
        target = routes.instead_of(attempt.target)
        batcher = None if target is None else batchers.get(target.model.ref.package)
        return (
            (target, batcher)
            if target is not None and batcher is not None and batcher.serves
            else None
        )

    async def _infer(
        self, batcher: Batcher, attempt: Attempt, deadline: float
    ) -> NDArray[np.float32]:
        """The values of all texts, by the deadline."""
        job = attempt.job = batcher.submit(attempt.encoded, attempt.call.endpoint, deadline)
        try:
            return await job.future
        except asyncio.CancelledError:
            batcher.abandon(job)
            raise

    # The ends.

    def _answer(self, attempt: Attempt, values: NDArray[np.float32]) -> Answer:
        model, encoded = attempt.target.model, attempt.encoded
        manifest = model.manifest
        records = answered_records(encoded, manifest.task, values, manifest.labels)
        event = self._record(attempt, int(HTTPStatus.OK), records, answered=True)
        return Answer(
            task=manifest.task,
            ref=model.ref,
            arm=attempt.target.arm,
            values=values,
            tokens=encoded.tokens,
            truncated=encoded.truncated,
            labels=manifest.labels,
            multi_label=manifest.multi_label,
            receipt="" if self._receipts is None else self._receipts.issue(event),
        )

    def _failed(self, attempt: Attempt, status: int, *, answered: bool) -> None:
        self._record(attempt, status, unanswered_records(attempt.encoded), answered=answered)

    def _record(
        self, attempt: Attempt, status: int, records: list[TextRecord], *, answered: bool
    ) -> PredictionEvent:
        total = max(0.0, monotonic() - attempt.call.started)
        event = event_of(attempt, status, records, answered=answered, total=total)
        self._recorder.attempt(event)
        self._metrics.attempt_finished(event, len(records), sum(attempt.encoded.tokens))
        if self._tracer is not None:
            self._tracer.attempt(attempt.call, event)
        return event


def _status(error: Exception) -> int:
    return int(getattr(error, "status", HTTPStatus.INTERNAL_SERVER_ERROR))
