"""The way of one request through the gateway, from its call to its answer.

Read ``Pipeline.predict`` downward. The dialect has parsed the request, and admission has identified
its caller and let it begin (``AdmissionController.enter``). Here it is admitted by what it holds,
routed to a version, encoded, batched and inferred; its answer is decoded, recorded and returned.
Where a version on trial fails, the one that stands in for it answers, once. A request never waits
for the event stream, nor for a mirrored copy of itself.
"""

import asyncio
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from time import monotonic
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from contracts.endpoint import Arm
from contracts.events import PredictionEvent, TextRecord
from gateway.admission.controller import AdmissionController
from gateway.batching.batcher import Batcher
from gateway.calls import Answer, Call
from gateway.errors import CLIENT_GONE_STATUS, GatewayError
from gateway.events.buffer import Recorder
from gateway.inference.attempt import Answered, Attempt, event_of
from gateway.inference.encoding import Encoding
from gateway.inference.observations import Hooks
from gateway.inference.receipts import Receipts
from gateway.inference.serving import ServedEndpoints, Serving
from gateway.routing.routes import EndpointRoutes, RouteTarget, Shadow
from gateway.telemetry.metrics import Metrics
from preprocess.observe import answered as answered_records
from preprocess.observe import unanswered as unanswered_records

# What is kept of a request's time for the version that stands in for one on trial.
_RESERVED_MARGIN = 2.0  # times the usual, because estimates are of typical batches
_LEAST_RESERVED_SECONDS = 0.05  # for what an attempt costs beside the engine, on a busy gateway
# A version on trial that had less than the rest of the time could not be judged by its answers.
# Where more than this share would have to be kept, it gets all the time, and nobody stands in.
_MOST_RESERVED = 0.5


class Tracer(Protocol):
    """Where spans go, when tracing is configured."""

    def attempt(self, call: Call, event: PredictionEvent) -> None:
        """One attempt with the time of its stages."""
        ...


class Mirror(Protocol):
    """Who takes copies of requests for a version on trial."""

    def offer(
        self,
        shadow: Shadow,
        answered: Answered,
        batchers: Mapping[str, Batcher],
        timeout_seconds: float,
    ) -> None:
        """Takes a request that stable has answered, or drops it; never waits."""
        ...


