"""What every dialect does the same: who is calling, which endpoint, and the call itself.

The dialects of HTTP and the gRPC service hold one ``Front`` each process. It parses and renders
nothing, and it never decides where a request goes.
"""

import time
from dataclasses import dataclass, field
from typing import Protocol

from gateway.admission.request_scheduler import RequestScheduler
from gateway.calls import Answer, Arrival, Call, EndpointView, Predictor
from gateway.errors import (
    GatewayError,
    InvalidInputError,
    OverloadedError,
    UnknownEndpointError,
)
from gateway.events.recorder import Recorder
from gateway.request_context import RequestContext

# A request that would wait longer than this to be begun is refused when it comes.
_LONGEST_WAIT_SECONDS = 0.25


class Keys(Protocol):
    """Who may ask which endpoint."""

    def authorise(self, presented: str | None, endpoint: str) -> str | None:
        """The caller's name, None where keys are off.

        Raises:
            UnauthenticatedError: no key, or an unknown one.
            ForbiddenError: a good key, for other endpoints.
        """
        ...


class RequestMetrics(Protocol):
    """What both fronts count, and show."""

    def request_finished(self, dialect: str, status: int, seconds: float) -> None:
        """One request answered: ``status`` is HTTP's, gRPC's calls are mapped to it."""
        ...

    def refused(self, endpoint: str, status: int, reason: str, seconds: float) -> None:
        """One request that the front itself refused, ``seconds`` after it arrived."""
        ...

    def render(self) -> bytes:
        """All metrics of the process, in Prometheus's text format."""
        ...


@dataclass(frozen=True, slots=True)
class Query:
    """What a dialect has read from a body. ``pairs`` is as long as ``texts`` where it is set."""

    texts: list[str]
    pairs: list[str] | None = None


@dataclass(frozen=True, slots=True)
class Front:
    """The way from a dialect to the predictor."""

    predictor: Predictor
    keys: Keys
    recorder: Recorder
    metrics: RequestMetrics
    scheduler: RequestScheduler = field(default_factory=RequestScheduler)  # of all dialects

    def open(self, context: RequestContext, endpoint: str) -> tuple[EndpointView, str | None]:
        """The endpoint as it is now, and the caller's name.

        Raises:
            UnauthenticatedError, ForbiddenError: see ``Keys``.
            UnknownEndpointError: no such endpoint.
        """
        context.endpoint = endpoint
        caller = self.keys.authorise(context.api_key, endpoint)
        return self.predictor.describe(endpoint), caller

    async def enter(
        self,
        context: RequestContext,
        endpoint: str,
        version: str | None = None,
        *,
        one_by_one: bool = False,
    ) -> tuple[EndpointView, str | None]:
        """The same for a request that brings texts: it begins now, or after those before it.

        Every dialect asks as soon as it knows the endpoint. However many requests arrive together,
        the loop looks up in between: answers of engines are waited for by more than one each.

        Args:
            context: the request.
            endpoint: the name that it gives.
            version: the one that its path or its message names, None for none.
            one_by_one: see ``RequestScheduler.try_now``.

        Raises:
            UnauthenticatedError, ForbiddenError, UnknownEndpointError: see ``open``.
            InvalidInputError: the headers name another version.
            OverloadedError, ShuttingDownError: there is no room, or the wait would be too long.
        """
        if not self.scheduler.try_now(one_by_one=one_by_one):
            self.look(context, endpoint)
            self.check(context, endpoint, version)
            await self.scheduler.wait(endpoint)
            context.ahead = 0
        return self.check(context, endpoint, version)

    def look(self, context: RequestContext, endpoint: str) -> None:
        """Notes how many requests wait before this one."""
        context.ahead = self.scheduler.waiting_of(endpoint)
        context.crowded = self.scheduler.wait_seconds(endpoint) > _LONGEST_WAIT_SECONDS

    def check(
        self, context: RequestContext, endpoint: str, version: str | None = None
    ) -> tuple[EndpointView, str | None]:
        """What ``enter`` refuses, without a wait."""
        view, caller = self.open(context, endpoint)
        if version:
            context.force(version)
        if context.crowded:
            raise OverloadedError(
                "This gateway has more to do than it can.", retry_after_seconds=1.0
            )
        key = context.sticky_key or context.request_id
        arrival = Arrival(key, context.forced_version, context.ahead)
        self.predictor.check_room(endpoint, arrival)
        return view, caller

    async def predict(
        self, context: RequestContext, view: EndpointView, caller: str | None, query: Query
    ) -> Answer:
        """Hands the texts to the predictor, with the deadline that caller and endpoint agree on.

        Raises:
            InvalidInputError: no text at all.
            GatewayError: whatever the predictor refuses or fails with.
        """
        if not query.texts:
            raise InvalidInputError(
                "No text was sent: an empty string is a text, an empty list none."
            )
        call = Call(
            endpoint=view.name,
            texts=query.texts,
            pairs=query.pairs,
            request_id=context.request_id,
            received=context.received,
            started=context.started,
            deadline=context.deadline(view.timeout_seconds),
            sticky_key=context.sticky_key,
            forced_version=context.forced_version,
            caller=caller,
            trace_parent=context.trace_parent,
        )
        context.handed_over = True
        return await self.predictor.predict(call)

    def refused(self, context: RequestContext, error: GatewayError) -> None:
        """Records a refusal that the predictor has not seen, where the endpoint exists."""
        if context.handed_over or context.endpoint is None:
            return
        try:
            self.predictor.describe(context.endpoint)
        except UnknownEndpointError:
            return  # names that callers invent must fill neither events nor metrics
        status, seconds = int(error.status), time.monotonic() - context.started
        self.recorder.refusal(context.endpoint, status, error.code)
        self.metrics.refused(context.endpoint, status, error.code, seconds)
