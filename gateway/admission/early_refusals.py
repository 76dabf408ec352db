"""Refuses predictions within the connection, before the application has heard of them.

While the gateway refuses for want of room, each request is asked about as soon as its headers are
there, before there is a task, a scope's copy or a body. Under a flood most requests are refused,
and what that costs is taken from those that are answered. The decision and its count are the
controller's, as for any other request. Where the path names no endpoint and the body lies there
whole, the name is read from the body. Whatever else is wrong is left to the request's handler.
"""

import time
from collections.abc import Mapping
from typing import Protocol

from gateway.admission.controller import AdmissionController
from gateway.errors import GatewayError, OverloadedError
from gateway.http.messages import error_reply, rendered
from gateway.http.router import Route, Router
from gateway.request_context import RequestContext, new_request_id


class FinishedMetrics(Protocol):
    """Where answered requests are counted."""

    def request_finished(self, dialect: str, status: int, seconds: float) -> None:
        """One request answered."""
        ...


class EarlyRefusals:
    """Asks admission for the connections of one process.

    Args:
        router: of the application.
        admission: decides.
        metrics: counts the answers.
    """

    def __init__(
        self, router: Router, admission: AdmissionController, metrics: FinishedMetrics
    ) -> None:
        self._router = router
        self._admission = admission
        self._metrics = metrics

    @property
    def watching(self) -> bool:
        """Whether ``refusal`` may refuse: something was refused a moment ago."""
        return self._admission.checks_early

    @property
    def leaving(self) -> bool:
        """Whether each answer is the last of its connection, because the process is about to end.

        A connection that a caller keeps would be closed with the process, maybe just as the next
        request is on its way.
        """
        return self._admission.draining

    def refusal(
        self, method: str, path: str, headers: Mapping[bytes, bytes], body: bytes | None = None
    ) -> bytes | None:
        """The answer with which to refuse a request now, whole; None to let it come in.

        Args:
            method: as it was sent.
            path: unquoted, without the query.
            headers: lower-case names; of a repeated header the last value.
            body: None where it has not arrived.
        """
        now = time.monotonic()
        try:
            route, params = self._router.find(method, path)
            name = _endpoint(route, params, body)
            if name is None:
                return None
            context = RequestContext(new_request_id(), time.time(), now)
            context.read(headers)
            self._admission.check_early(context, name, params.get("version"))
        except OverloadedError as error:
            self._admission.refused(context, error)
            seconds = time.monotonic() - now
            self._metrics.request_finished(route.dialect, int(error.status), seconds)
            reply = error_reply(error, context.request_id, route.errors)
            return rendered(reply, context.request_id)
        except GatewayError:
            return None
        return None


def _endpoint(route: Route, params: Mapping[str, str], body: bytes | None) -> str | None:
    """Whose texts a request brings; None for another kind of request, or while it can't be told."""
    if not route.predicts:
        return None
    if route.endpoint_in is None:
        return params["endpoint"]
    return None if body is None else route.endpoint_in(body)