class Pipeline:
    """Answers the calls of one process. It is the ``Predictor`` of every dialect.

    Args:
        endpoints: what is served.
        admission: decides what comes in.
        recorder: hears of every attempt.
        metrics: counts them.
        tracer: None for no spans, at no cost.
        mirror: takes copies of requests for versions on trial; None for none.
        receipts: sign what was answered; None where feedback is off.
        hooks: users' own preprocessing; None where none is installed.
    """

    def __init__(
        self,
        endpoints: ServedEndpoints,
        admission: AdmissionController,
        recorder: Recorder,
        metrics: Metrics,
        tracer: Tracer | None = None,
        *,
        mirror: Mirror | None = None,
        receipts: Receipts | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._admission = admission
        self._recorder = recorder
        self._metrics = metrics
        self._tracer = tracer
        self._mirror = mirror
        self._receipts = receipts
        self._hooks = hooks
        self._encoding = Encoding()
        self._running = 0
        self._last_one: asyncio.Event | None = None

    async def predict(self, call: Call) -> Answer:
        """See ``Predictor.predict``."""
        began = monotonic()
        serving = self._endpoints.serving  # the same to the end, whatever is swapped in meanwhile
        routes = serving.table[call.endpoint]
        limits = routes.endpoint.spec.limits
        self._running += 1
        try:
            try:
                self._admission.check_body(call, limits, began)
                target, batcher = self._route(serving, routes, call, began)
                if self._hooks is not None:
                    call = self._hooks.run(call)
                if routes.endpoint.spec.unk_words.enabled:
                    call = msgspec.structs.replace(call, unk_words=True)
                encoded, tokenise = self._encoding.here(
                    target.model, call
                ) or await self._encoding.in_thread(target.model, call)
                tokens = sum(encoded.tokens)
                batcher.learn_length(sum(map(len, call.texts)), tokens)
                self._admission.reserve(call, tokens, limits)
            except (Exception, asyncio.CancelledError) as error:
                self._admission.refused_call(call, error)
                raise
            try:
                attempt = Attempt(call, target, encoded, tokenise, max(0.0, began - call.started))
                return await self._answer(serving, routes, batcher, attempt)
            finally:
                self._admission.release(call, tokens)
        finally:
            self._running -= 1
            if self._last_one is not None and self._running == 0:
                self._last_one.set()

    def tokens_in_flight(self) -> dict[str, int]:
        """Of each endpoint that is served, 0 included, and of any other that has some yet."""
        served = dict.fromkeys(self._endpoints.serving.table.endpoints, 0)
        return served | self._admission.tokens_in_flight()

    async def drained(self) -> None:
        """Has admission refuse what comes from now on; waits until no request is on its way."""
        self._admission.close()
        self._last_one = asyncio.Event()
        if self._running:
            await self._last_one.wait()
        self._encoding.close()

    def _route(
        self, serving: Serving, routes: EndpointRoutes, call: Call, now: float
    ) -> tuple[RouteTarget, Batcher]:
        """The version that answers: the caller's own, or the one that stands in if it has room."""
        key = call.sticky_key or call.request_id
        targets = routes.targets_of(key, call.forced_version)
        batchers = [serving.batchers.get(target.model.ref.package) for target in targets]
        limits = routes.endpoint.spec.limits
        place, batcher = self._admission.arm_with_room(call, limits, batchers, now)
        return targets[place], batcher

    async def _answer(
        self, serving: Serving, routes: EndpointRoutes, batcher: Batcher, attempt: Attempt
    ) -> Answer:
        """Attempts the version; where it fails on trial, the one that stands in for it, once."""
        call = attempt.call
        fallback = self._fallback(serving, routes, attempt)
        deadline = call.deadline
        if fallback is not None:
            usual = _usual_seconds(fallback[1], call.endpoint, attempt.encoded.tokens)
            deadline = fallback_deadline(monotonic(), deadline, usual)
        try:
            values = await self._infer(batcher, attempt, deadline)
        except asyncio.CancelledError:
            self._failed(attempt, CLIENT_GONE_STATUS, answered=True)
            raise
        except Exception as error:
            # One that is no GatewayError is a bug; the dialect's side logs it and answers 500.
            if fallback is None or monotonic() >= call.deadline:
                self._failed(attempt, _status(error), answered=True)
                raise
            target, batcher = fallback
            second = await self._encoded_again(attempt, target, error)
        else:
            answer = self._answered(attempt, values)
            if routes.shadow is not None:
                self._copy(serving, routes, routes.shadow, attempt, values)
            return answer
        return await self._answer(serving, routes, batcher, second)

    async def _infer(
        self, batcher: Batcher, attempt: Attempt, deadline: float
    ) -> NDArray[np.float32]:
        """The decoded values of all texts, by the deadline, from batches shared with others."""
        job = attempt.job = batcher.submit(attempt.encoded, attempt.call.endpoint, deadline)
        try:
            return await job.future
        except asyncio.CancelledError:
            batcher.abandon(job)
            raise

    def _answered(self, attempt: Attempt, values: NDArray[np.float32]) -> Answer:
        """The answer, whose attempt is recorded."""
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

    def _copy(
        self,
        serving: Serving,
        routes: EndpointRoutes,
        shadow: Shadow,
        attempt: Attempt,
        values: NDArray[np.float32],
    ) -> None:
        """Offers what stable has answered for a copy to a version on trial."""
        job = attempt.job
        if self._mirror is None or job is None or attempt.target.arm is not Arm.STABLE:
            return
        model, seconds = attempt.target.model, attempt.tokenise + job.wait + job.infer
        answered = Answered(attempt.call, model, attempt.encoded, values, attempt.tokenise, seconds)
        timeout = routes.endpoint.spec.limits.timeout_seconds
        self._mirror.offer(shadow, answered, serving.batchers, timeout)

    # Where a version on trial fails.

    def _fallback(
        self, serving: Serving, routes: EndpointRoutes, attempt: Attempt
    ) -> tuple[RouteTarget, Batcher] | None:
        """Who answers if this attempt fails."""
        if attempt.repeated or len(routes.targets) < 2:
            return None
        target = routes.instead_of(attempt.target)
        batcher = None if target is None else serving.batchers.get(target.model.ref.package)
        if target is None or batcher is None or not batcher.serves:
            return None
        return target, batcher

    async def _encoded_again(
        self, attempt: Attempt, target: RouteTarget, error: Exception
    ) -> Attempt:
        """The same call for another version, in that version's tokens; records the failure.

        Raises:
            Exception: ``error`` itself, where the texts can't be encoded for the other version.
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

    def _failed(self, attempt: Attempt, status: int, *, answered: bool) -> None:
        self._record(attempt, status, unanswered_records(attempt.encoded), answered=answered)


def fallback_deadline(now: float, deadline: float, usual: float) -> float:
    """When to give up on a version on trial, so that the one that stands in can still answer.

    Args:
        now: the event loop's clock, seconds.
        deadline: the caller's, by the same clock.
        usual: seconds that the version that stands in usually takes.
    """
    reserved = max(_LEAST_RESERVED_SECONDS, _RESERVED_MARGIN * usual)
    if reserved > _MOST_RESERVED * (deadline - now):
        return deadline
    return deadline - reserved


def _usual_seconds(batcher: Batcher, flow: str, tokens: Sequence[int]) -> float:
    """What texts of so many tokens would take from now on: their wait, and their batches."""
    # In another version's tokens they may be longer than this one's rows.
    longest = batcher.model.buckets[-1]
    rows = [min(count, longest) for count in tokens]
    bucket = batcher.model.bucket_of(max(rows))
    batch = batcher.cost.seconds(bucket, batcher.cost.best_rows(bucket))
    return batcher.wait_seconds(flow) + max(batch, batcher.work_seconds(rows))


def _status(error: Exception) -> int:
    return int(getattr(error, "status", HTTPStatus.INTERNAL_SERVER_ERROR))
