"""Refuses predictions from within the connection, before the application has heard of them.

While the gateway refuses, ``http/server.py`` asks ``refusal`` as soon as it has the headers, before
there is a task, a scope's copy or a body: under a flood most requests are refused, and what that
costs is taken from those that are answered. It says no in the same words as ``Front.enter``, by the
same checks (``Front.check``), and counts alike. Of a body that lies there whole it reads the
endpoint's name where the path has none, and whatever else is wrong with a request is left to its
handler.
"""

import asyncio
import time
from collections.abc import Mapping

from gateway.admission.front import Front
from gateway.errors import GatewayError, OverloadedError
from gateway.http.replies import error_reply, rendered
from gateway.http.router import Route, Router
from gateway.request_context import RequestContext, new_request_id

# So long after a refusal, others are looked for before requests have become tasks.
_WATCH_SECONDS = 0.05


class Shedding:
    """Decides on new requests of one process. Belongs to its event loop."""

    def __init__(self, router: Router, front: Front) -> None:
        self._router = router
        self._front = front
        self._watch_until = 0.0
        self._leaving = False
        # Requests of this turn of the loop, by endpoint, whose tasks have not begun: all that is
        # ready is read before any task runs, and would otherwise find the same room.
        self._let_in: dict[str, int] = {}

    def said_no(self) -> None:
        """A request was refused for want of room: others will be."""
        self._watch_until = time.monotonic() + _WATCH_SECONDS

    @property
    def leaving(self) -> bool:
        """Whether callers must take their next request to another gateway."""
        return self._leaving

    def leave(self) -> None:
        """Ends each connection with the answer that it waits for, as the process is about to end.

        One that a caller keeps would be closed with the process, maybe just as its next request is
        on the way.
        """
        self._leaving = True

    @property
    def watching(self) -> bool:
        """Whether ``refusal`` may refuse: something was refused a moment ago."""
        return time.monotonic() < self._watch_until

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
            self._front.look(context, name)
            context.ahead += self._let_in.get(name, 0)
            self._front.check(context, name, params.get("version"))
        except OverloadedError as error:
            self._watch_until = now + _WATCH_SECONDS
            self._front.refused(context, error)
            seconds = time.monotonic() - now
            self._front.metrics.request_finished(route.dialect, int(error.status), seconds)
            reply = error_reply(error, context.request_id, route.errors)
            return rendered(reply, context.request_id)
        except GatewayError:
            return None
        if not self._let_in:
            asyncio.get_running_loop().call_soon(self._let_in.clear)
        self._let_in[name] = self._let_in.get(name, 0) + 1
        return None


def _endpoint(route: Route, params: Mapping[str, str], body: bytes | None) -> str | None:
    """Whose texts a request brings; None for another kind of request, or while it can't be told."""
    if not route.predicts:
        return None
    if route.endpoint_in is None:
        return params["endpoint"]
    return None if body is None else route.endpoint_in(body)
