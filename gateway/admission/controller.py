"""Decides whether a request is admitted or refused, for every dialect over HTTP and gRPC.

A request is checked at up to five moments, in the order in which more is known about it, and as
early as possible: a refusal after tokenising has cost as much as an answer. The early checks keep a
safety margin of the token budget free, and later ones a smaller margin. So a request that has
passed one check nearly always passes the next.

=====================  ================================  ===========================================
moment                 what is known                     refusals, in the order of the checks
=====================  ================================  ===========================================
``recognise``, only    API key                           unauthenticated
if the body names the                                    rate_limited: bodies that named no endpoint
endpoint
endpoint known:        endpoint, forced version,         unauthenticated, forbidden,
``enter``, or          requests of the endpoint that     unknown_endpoint, starting
``check_early`` in a   wait before this one, tokens in   invalid_input: two versions are forced
connection             flight, the versions that may     overloaded, shutting_down
                       answer and the shortest of their  unknown_version, model_unavailable
                       queues                            overloaded: the queue
                                                         rate_limited, only in ``enter``
body read:             number of texts                   shutting_down
``check_body``                                           too_large: texts
version chosen:        deadline, characters, queues of   deadline_exceeded
``pick_version``       the versions that may answer      model_unavailable, overloaded
tokens counted:        tokens                            deadline_exceeded
``reserve``                                              too_large: tokens
                                                         overloaded
=====================  ================================  ===========================================

No byte of a body is read, inflated or parsed before one of the first two. A request whose path
names the endpoint passes ``enter`` before its body is read, any other one ``recognise``.

The rate counts each request whose body is read, answered or refused: in ``enter``, once, or where
none of its endpoints was named, when it is refused or its caller hangs up. One that is refused on
arrival for want of room is not counted. A request that takes a processor longer than
``SECONDS_OF_ONE``, to be read or to be answered in a thread, counts once more for each time that it
does (``spend``). If the endpoint changes while the body is read,
routing raises unknown_version or model_unavailable after all.

Only ``enter`` may wait: in the request scheduler, for this request's turn on the event loop, and
for a model that left its Tritons because nobody asked. Bulk requests wait in a queue, take tokens
of a budget, and are counted, all apart from the others. Every other refusal of a request for a
known endpoint is recorded and counted by ``_record_refusal``, wherever it was raised.

Not decided here: dialects refuse malformed requests, and what holds connections, bodies or long
texts that wait to be tokenised bounds them itself. ``docs/clients.md`` has all statuses.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from http import HTTPStatus
from time import monotonic
from typing import Protocol, TypeVar

from contracts.endpoint import EndpointLimits
from gateway.admission.byte_budget import ByteBudget
from gateway.admission.rate_limits import UNNAMED, RateLimits
from gateway.admission.request_scheduler import RequestScheduler
from gateway.admission.token_budget import TokenBudget
from gateway.calls import Call, EndpointView
from gateway.errors import (
    CLIENT_GONE_STATUS,
    RETRY_AFTER_SECONDS,
    GatewayError,
    ModelUnavailableError,
    OverloadedError,
    ShuttingDownError,
    TooLargeError,
    UnknownEndpointError,
    bulk_too_late,
    no_triton,
    too_late,
)
from gateway.events.buffer import Recorder
from gateway.request_context import RequestContext

# A request that would wait longer than this in the request scheduler is refused on arrival.
_LONGEST_WAIT_SECONDS = 0.25
# A request is admitted if its estimated wait and engine time fit into this share of the time to its
# deadline. The rest is the margin for errors of the estimate.
_USABLE_SHARE = 0.7
# How long after an ``OverloadedError`` connections go on to call ``check_early`` for new requests.
_EARLY_SECONDS = 0.05
# What a processor may be kept busy by reading a request that counts as one for its caller's rate.
SECONDS_OF_ONE = 0.01
# Bulk requests that wait in the request scheduler, and their budget of tokens, beside the others'.
_MOST_BULK = 64
_BULK_SHARE = 0.25
# Requests a second, of a key that is for no endpoint that there is.
_LIMIT_OF_NONE = 1.0


class Keys(Protocol):
    """The API keys: who may call which endpoint."""

    def authorise(
        self, presented: str | None, endpoint: str, *, forces_version: bool = False
    ) -> str | None:
        """The caller's name, None if keys are off.

        Raises:
            UnauthenticatedError: no key, an unknown one, or one that has expired.
            ForbiddenError: a good key, for other endpoints or without the right to name a version.
        """
        ...

    def recognise(self, presented: str | None) -> str | None:
        """The caller's name, None if keys are off.

        Raises:
            UnauthenticatedError: no key, or an unknown one.
        """
        ...

    def authorise_named(self, name: str | None, endpoint: str) -> str | None:
        """As ``authorise``, for a caller whose key was recognised before, by the key's name."""
        ...


