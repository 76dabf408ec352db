"""Refuses predictions within the connection, before the application starts to handle them.

Under overload most requests are refused, and the time for refusals is taken from the requests that
are answered. Therefore, while the gateway refuses, each request is checked as soon as its headers
have arrived, before it has a task or a body. The admission controller decides and counts, as for
any other request. If the path names no endpoint but the body has arrived, the name is read from the
body, if the caller has a key. All other errors are left to the application.
"""

import time
from collections.abc import Mapping
from typing import Protocol

from gateway.admission.controller import AdmissionController
from gateway.errors import GatewayError, OverloadedError
from gateway.http.error_replies import error_reply
from gateway.http.messages import rendered
from gateway.http.origins import AllowedOrigins
from gateway.http.router import Route, Router
from gateway.request_context import RequestContext, new_request_id


class FinishedMetrics(Protocol):
    """Counts answered requests."""

    def request_finished(self, dialect: str, status: int, seconds: float) -> None:
        """One request answered."""
        ...


class EarlyRefusals:
    """Asks admission for the connections of one process."""

    def __init__(
        self,
        router: Router,
        admission: AdmissionController,
        metrics: FinishedMetrics,
        origins: AllowedOrigins | None = None,
    ) -> None:
        self._origins = origins
        self._router = router
        self._admission = admission
        self._metrics = metrics

    @property
    def active(self) -> bool:
        """Whether ``refusal`` may refuse: there was an overload just now."""
        return self._admission.checks_early

    @property
    def draining(self) -> bool:
        """Whether each answer is the last of its connection, because the process is about to end.

        Otherwise a kept connection would be closed with the process, maybe while the next request
        is being sent.
        """
        return self._admission.draining

    def refusal(
        self, method: str, path: str, headers: Mapping[bytes, bytes], body: bytes | None = None
    ) -> bytes | None:
        """The complete answer to a refused request; None to pass it to the application.

        Args:
            method: as it was sent.
            path: unquoted, without the query.
            headers: lower-case names; of a repeated header the last value.
            body: None if it has not arrived.
        """
        now = time.monotonic()
        try:
            route, params = self._router.find(method, path)
            if not route.predicts or (route.endpoint_in is not None and body is None):
                return None
            context = RequestContext(new_request_id(), time.time(), now)
            context.read(headers)
            name = self._endpoint(context, route, params, body)
            if name is None:
                return None
            self._admission.check_early(context, name, params.get("version"))
        except OverloadedError as error:
            self._admission.refused(context, error)
            seconds = time.monotonic() - now
            dialect = context.counted_as(route.dialect)
            self._metrics.request_finished(dialect, int(error.status), seconds)
            reply = error_reply(error, context.request_id, route.errors)
            if self._origins is not None:
                self._origins.mark(method, headers, reply)
            return rendered(reply, context.request_id)
        except GatewayError:
            return None
        return None

    def _endpoint(
        self, context: RequestContext, route: Route, params: Mapping[str, str], body: bytes | None
    ) -> str | None:
        """The endpoint of a prediction; None if it is not known yet.

        Raises:
            GatewayError: the body names it, and the caller has no key.
        """
        if route.endpoint_in is None:
            return params["endpoint"]
        self._admission.recognise(context)
        return None if body is None else route.endpoint_in(body)
