"""The way of one request, from top to bottom.

``Handler.predict``: admit, route, tokenise, and on to ``attempts.py``, which infers, answers and
records. It is the ``Predictor`` of every dialect. It parses nothing, renders nothing and never
waits for the event stream.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from time import monotonic
from typing import Protocol

import msgspec

from contracts.endpoint import Limits
from gateway.admission.token_budget import TokenBudget, check_size, check_wait
from gateway.batching.batcher import Batcher
from gateway.calls import Answer, Arrival, Call, EndpointView
from gateway.errors import (
    CLIENT_GONE_STATUS,
    RETRY_AFTER_SECONDS,
    GatewayError,
    ModelUnavailableError,
    OverloadedError,
    ShuttingDownError,
    StartingError,
    UnknownEndpointError,
    UnknownVersionError,
    no_triton,
    too_late,
)
from gateway.events.recorder import Recorder
from gateway.inference.attempt import Attempt
from gateway.inference.attempts import Attempts, Mirror, Tracer
from gateway.inference.encoding import Encoding
from gateway.inference.observations import Hooks
from gateway.inference.receipts import Receipts
from gateway.routing.routes import EndpointRoutes, RouteTarget, RoutingTable
from gateway.telemetry.metrics import Metrics


class Rates(Protocol):
    """Requests a second for each caller."""

    def check(
        self, caller: str | None, endpoint: str, per_second: float | None, now: float
    ) -> None:
        """Counts a request; raises ``RateLimitedError`` where it is one too many."""
        ...


@dataclass(frozen=True, slots=True)
class Serving:
    """What is served now, swapped in whole.

    ``batchers`` are by package id. ``complete``: every stable version's package was opened, or was
    tried for as long as others should wait for it. ``notes``: what is not as it should be, in
    sentences.
    """

    table: RoutingTable
    batchers: Mapping[str, Batcher]
    views: Mapping[str, EndpointView]
    complete: bool = False
    notes: tuple[str, ...] = ()


_NOTHING = Serving(RoutingTable(), {}, {})  # before the endpoints were read for the first time


class Handler:
    """Answers calls from whatever ``serve`` was last given.

    Args:
        recorder: hears of every attempt and refusal.
        metrics: counts them.
        rates: requests a second for each caller.
        budget: tokens in flight.
        tracer: None for no spans, at no cost.
        shadows: takes copies of requests for versions on trial; None for none.
        receipts: sign what was answered; None where feedback is off.
        hooks: users' own preprocessing; None where none is installed.
    """

    def __init__(
        self,
        recorder: Recorder,
        metrics: Metrics,
        rates: Rates,
        budget: TokenBudget,
        tracer: Tracer | None = None,
        *,
        shadows: Mirror | None = None,
        receipts: Receipts | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self._recorder = recorder
        self._metrics = metrics
        self._rates = rates
        self._budget = budget
        self._encoding = Encoding()
        self._attempts = Attempts(
            recorder,
            metrics,
            self._encoding,
            tracer=tracer,
            shadows=shadows,
            receipts=receipts,
        )
        self._hooks = hooks
        self._serving = _NOTHING
        self._told = False
        self._draining = False
        self._closed = False
        self._running = 0
        self._last_one = asyncio.Event()

    # What the dialects ask.

    async def predict(self, call: Call) -> Answer:
        """See ``Predictor.predict``."""
        began = monotonic()
        serving = self._serving
        routes = serving.table[call.endpoint]
        self._running += 1
        try:
            try:
                target, batcher = self._admit(serving, routes, call, began)
                if self._hooks is not None:
                    call = self._hooks.run(call)
                if routes.endpoint.spec.unk_words.enabled:
                    call = msgspec.structs.replace(call, unk_words=True)
                encoded, tokenise = self._encoding.here(
                    target.model, call
                ) or await self._encoding.in_thread(target.model, call)
                tokens = sum(encoded.tokens)
                batcher.learn_length(sum(map(len, call.texts)), tokens)
                if call.deadline <= monotonic():
                    raise too_late()
                limits = routes.endpoint.spec.limits
                self._budget.reserve(call.endpoint, tokens, limits.max_tokens_in_flight)
            except GatewayError as error:
                self._refused(call, int(error.status), error.code)
                raise
            except asyncio.CancelledError:
                self._refused(call, CLIENT_GONE_STATUS, "client_gone")
                raise
            except Exception:
                self._refused(call, int(HTTPStatus.INTERNAL_SERVER_ERROR), "internal")
                raise
            try:
                attempt = Attempt(call, target, encoded, tokenise, max(0.0, began - call.started))
                return await self._attempts.answer(serving.batchers, routes, batcher, attempt)
            finally:
                self._budget.release(call.endpoint, tokens)
        finally:
            self._running -= 1
            if self._closed and self._running == 0:
                self._last_one.set()

    def check_room(self, endpoint: str, arrival: Arrival) -> None:
        """See ``Predictor.check_room``."""
        serving = self._serving
        routes = serving.table[endpoint]
        self._check_open()
        limits = routes.endpoint.spec.limits
        self._budget.check_arrival(endpoint, arrival.ahead, limits.max_tokens_in_flight)
        try:
            targets = routes.targets_of(arrival.key, arrival.forced_version)
        except (UnknownVersionError, ModelUnavailableError):
            return  # ``predict`` says so, and records it
        batchers = [serving.batchers.get(target.model.ref.package) for target in targets]
        waits = [
            batcher.wait_seconds(endpoint)
            for batcher in batchers
            if batcher is not None and batcher.serves
        ]
        if waits:
            check_wait(min(waits), 0.0, limits.timeout_seconds)

    def describe(self, endpoint: str) -> EndpointView:
        """See ``Predictor.describe``."""
        view = self._serving.views.get(endpoint)
        if view is None and self._serving is _NOTHING:
            raise StartingError(
                "This gateway has just started and has yet to read which endpoints there are.",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        if view is None:
            raise UnknownEndpointError(f"There is no endpoint {endpoint[:80]!r}.")
        ready = self._serves(endpoint)
        return view if view.ready == ready else replace(view, ready=ready)

    def endpoints(self) -> tuple[str, ...]:
        """See ``Predictor.endpoints``."""
        return tuple(name for name, view in self._serving.views.items() if view.refs)

    @property
    def ready(self) -> bool:
        """See ``Predictor.ready``: it has once had all that it was told to serve, or long tried.

        A Triton that is away does not make a gateway unready: another one would have none either.
        """
        return self._told and not self._draining

    @property
    def notes(self) -> tuple[str, ...]:
        """See ``Predictor.notes``."""
        return self._serving.notes

    # What the process tells it.

    @property
    def serving(self) -> Serving:
        """What is served now."""
        return self._serving

    def tokens_in_flight(self) -> dict[str, int]:
        """Of each endpoint that is served, 0 included, and of any other that has some yet."""
        return dict.fromkeys(self._serving.table.endpoints, 0) | self._budget.by_endpoint()

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
        self._encoding.close()

    # The steps.

    def _admit(
        self, serving: Serving, routes: EndpointRoutes, call: Call, now: float
    ) -> tuple[RouteTarget, Batcher]:
        """Refuses what can be refused before any work; else where the request goes."""
        self._check_open()
        limits = routes.endpoint.spec.limits
        self._rates.check(call.caller, call.endpoint, limits.requests_per_second_per_key, now)
        check_size(call.texts, limits)
        target, *others = routes.targets_of(call.sticky_key or call.request_id, call.forced_version)
        left = call.deadline - now
        if left <= 0:
            raise too_late()
        try:
            return target, self._batcher_with_room(serving, target, call, left, limits)
        except (ModelUnavailableError, OverloadedError):
            if not others:
                raise
        return others[0], self._batcher_with_room(serving, others[0], call, left, limits)

    def _batcher_with_room(
        self, serving: Serving, target: RouteTarget, call: Call, left: float, limits: Limits
    ) -> Batcher:
        """The version's batcher, if there is hope of an answer from it in what is left."""
        batcher = serving.batchers.get(target.model.ref.package)
        if batcher is None or not batcher.serves:
            raise no_triton()
        texts, characters = len(call.texts), sum(map(len, call.texts))
        tokens = batcher.likely_tokens(texts, characters)
        self._budget.check_estimate(call.endpoint, texts * tokens, limits.max_tokens_in_flight)
        wait = batcher.wait_seconds(call.endpoint)
        if wait > 0:
            check_wait(wait, texts * batcher.work_seconds((tokens,)), left)
        return batcher

    def _check_open(self) -> None:
        if self._closed:
            raise ShuttingDownError(
                "This gateway is going away; ask again.", retry_after_seconds=RETRY_AFTER_SECONDS
            )

    def _refused(self, call: Call, status: int, reason: str) -> None:
        self._recorder.refusal(call.endpoint, status, reason)
        self._metrics.refused(call.endpoint, status, reason, monotonic() - call.started)

    def _serves(self, endpoint: str) -> bool:
        stable = self._serving.table[endpoint].stable
        if stable is None or self._draining:
            return False
        batcher = self._serving.batchers.get(stable.model.ref.package)
        return batcher is not None and batcher.serves
