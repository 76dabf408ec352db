"""Decides whether a request comes in: for every dialect of HTTP, for gRPC, and nowhere else.

A request is asked about at four moments. Whatever is known at one of them to be in vain is refused
there, because a refusal after tokenising has cost as much as an answer. From moment to moment a
little less room is kept back, so that a request that was let in is nearly always answered.

=================  ===============================  ================================================
moment             what is known                    refusals: status, code, when to come back
=================  ===============================  ================================================
headers or gRPC    endpoint, API key, version,      401 unauthenticated
metadata:          requests of the endpoint that    403 forbidden
``enter``, or      come before this one, tokens in  404 unknown_endpoint
``check_early``    flight, the shortest queue of a  422 invalid_input: two versions are named
in a connection    version that may answer          503 starting: in 1 s
                                                    503 shutting_down: in 1 s
                                                    503 overloaded: in 1 s, or as the queue needs
body read:         caller, number of texts          503 shutting_down: in 1 s
``check_body``                                      429 rate_limited: when the bucket has room
                                                    413 too_large: texts
version chosen:    deadline, characters, queues of  504 deadline_exceeded
``arm_with_room``  the versions that may answer     503 model_unavailable: in 1 s
                                                    503 overloaded: in 1 s, or as the queue needs
tokens counted:    tokens                           504 deadline_exceeded
``reserve``                                         413 too_large: tokens
                                                    503 overloaded: in 1 s
=================  ===============================  ================================================

Only ``enter`` waits, for the request scheduler. Every refusal before an attempt, whoever raised it,
is recorded and counted by ``_refused``.

Not asked here: what is malformed, which the dialects refuse, and bounds on what is held at once
(connections, bytes of bodies, long texts that wait to be tokenised), which the holders keep.
"""

import asyncio
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from time import monotonic
from typing import Protocol, TypeVar

from contracts.endpoint import Limits
from gateway.admission.rate_limits import RateLimits
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
    no_triton,
    too_late,
)
from gateway.events.buffer import Recorder
from gateway.request_context import RequestContext

# A request that would wait longer than this for the request scheduler is refused when it comes.
_LONGEST_WAIT_SECONDS = 0.25
# Share of the time to the deadline that a request's predicted wait and work may fill. The rest is
# what a prediction may be wrong by before an admitted request is too late.
_USABLE_SHARE = 0.7
# So long after a refusal for want of room, connections ask ``check_early`` before all else.
_EARLY_SECONDS = 0.05


class Keys(Protocol):
    """Who may ask which endpoint."""

    def authorise(self, presented: str | None, endpoint: str) -> str | None:
        """The caller's name, None where keys are off.

        Raises:
            UnauthenticatedError: no key, or an unknown one.
            ForbiddenError: a good key, for other endpoints.
        """
        ...


class Capacity(Protocol):
    """The room on an arm: what the batcher of one version says of itself, in numbers."""

    @property
    def serves(self) -> bool:
        """Whether any Triton serves the version now."""
        ...

    def wait_seconds(self, flow: str) -> float:
        """How long a new text of an endpoint would wait for an engine, as estimated."""
        ...

    def work_seconds(self, tokens: Iterable[int]) -> float:
        """Engine seconds of texts with so many tokens each."""
        ...

    def likely_tokens(self, texts: int, characters: int) -> int:
        """Tokens of each of some texts, as estimated from all their characters."""
        ...


class Endpoints(Protocol):
    """Which endpoints there are, and who may answer a caller of one."""

    @property
    def draining(self) -> bool:
        """Whether this process is about to end."""
        ...

    def describe(self, endpoint: str) -> EndpointView:
        """The endpoint as it is now.

        Raises:
            UnknownEndpointError: no such endpoint, or (``StartingError``) none has been read yet.
        """
        ...

    def arms(self, endpoint: str, key: str, forced_version: str | None) -> Sequence[Capacity]:
        """Those of the versions that may answer, where a Triton serves them."""
        ...


class RefusalMetrics(Protocol):
    """Where refusals are counted."""

    def refused(self, endpoint: str, status: int, reason: str, seconds: float) -> None:
        """One request that was refused before any attempt, ``seconds`` after it arrived."""
        ...


Arm = TypeVar("Arm", bound=Capacity)