class Capacity(Protocol):
    """How much more one version could take now, as estimated by its batcher."""

    @property
    def serves(self) -> bool:
        """Whether any Triton serves the version now."""
        ...

    @property
    def may_return(self) -> bool:
        """Whether one served it until a moment ago, so that texts wait for it."""
        ...

    def wait_seconds(self, endpoint: str) -> float:
        """Estimated seconds that a new text of an endpoint would wait for an instance."""
        ...

    def work_seconds(self, tokens: Iterable[int]) -> float:
        """Estimated engine seconds of texts; ``tokens`` has the length of each."""
        ...

    def likely_tokens(self, texts: int, characters: int) -> int:
        """Estimated tokens of a text, where ``texts`` have this many ``characters`` together."""
        ...


class Endpoints(Protocol):
    """The endpoints that are served now, and the versions that may answer their callers."""

    @property
    def draining(self) -> bool:
        """Whether this process is about to end."""
        ...

    def names(self) -> tuple[str, ...]:
        """Names of all endpoints that have a version to serve."""
        ...

    def describe(self, endpoint: str) -> EndpointView:
        """The endpoint as it is now.

        Raises:
            UnknownEndpointError: no such endpoint, or (``StartingError``) none has been read yet.
        """
        ...

    def capacities(
        self, endpoint: str, key: str, forced_version: str | None, space: str | None = None
    ) -> Sequence[Capacity]:
        """The versions that may answer a caller: the routed one first, then its fallback.

        A version that no Triton serves now is left out. If that is all of them, those are given
        that may return in a moment.

        Raises:
            UnknownEndpointError: no such endpoint.
            UnknownVersionError: the endpoint does not hold the forced version.
            ModelUnavailableError: the endpoint has no version yet, or none of the space.
        """
        ...

    def target(
        self, endpoint: str, key: str, forced_version: str | None, space: str | None = None
    ) -> tuple[str, str]:
        """The pool whose Tritons answer a caller, and Triton's name of the routed version.

        Raises as ``capacities`` does.
        """
        ...


class Waking(Protocol):
    """Models that left their Tritons because nobody asked; ``gateway.state.waking`` has them."""

    @property
    def seconds(self) -> float:
        """The longest that a caller waits for one."""
        ...

    def is_asleep(self, pool: str, model: str) -> bool:
        """Whether a model has to be waited for, by its pool and Triton's name of it."""
        ...

    async def wait(self, pool: str, model: str, until: float, size: int) -> None:
        """Has a model come back, and waits for it; see ``gateway.state.waking.Waking``."""
        ...


class _AsleepError(ModelUnavailableError):
    """The model that should answer is not loaded, and comes back for anyone who waits."""

    def __init__(self, view: EndpointView, pool: str, model: str) -> None:
        super().__init__("This model is not loaded while nobody asks for it.")
        self.view = view
        self.pool = pool
        self.model = model


class RefusalMetrics(Protocol):
    """Counts refusals."""

    def refused(self, endpoint: str, status: int, reason: str, seconds: float) -> None:
        """One request that was refused before any attempt, ``seconds`` after it arrived."""
        ...

    def bulk_finished(self, endpoint: str, status: int, texts: int = 0) -> None:
        """One bulk request that was answered or refused, and the texts of its answer."""
        ...


