"""The way of one request, from top to bottom.

``Handler.predict``: admit, route, tokenise, batch by length, infer, decode, answer, record. It is
the ``Predictor`` of every dialect and the only place that turns a call into attempts. It parses
nothing, renders nothing and never waits for the event stream.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from http import HTTPStatus
from time import monotonic
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from contracts.endpoint import Arm
from contracts.events import Latency, PredictionEvent, TextRecord
from gateway.admission import TokenBudget, check_size, check_wait
from gateway.caller import caller_hash
from gateway.calls import Answer, Call, EndpointView
from gateway.errors import (
    DeadlineExceededError,
    GatewayError,
    InvalidInputError,
    ModelUnavailableError,
    OverloadedError,
    ShuttingDownError,
    UnknownEndpointError,
)
from gateway.lanes import RETRY_AFTER_SECONDS, Job, Lane
from gateway.metrics import Metrics
from gateway.packages import ServedModel
from gateway.recording import Recorder
from gateway.repeats import first_deadline, usual_seconds
from gateway.routing import EndpointRoutes, RoutingTable, Shadow, Way
from gateway.shadow import Answered, Shadows
from gateway.tracing import trace_id
from preprocess.encoder import Encoded
from preprocess.errors import InvalidTextError
from preprocess.observe import answered as answered_records
from preprocess.observe import unanswered as unanswered_records

# Characters of a request above which tokenising leaves the event loop: below, the way to a thread
# and back costs more than it spares the others.
INLINE_CHARACTERS = 8_192
_MOST_THREADED_CHARACTERS = 32 * 1024 * 1024  # that wait for the tokenising thread or are in it
_CLIENT_GONE = 499  # as nginx says it: the caller hung up before the answer


class Rates(Protocol):
    """Requests a second for each caller."""

    def check(
        self, caller: str | None, endpoint: str, per_second: float | None, now: float
    ) -> None:
        """Counts a request; raises ``RateLimitedError`` where it is one too many."""
        ...


class Tracer(Protocol):
    """Where spans go, when tracing is configured."""

    def attempt(self, call: Call, event: PredictionEvent) -> None:
        """One attempt with the time of its stages."""
        ...


@dataclass(frozen=True, slots=True)
class Serving:
    """What is served now, swapped in whole.

    ``lanes`` are by package id. ``complete``: every stable version's package was opened, or tried.
    """

    table: RoutingTable
    lanes: Mapping[str, Lane]
    views: Mapping[str, EndpointView]
    complete: bool = False


@dataclass(slots=True)
class _Attempt:
    """One try of a call on one version, with what its event needs."""

    call: Call
    way: Way
    encoded: Encoded
    began: float  # the handler's start, loop clock
    tokenise: float
    job: Job | None = None
    repeated: bool = False  # another version's attempt has failed before


class Handler:
    """Answers calls from whatever ``serve`` was last given.

    Args:
        recorder: hears of every attempt and refusal.
        metrics: counts them.
        rates: requests a second for each caller.
        budget: tokens in flight.
        tracer: None for no spans, at no cost.
        shadows: takes copies of requests for versions on trial; None for none.
    """

    def __init__(
        self,
        recorder: Recorder,
        metrics: Metrics,
        rates: Rates,
        budget: TokenBudget,
        tracer: Tracer | None = None,
        *,
        shadows: Shadows | None = None,
    ) -> None:
        self._recorder = recorder
        self._metrics = metrics
        self._rates = rates
        self._budget = budget
        self._tracer = tracer
        self._shadows = shadows
        self._serving = Serving(RoutingTable(), {}, {})
        self._told = False
        self._draining = False
        self._closed = False
        self._running = 0
        self._last_one = asyncio.Event()
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="tokenise")
        self._threaded_characters = 0

    # What the dialects ask.

    async def predict(self, call: Call) -> Answer:
        """See ``Predictor.predict``."""
        began = monotonic()
        serving = self._serving
        routes = serving.table[call.endpoint]
        self._running += 1
        try:
            try:
                way, lane = self._admit(serving, routes, call, began)
                encoded, tokenise = self._encode_here(
                    way.model, call
                ) or await self._encode_in_thread(way.model, call)
                tokens = sum(encoded.tokens)
                lane.learn_length(sum(map(len, call.texts)), tokens)
                if call.deadline <= monotonic():
                    raise _too_late()
                limits = routes.endpoint.spec.limits
                self._budget.reserve(call.endpoint, tokens, limits.max_tokens_in_flight)
            except GatewayError as error:
                self._refused(call, int(error.status), error.code)
                raise
            except asyncio.CancelledError:
                self._refused(call, _CLIENT_GONE, "client_gone")
                raise
            except Exception:
                self._refused(call, int(HTTPStatus.INTERNAL_SERVER_ERROR), "internal")
                raise
            try:
                attempt = _Attempt(call, way, encoded, began, tokenise)
                return await self._attempt(serving, routes, lane, attempt)
            finally:
                self._budget.release(call.endpoint, tokens)
        finally:
            self._running -= 1
            if self._closed and self._running == 0:
                self._last_one.set()

    def check_room(self, endpoint: str, ahead: int = 0) -> None:
        """See ``Predictor.check_room``."""
        serving = self._serving
        routes = serving.table[endpoint]
        self._check_open()
        limits = routes.endpoint.spec.limits
        self._budget.check_arrival(endpoint, ahead, limits.max_tokens_in_flight)
        stable = routes.stable
        lane = None if stable is None else serving.lanes.get(stable.model.ref.package)
        if lane is not None:
            check_wait(lane.wait_seconds(endpoint), 0.0, limits.timeout_seconds)

    def describe(self, endpoint: str) -> EndpointView:
        """See ``Predictor.describe``."""
        view = self._serving.views.get(endpoint)
        if view is None:
            raise UnknownEndpointError(f"There is no endpoint {endpoint[:80]!r}.")
        ready = self._serves(endpoint)
        return view if view.ready == ready else replace(view, ready=ready)

    def endpoints(self) -> tuple[str, ...]:
        """See ``Predictor.endpoints``."""
        return tuple(name for name, view in self._serving.views.items() if view.refs)

    @property
    def ready(self) -> bool:
        """See ``Predictor.ready``: it has once had all that it was told to serve.

        A Triton that is away does not make a gateway unready: another one would have none either.
        """
        return self._told and not self._draining

    # What the process tells it.

    @property
    def serving(self) -> Serving:
        """What is served now."""
        return self._serving

    def serve(self, serving: Serving) -> None:
        """Takes a new table; requests on their way keep the packages that they began with."""
        self._serving = serving
        self._told = self._told or serving.complete

    def stop_being_ready(self) -> None:
        """Asks load balancers to look elsewhere; what comes all the same is answered."""
        self._draining = True

    async def drained(self) -> None:
        """Refuses what comes from now on, and waits until no request is on its way."""
        self._closed = True
        if self._running:
            await self._last_one.wait()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # The steps.

    def _admit(
        self, serving: Serving, routes: EndpointRoutes, call: Call, now: float
    ) -> tuple[Way, Lane]:
        """Refuses what can be refused before any work; else the request's way."""
        self._check_open()
        limits = routes.endpoint.spec.limits
        self._rates.check(call.caller, call.endpoint, limits.requests_per_second_per_key, now)
        check_size(call.texts, limits)
        way = routes.choose(call.sticky_key or call.request_id, call.forced_version)
        lane = serving.lanes.get(way.model.ref.package)
        if lane is None or not lane.serves:
            stable = routes.stable
            if way.arm is not Arm.CANARY or stable is None:
                raise _unavailable()
            way = stable
            lane = serving.lanes.get(way.model.ref.package)
            if lane is None or not lane.serves:
                raise _unavailable()
        left = call.deadline - now
        if left <= 0:
            raise _too_late()
        texts, characters = len(call.texts), sum(map(len, call.texts))
        tokens = lane.likely_tokens(texts, characters)
        self._budget.check_estimate(call.endpoint, texts * tokens, limits.max_tokens_in_flight)
        wait = lane.wait_seconds(call.endpoint)
        if wait > 0:
            check_wait(wait, texts * lane.work_seconds((tokens,)), left)
        return way, lane

    def _check_open(self) -> None:
        if self._closed:
            raise ShuttingDownError(
                "This gateway is going away; ask again.", retry_after_seconds=RETRY_AFTER_SECONDS
            )

    def _encode_here(self, model: ServedModel, call: Call) -> tuple[Encoded, float] | None:
        """The call's tokens and the seconds that it took; None if its texts are too long for here.

        Raises:
            InvalidInputError: a text that no tokeniser can read.
        """
        characters = sum(map(len, call.texts))
        if characters > INLINE_CHARACTERS or call.pairs is not None:
            characters += sum(map(len, call.pairs or ()))
            if characters > INLINE_CHARACTERS:
                return None
        start = monotonic()
        try:
            encoded = model.encoder.encode(call.texts, call.pairs)
        except InvalidTextError as error:
            raise InvalidInputError(f"{error}.") from error
        return encoded, monotonic() - start

    async def _encode_in_thread(self, model: ServedModel, call: Call) -> tuple[Encoded, float]:
        """The same for long texts, which leave the event loop to the others.

        Raises:
            InvalidInputError: a text that no tokeniser can read.
            OverloadedError: too much of it waits already.
            DeadlineExceededError: it did not get done in time.
        """
        characters = sum(map(len, call.texts)) + sum(map(len, call.pairs or ()))
        if self._threaded_characters + characters > _MOST_THREADED_CHARACTERS:
            raise OverloadedError(
                "Too many long texts are waiting.", retry_after_seconds=RETRY_AFTER_SECONDS
            )
        start = monotonic()
        self._threaded_characters += characters
        work = self._threads.submit(model.encoder.encode, call.texts, call.pairs)
        # Counted until the thread is done with it, not until the caller has lost patience.
        loop = asyncio.get_running_loop()
        work.add_done_callback(lambda _: loop.call_soon_threadsafe(self._thread_done, characters))
        try:
            async with asyncio.timeout(max(0.0, call.deadline - start)):
                encoded = await asyncio.wrap_future(work)
        except TimeoutError as error:
            raise _too_late() from error
        except InvalidTextError as error:
            raise InvalidInputError(f"{error}.") from error
        return encoded, monotonic() - start

    def _thread_done(self, characters: int) -> None:
        self._threaded_characters -= characters

    async def _attempt(
        self, serving: Serving, routes: EndpointRoutes, lane: Lane, attempt: _Attempt
    ) -> Answer:
        """Tries the chosen version; what one on trial fails at, another one makes good."""
        call = attempt.call
        second = self._second(serving, routes, attempt)
        deadline = call.deadline
        if second is not None:
            usual = usual_seconds(second[1], call.endpoint, attempt.encoded.tokens)
            deadline = first_deadline(monotonic(), deadline, usual)
        try:
            values = await self._infer(lane, attempt, deadline)
        except asyncio.CancelledError:
            self._failed(attempt, _CLIENT_GONE, answered=True)
            raise
        except Exception as error:
            # Not a GatewayError: a mistake of ours; the front logs it and answers 500.
            if second is None or monotonic() >= call.deadline:
                self._failed(attempt, _status(error), answered=True)
                raise
            way, lane = second
            again = await self._again(attempt, way, error)
        else:
            answer = self._answer(attempt, values)
            if routes.shadow is not None:
                self._copy(serving, routes, routes.shadow, attempt, values)
            return answer
        return await self._attempt(serving, routes, lane, again)

    def _copy(
        self,
        serving: Serving,
        routes: EndpointRoutes,
        shadow: Shadow,
        attempt: _Attempt,
        values: NDArray[np.float32],
    ) -> None:
        """Leaves a copy of what stable has answered, for a version on trial."""
        job = attempt.job
        if self._shadows is None or job is None or attempt.way.arm is not Arm.STABLE:
            return
        model, seconds = attempt.way.model, attempt.tokenise + job.wait + job.infer
        answered = Answered(attempt.call, model, attempt.encoded, values, attempt.tokenise, seconds)
        timeout = routes.endpoint.spec.limits.timeout_seconds
        self._shadows.offer(shadow, answered, serving.lanes, timeout)

    async def _again(self, attempt: _Attempt, way: Way, error: Exception) -> _Attempt:
        """The same call for another version, with that version's tokens; records the failure.

        Raises:
            Exception: ``error`` itself, where there is no second attempt in it.
        """
        call, encoded, tokenise = attempt.call, attempt.encoded, attempt.tokenise
        if not way.model.encodes_like(attempt.way.model):
            try:
                encoded, tokenise = self._encode_here(
                    way.model, call
                ) or await self._encode_in_thread(way.model, call)
            except asyncio.CancelledError:
                self._failed(attempt, _CLIENT_GONE, answered=True)
                raise
            except GatewayError:
                self._failed(attempt, _status(error), answered=True)
                raise error from None
        self._failed(attempt, _status(error), answered=False)
        return _Attempt(call, way, encoded, attempt.began, tokenise, repeated=True)

    def _second(
        self, serving: Serving, routes: EndpointRoutes, attempt: _Attempt
    ) -> tuple[Way, Lane] | None:
        """Who answers if this attempt fails."""
        if attempt.repeated or len(routes.ways) < 2:
            return None
        way = routes.instead_of(attempt.way)
        lane = None if way is None else serving.lanes.get(way.model.ref.package)
        return (way, lane) if way is not None and lane is not None and lane.serves else None

    async def _infer(self, lane: Lane, attempt: _Attempt, deadline: float) -> NDArray[np.float32]:
        """The values of all texts, by the deadline."""
        job = attempt.job = lane.submit(attempt.encoded, attempt.call.endpoint, deadline)
        try:
            return await job.future
        except asyncio.CancelledError:
            lane.abandon(job)
            raise

    # The ends.

    def _answer(self, attempt: _Attempt, values: NDArray[np.float32]) -> Answer:
        model, encoded = attempt.way.model, attempt.encoded
        manifest = model.manifest
        records = answered_records(encoded, manifest.task, values, manifest.labels)
        self._record(attempt, int(HTTPStatus.OK), records, answered=True)
        return Answer(
            task=manifest.task,
            ref=model.ref,
            arm=attempt.way.arm,
            values=values,
            tokens=encoded.tokens,
            truncated=encoded.truncated,
            labels=manifest.labels,
            multi_label=manifest.multi_label,
        )

    def _failed(self, attempt: _Attempt, status: int, *, answered: bool) -> None:
        self._record(attempt, status, unanswered_records(attempt.encoded), answered=answered)

    def _refused(self, call: Call, status: int, reason: str) -> None:
        self._recorder.refusal(call.endpoint, status, reason)
        self._metrics.refused(call.endpoint, status, reason, monotonic() - call.started)

    def _record(
        self, attempt: _Attempt, status: int, records: list[TextRecord], *, answered: bool
    ) -> None:
        call, job, ref = attempt.call, attempt.job, attempt.way.model.ref
        event = PredictionEvent(
            request_id=call.request_id,
            time=call.received,
            endpoint=call.endpoint,
            version=ref.version,
            package=ref.package,
            arm=attempt.way.arm,
            status=status,
            answered=answered,
            latency=Latency(
                queue=max(0.0, attempt.began - call.started),
                tokenise=attempt.tokenise,
                wait=job.wait if job is not None else 0.0,
                infer=job.infer if job is not None else 0.0,
                total=max(0.0, monotonic() - call.started),
            ),
            texts=records,
            trace_id=trace_id(call.trace_parent),
            caller=caller_hash(call.endpoint, call.sticky_key),
            repeated=attempt.repeated,
        )
        self._recorder.attempt(event)
        self._metrics.attempt_finished(event, len(records), sum(attempt.encoded.tokens))
        if self._tracer is not None:
            self._tracer.attempt(call, event)

    def _serves(self, endpoint: str) -> bool:
        stable = self._serving.table[endpoint].stable
        if stable is None or self._draining:
            return False
        lane = self._serving.lanes.get(stable.model.ref.package)
        return lane is not None and lane.serves


def _status(error: Exception) -> int:
    return int(getattr(error, "status", HTTPStatus.INTERNAL_SERVER_ERROR))


def _unavailable() -> ModelUnavailableError:
    return ModelUnavailableError(
        "No Triton serves this version at the moment.", retry_after_seconds=RETRY_AFTER_SECONDS
    )


def _too_late() -> DeadlineExceededError:
    return DeadlineExceededError("The answer did not come within the time limit.")