class AdmissionController:
    """Lets requests of one process in or refuses them. Belongs to its event loop.

    Args:
        endpoints: which there are.
        keys: who may ask which.
        rates: requests a second for each caller.
        budget: tokens in flight.
        recorder: hears of every refusal.
        metrics: counts them.
        scheduler: of the requests of all dialects; one of its own where None.
    """

    def __init__(
        self,
        *,
        endpoints: Endpoints,
        keys: Keys,
        rates: RateLimits,
        budget: TokenBudget,
        recorder: Recorder,
        metrics: RefusalMetrics,
        scheduler: RequestScheduler | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._keys = keys
        self._rates = rates
        self._budget = budget
        self._recorder = recorder
        self._metrics = metrics
        self.scheduler = scheduler or RequestScheduler()
        self._closed = False
        self._early_until = 0.0
        # By endpoint, the requests that ``check_early`` let in during this iteration of the loop:
        # whatever is ready is read before any task begins, and would otherwise find the same room.
        self._let_in: dict[str, int] = {}

    # Headers or metadata are there.

    def authorise(self, context: RequestContext, endpoint: str) -> str | None:
        """The caller's name, None where keys are off.

        Raises:
            UnauthenticatedError, ForbiddenError: see ``Keys``.
        """
        return self._keys.authorise(context.api_key, endpoint)

    def identify(self, context: RequestContext, endpoint: str) -> tuple[EndpointView, str | None]:
        """The endpoint as it is now, and the caller's name: all that a request for metadata needs.

        Raises:
            UnauthenticatedError, ForbiddenError: see ``Keys``.
            UnknownEndpointError: no such endpoint.
        """
        context.endpoint = endpoint
        caller = self._keys.authorise(context.api_key, endpoint)
        return self._endpoints.describe(endpoint), caller

    async def enter(
        self,
        context: RequestContext,
        endpoint: str,
        version: str | None = None,
        *,
        one_by_one: bool = False,
    ) -> tuple[EndpointView, str | None]:
        """Lets a request for predictions begin: now, or after those that wait already.

        Args:
            context: the request.
            endpoint: the name that it gives.
            version: the one that its path or its message names, None for none.
            one_by_one: see ``RequestScheduler.try_now``.

        Returns:
            The endpoint as it is now, and the caller's name.

        Raises:
            GatewayError: see the first row of the table.
        """
        if not self.scheduler.try_now(one_by_one=one_by_one):
            ahead = self.scheduler.waiting_of(endpoint)
            wait = self.scheduler.wait_seconds(endpoint)
            self._check_arrival(context, endpoint, version, ahead, wait)
            await self.scheduler.wait(endpoint)
        return self._check_arrival(context, endpoint, version)

    @property
    def checks_early(self) -> bool:
        """Whether connections should ask ``check_early``: something was refused a moment ago."""
        return monotonic() < self._early_until

    def check_early(self, context: RequestContext, endpoint: str, version: str | None) -> None:
        """The same question within the connection, before there is a task for the request.

        Under a flood most requests are refused, and what that costs is taken from the others.

        Raises:
            GatewayError: see the first row of the table.
        """
        let_in = self._let_in.get(endpoint, 0)
        ahead = self.scheduler.waiting_of(endpoint) + let_in
        wait = self.scheduler.wait_seconds(endpoint)
        self._check_arrival(context, endpoint, version, ahead, wait)
        if not self._let_in:
            asyncio.get_running_loop().call_soon(self._let_in.clear)
        self._let_in[endpoint] = let_in + 1

    def _check_arrival(
        self,
        context: RequestContext,
        endpoint: str,
        version: str | None,
        ahead: int = 0,
        wait_seconds: float = 0.0,
    ) -> tuple[EndpointView, str | None]:
        """Refuses, before a body is read, what would be refused whatever is in it.

        Args:
            context: the request.
            endpoint: the name that it gives.
            version: the one that its path or its message names.
            ahead: requests of the endpoint that were let in before and have not begun.
            wait_seconds: for the request scheduler, as estimated.
        """
        view, caller = self.identify(context, endpoint)
        if version:
            context.force(version)
        if wait_seconds > _LONGEST_WAIT_SECONDS:
            raise OverloadedError(
                "More requests wait than this gateway can begin in time.", retry_after_seconds=1.0
            )
        self._check_open()
        self._budget.check_arrival(endpoint, ahead, view.max_tokens_in_flight)
        key = context.sticky_key or context.request_id
        arms = self._endpoints.arms(endpoint, key, context.forced_version)
        if arms:
            shortest = min([arm.wait_seconds(endpoint) for arm in arms])  # no generator: hot path
            _check_wait(shortest, 0.0, view.timeout_seconds)
        return view, caller

    # The body is read.

    def check_body(self, call: Call, limits: Limits, now: float) -> None:
        """Refuses a caller's request over its rate, and too many texts.

        Args:
            call: the request.
            limits: of its endpoint.
            now: the event loop's clock, seconds.

        Raises:
            GatewayError: see the second row of the table.
        """
        self._check_open()
        self._rates.check(call.caller, call.endpoint, limits.requests_per_second_per_key, now)
        if len(call.texts) > limits.max_texts_per_request:
            raise TooLargeError(
                f"The request has {len(call.texts)} texts; this endpoint takes "
                f"{limits.max_texts_per_request} at once."
            )

    # The versions that may answer are known.

    def arm_with_room(
        self, call: Call, limits: Limits, arms: Sequence[Arm | None], now: float
    ) -> tuple[int, Arm]:
        """The first arm that will probably answer in time, and its place among them.

        Args:
            call: the request.
            limits: of its endpoint.
            arms: at least one; the caller's own, then those that may answer in its place.
            now: the event loop's clock, seconds.

        Raises:
            GatewayError: none of them will; see the third row of the table. What the last one has
                against the request is what the caller is told.
        """
        left = call.deadline - now
        if left <= 0:
            raise too_late()
        texts, characters = len(call.texts), sum(map(len, call.texts))
        for place, arm in enumerate(arms):
            try:
                if arm is None or not arm.serves:
                    raise no_triton()
                tokens = arm.likely_tokens(texts, characters)
                most = limits.max_tokens_in_flight
                self._budget.check_estimate(call.endpoint, texts * tokens, most)
                wait = arm.wait_seconds(call.endpoint)
                if wait > 0:
                    _check_wait(wait, texts * arm.work_seconds((tokens,)), left)
            except (ModelUnavailableError, OverloadedError):
                if place == len(arms) - 1:
                    raise
            else:
                return place, arm
        raise no_triton()

    # The tokens are counted.

    def reserve(self, call: Call, tokens: int, limits: Limits) -> None:
        """Takes the request's tokens from the budget; ``release`` gives them back.

        Raises:
            GatewayError: see the fourth row of the table.
        """
        if call.deadline <= monotonic():
            raise too_late()
        self._budget.reserve(call.endpoint, tokens, limits.max_tokens_in_flight)

    def release(self, call: Call, tokens: int) -> None:
        """Gives the tokens of a request back that is answered, or has failed."""
        self._budget.release(call.endpoint, tokens)

    def tokens_in_flight(self) -> dict[str, int]:
        """Of each endpoint that has any."""
        return self._budget.by_endpoint()

    # Refusals.

    def refused(self, context: RequestContext, error: GatewayError) -> None:
        """Takes note of an error that a dialect answers with.

        Once the pipeline has the request, it is the pipeline that records what comes of it.
        """
        if isinstance(error, OverloadedError):
            self._early_until = monotonic() + _EARLY_SECONDS
        endpoint = context.endpoint
        if context.handed_over or endpoint is None:
            return
        try:
            self._endpoints.describe(endpoint)
        except UnknownEndpointError:
            return  # names that callers invent must fill neither events nor metrics
        self._refused(endpoint, int(error.status), error.code, context.started)

    def refused_call(self, call: Call, error: BaseException) -> None:
        """Takes note of what ended a call before any attempt."""
        status, reason = int(HTTPStatus.INTERNAL_SERVER_ERROR), GatewayError.code
        if isinstance(error, GatewayError):
            status, reason = int(error.status), error.code
        elif isinstance(error, asyncio.CancelledError):
            status, reason = CLIENT_GONE_STATUS, "client_gone"
        self._refused(call.endpoint, status, reason, call.started)

    def _refused(self, endpoint: str, status: int, reason: str, started: float) -> None:
        self._recorder.refusal(endpoint, status, reason)
        self._metrics.refused(endpoint, status, reason, monotonic() - started)

    # The end of the process.

    @property
    def draining(self) -> bool:
        """Whether callers should take their next request to another gateway; this one answers."""
        return self._endpoints.draining

    def close(self) -> None:
        """Refuses whatever comes from now on."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise ShuttingDownError(
                "This gateway is going away; ask again.", retry_after_seconds=RETRY_AFTER_SECONDS
            )


def _check_wait(wait_seconds: float, work_seconds: float, left_seconds: float) -> None:
    """Refuses what can't be answered in time, before it takes anybody's place.

    Args:
        wait_seconds: until an engine takes the request up. 0 admits it whatever its own work is,
            so that an estimate that was learnt wrong never refuses everything.
        work_seconds: the engine's time for the request itself.
        left_seconds: to the deadline.

    Raises:
        OverloadedError: come back when the queue is shorter.
    """
    excess = wait_seconds + work_seconds - _USABLE_SHARE * left_seconds
    if wait_seconds > 0 and excess > 0:
        raise OverloadedError(
            "The queue is too long to answer within the time limit.",
            retry_after_seconds=max(RETRY_AFTER_SECONDS, excess),
        )