VersionT = TypeVar("VersionT", bound=Capacity)


class AdmissionController:
    """Admits or refuses the requests of one process. Not thread-safe: for its event loop only."""

    def __init__(
        self,
        *,
        endpoints: Endpoints,
        keys: Keys,
        rates: RateLimits,
        budget: TokenBudget,
        held: ByteBudget,
        recorder: Recorder,
        metrics: RefusalMetrics,
        scheduler: RequestScheduler | None = None,
        waking: Waking | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._endpoints = endpoints
        self._keys = keys
        self._rates = rates
        self._budgets = (budget, budget.part(_BULK_SHARE))  # of bulk requests
        self._recorder = recorder
        self._metrics = metrics
        self.scheduler = scheduler or RequestScheduler(clock)
        self._clock = clock
        self._waking = waking
        self.held = held
        self._closed = False
        self._early_until = 0.0
        # Requests, by endpoint and whether bulk, that ``check_early`` admitted in this iteration of
        # the event loop: all sockets are read before any task begins, and no queue has them yet.
        self._admitted_early: dict[tuple[str, bool], int] = {}

    # Headers or metadata are there.

    def authorise(
        self, context: RequestContext, endpoint: str, *, forces_version: bool = False
    ) -> str | None:
        """The caller's name, None if keys are off."""
        return self._keys.authorise(context.api_key, endpoint, forces_version=forces_version)

    def recognise(self, context: RequestContext, rated_as: str = UNNAMED) -> None:
        """Lets a request's body be read that says itself which endpoint is asked.

        Args:
            context: the request.
            rated_as: what the rate counts it as if it names none; see ``RateLimits``.

        Raises:
            UnauthenticatedError: see ``Keys``.
            RateLimitedError: too many of the caller's bodies were refused.
        """
        context.caller = self._keys.recognise(context.api_key)
        context.recognised, context.rated_as = True, rated_as
        if len(self._rates):
            self._rates.look(context.caller, rated_as, self._clock())

    def identify(
        self, context: RequestContext, endpoint: str, *, forces_version: bool = False
    ) -> tuple[EndpointView, str | None]:
        """The endpoint as it is now, and the caller's name. Enough for a request for metadata.

        Raises:
            UnauthenticatedError, ForbiddenError: see ``Keys``.
            UnknownEndpointError: no such endpoint.
        """
        context.endpoint = endpoint
        if context.deferred:  # whether it may name a space was asked when it was left here
            caller = self._keys.authorise_named(context.caller, endpoint)
        else:
            caller = self._keys.authorise(context.api_key, endpoint, forces_version=forces_version)
        context.caller = caller
        if context.holding is not None:
            context.holding.belongs(endpoint, caller)
        view = self._endpoints.describe(endpoint)
        context.limit_seconds = view.timeout_seconds
        return view, caller

    async def enter(
        self,
        context: RequestContext,
        endpoint: str,
        version: str | None = None,
        *,
        serial_arrivals: bool = False,
    ) -> tuple[EndpointView, str | None]:
        """Checks a prediction request on arrival, and waits for its turn if the loop is busy.

        Args:
            context: the request.
            endpoint: the name in its path or message.
            version: the version in its path or message, None for none.
            serial_arrivals: true for gRPC, whose requests reach the event loop one after the
                other; see ``RequestScheduler.try_now``.

        Returns:
            The endpoint as it is now, and the caller's name.

        Raises:
            GatewayError: see the second row of the table.
        """
        if context.bulk:
            await self._enter_bulk(context, endpoint, version)
        elif not self.scheduler.try_now(serial_arrivals=serial_arrivals):
            ahead = self.scheduler.waiting_of(endpoint)
            wait = self.scheduler.wait_seconds(endpoint)
            with suppress(_AsleepError):
                self._check_arrival(context, endpoint, version, ahead, wait)
            await self.scheduler.wait(endpoint)
        while True:
            try:
                view, caller = self._check_arrival(context, endpoint, version)
            except _AsleepError as asleep:
                if not context.counted:
                    self._count(context, asleep.view)  # it holds a place from now on
                await self._wake(context, asleep)
            else:
                if not context.counted:
                    self._count(context, view)
                return view, caller

    async def _enter_bulk(
        self, context: RequestContext, endpoint: str, version: str | None
    ) -> None:
        """Waits until no interactive request waits for the event loop."""
        scheduler = self.scheduler
        if not scheduler.waiting_bulk and scheduler.try_now():
            return
        with suppress(_AsleepError):
            self._check_arrival(context, endpoint, version)
        if scheduler.waiting_bulk >= _MOST_BULK:
            raise OverloadedError(
                "As many bulk requests wait as may; send it again later.",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        until = context.ends
        try:
            async with asyncio.timeout(until and until - self._clock()):
                await scheduler.wait(endpoint, bulk=True)
        except TimeoutError as late:
            raise bulk_too_late() from late

    def _count(self, context: RequestContext, view: EndpointView) -> None:
        """Has the rate count a request that comes in."""
        limit = view.requests_per_second_per_key
        self._rates.check(context.caller, view.name, limit, self._clock())
        context.counted = context.recognised = True

    async def _wake(self, context: RequestContext, asleep: _AsleepError) -> None:
        """Waits for a model that is coming back, which is not counted as the endpoint's time."""
        if self._waking is None:
            raise asleep
        began = self._clock()
        until = began + self._waking.seconds
        if context.timeout_seconds is not None:
            until = min(until, context.started + context.timeout_seconds)
        try:
            await self._waking.wait(asleep.pool, asleep.model, until, context.held_bytes)
        finally:
            context.waited_seconds += self._clock() - began

    @property
    def checks_early(self) -> bool:
        """Whether connections should call ``check_early``: there was an overload just now."""
        return self._clock() < self._early_until

    def check_early(self, context: RequestContext, endpoint: str, version: str | None) -> None:
        """The checks of ``enter``, made by the connection before the request gets a task.

        Under overload most requests are refused. This makes refusals cheap, so that the processor's
        time is left for the requests that are answered.

        Raises:
            GatewayError: see the second row of the table.
        """
        queue = endpoint, context.bulk
        let_in = self._admitted_early.get(queue, 0)
        ahead = self.scheduler.waiting_of(endpoint) + let_in
        wait = self.scheduler.wait_seconds(endpoint)
        with suppress(_AsleepError):
            self._check_arrival(context, endpoint, version, ahead, wait)
        if not self._admitted_early:
            asyncio.get_running_loop().call_soon(self._admitted_early.clear)
        self._admitted_early[queue] = let_in + 1

    def _check_arrival(
        self,
        context: RequestContext,
        endpoint: str,
        version: str | None,
        ahead: int = 0,
        wait_seconds: float = 0.0,
    ) -> tuple[EndpointView, str | None]:
        """Refuses, before the body is read, a request that would be refused whatever its body is.

        ``ahead`` requests of the endpoint wait before this one, ``wait_seconds`` is the estimated
        wait in the request scheduler.
        """
        named = context.forced_version is not None or context.space is not None
        forces = bool(version) or named
        view, caller = self.identify(context, endpoint, forces_version=forces)
        if version:
            context.force(version)
        if wait_seconds > _LONGEST_WAIT_SECONDS:
            raise OverloadedError(
                "More requests wait than this gateway can begin in time.", retry_after_seconds=1.0
            )
        self._check_open()
        self._budgets[context.bulk].check_arrival(endpoint, ahead, view.max_tokens_in_flight)
        key = context.sticky_key or context.request_id
        if view.asleep and self._waking is not None:
            target = self._endpoints.target(endpoint, key, context.forced_version, context.space)
            if self._waking.is_asleep(*target):
                raise _AsleepError(view, *target)
        asked = context.forced_version, context.space
        versions = self._endpoints.capacities(endpoint, key, *asked)
        if not versions:
            raise no_triton(view.unserved)
        # A list and no generator, because this runs for every request.
        shortest = min([version.wait_seconds(endpoint) for version in versions])
        _check_wait(shortest, 0.0, view.timeout_seconds)
        return view, caller

    def count(self, context: RequestContext) -> None:
        """Has the rate count a request that is answered and named no endpoint."""
        self._charge(context, 1)
        context.counted = True

    # The body is read.

    def check_body(self, call: Call, limits: EndpointLimits) -> None:
        """Refuses a request with too many texts.

        Raises:
            GatewayError: see the third row of the table.
        """
        self._check_open()
        if len(call.texts) > limits.max_texts_per_request:
            raise TooLargeError(
                f"The request has {len(call.texts)} texts; this endpoint takes "
                f"{limits.max_texts_per_request} at once."
            )

    # The versions that may answer are known.

    def pick_version(
        self, call: Call, limits: EndpointLimits, versions: Sequence[VersionT | None], now: float
    ) -> tuple[int, VersionT]:
        """The first version that can probably answer in time, and its index in ``versions``.

        Args:
            call: the request.
            limits: of its endpoint.
            versions: at least one: the version that the request is routed to, then its fallback.
                None for a version without a batcher.
            now: the event loop's clock, seconds.

        Raises:
            GatewayError: none of them can; see the fourth row of the table. This is the error of
                the last version.
        """
        left = call.deadline - now
        if left <= 0:
            raise too_late()
        texts, characters = len(call.texts), call.characters()
        for index, version in enumerate(versions):
            try:
                if version is None or not (version.serves or _is_awaited(version, versions)):
                    raise no_triton()
                tokens = version.likely_tokens(texts, characters)
                most = limits.max_tokens_in_flight
                self._budgets[call.bulk].check_estimate(call.endpoint, texts * tokens, most)
                wait = version.wait_seconds(call.endpoint)
                if wait > 0:
                    _check_wait(wait, texts * version.work_seconds((tokens,)), left)
            except (ModelUnavailableError, OverloadedError):
                if index == len(versions) - 1:
                    raise
            else:
                return index, version
        raise no_triton()

    # The tokens are counted.

    def reserve(self, call: Call, tokens: int, limits: EndpointLimits) -> None:
        """Takes the request's tokens from the budget; ``release`` gives them back.

        Raises:
            GatewayError: see the last row of the table.
        """
        if call.deadline <= self._clock():
            raise too_late()
        self._budgets[call.bulk].reserve(call.endpoint, tokens, limits.max_tokens_in_flight)

    def release(self, call: Call, tokens: int) -> None:
        """Returns a request's tokens to the budget, once it is answered or has failed."""
        self._budgets[call.bulk].release(call.endpoint, tokens)

    def tokens_in_flight(self) -> dict[str, int]:
        """Tokens in flight of each endpoint that has any."""
        return dict(sum(map(Counter, (each.by_endpoint() for each in self._budgets)), Counter()))

    # What a request's body has cost.

    def spend(self, context: RequestContext, seconds: float) -> None:
        """Charges the caller for time of a processor that reading its request took."""
        context.work_seconds += seconds
        further = int(context.work_seconds / SECONDS_OF_ONE) - context.charged
        if further > 0 and context.recognised:
            context.charged += further
            self._charge(context, further)

    def _charge(self, context: RequestContext, requests: int) -> None:
        endpoint = context.endpoint
        if context.counted and endpoint is not None:
            name, limit = endpoint, lambda: self._limit(endpoint)
        elif context.deferred:  # not held back by ``recognise``: it would keep its key out for long
            return
        else:
            name, limit = context.rated_as, lambda: self._greatest_limit(context)
        self._rates.charge(context.caller, name, limit, requests, self._clock())

    def _limit(self, endpoint: str) -> float | None:
        try:
            return self._endpoints.describe(endpoint).requests_per_second_per_key
        except UnknownEndpointError:
            return None  # it has left just now

    def _greatest_limit(self, context: RequestContext) -> float | None:
        """Of the endpoints that the caller's key is for; None if one of them has none."""
        greatest = 0.0
        for name in self._endpoints.names():
            try:
                self._keys.authorise(context.api_key, name)
                limit = self._endpoints.describe(name).requests_per_second_per_key
            except GatewayError:
                continue
            if limit is None:
                return None
            greatest = max(greatest, limit)
        return greatest or _LIMIT_OF_NONE

    # Refusals.

    def refused(self, context: RequestContext, error: GatewayError) -> None:
        """Records an error that a dialect answers with, and begins early checks after an overload.

        The rate counts a request here that it has not counted, if what it says is refused.

        Not recorded: an error of the pipeline, which records its own, and a request that names no
        endpoint, or an unknown one.
        """
        if isinstance(error, OverloadedError):
            self._early_until = self._clock() + _EARLY_SECONDS
        if 400 <= error.status < 500:
            self._count_unnamed(context)
        endpoint = context.endpoint
        if context.handed_over or endpoint is None:
            return
        try:
            self._endpoints.describe(endpoint)
        except UnknownEndpointError:
            return  # names that callers make up must not become labels of metrics or events
        if context.bulk:
            self._metrics.bulk_finished(endpoint, int(error.status))
        else:
            self._record_refusal(endpoint, int(error.status), error.code, context.started)

    def left(self, context: RequestContext) -> None:
        """The caller of a request hung up, which the rate counts as if it had been refused."""
        self._count_unnamed(context)

    def _count_unnamed(self, context: RequestContext) -> None:
        """Has the rate count a request whose body was read and that it has not counted."""
        if context.body_read and not context.counted:
            self._charge(context, 1)

    def refused_call(self, call: Call, error: BaseException) -> None:
        """Records the error that ended a call in the pipeline before its first attempt.

        A call that was cancelled is recorded as 499, whether its caller hung up or the process had
        to end.
        """
        status, reason = int(HTTPStatus.INTERNAL_SERVER_ERROR), GatewayError.code
        if isinstance(error, GatewayError):
            status, reason = int(error.status), error.code
        elif isinstance(error, asyncio.CancelledError):
            status, reason = CLIENT_GONE_STATUS, "client_gone"
        if call.bulk:
            self._metrics.bulk_finished(call.endpoint, status)
        else:
            self._record_refusal(call.endpoint, status, reason, call.started)

    def _record_refusal(self, endpoint: str, status: int, reason: str, started: float) -> None:
        self._recorder.refusal(endpoint, status, reason)
        self._metrics.refused(endpoint, status, reason, self._clock() - started)

    # The end of the process.

    @property
    def draining(self) -> bool:
        """Whether this gateway will stop soon; it still answers, but callers should reconnect."""
        return self._endpoints.draining

    def close(self) -> None:
        """Refuses all requests from now on."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise ShuttingDownError(
                "This gateway is shutting down; try again.", retry_after_seconds=RETRY_AFTER_SECONDS
            )


def _is_awaited(version: Capacity, versions: Iterable[Capacity | None]) -> bool:
    """Whether a version that no Triton serves may return in a moment, and no other one answers."""
    return version.may_return and not any(each is not None and each.serves for each in versions)


def _check_wait(wait_seconds: float, work_seconds: float, left_seconds: float) -> None:
    """Refuses a request that can't be answered in time, before it makes others wait.

    Args:
        wait_seconds: estimated wait for an instance. A request that need not wait is admitted
            whatever its ``work_seconds``: if that estimate is wrong, only an answer corrects it.
        work_seconds: estimated engine time of the request itself.
        left_seconds: to the deadline.
    """
    excess = wait_seconds + work_seconds - _USABLE_SHARE * left_seconds
    if wait_seconds > 0 and excess > 0:
        raise OverloadedError(
            "The queue is too long to answer within the time limit.",
            retry_after_seconds=max(RETRY_AFTER_SECONDS, excess),
        )
