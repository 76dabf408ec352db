"""What happens to a prediction before it is begun: it begins, waits its turn, or is refused.

``app.py`` asks ``turn`` at the start of each request that brings texts. While the gateway refuses,
``http/server.py`` asks ``refusal`` as soon as it has the headers, before there is a task, a scope's
copy or a body: under a flood most requests are refused, and what that costs is taken from those
that are answered. Both say no in the same words, by the same checks (``Front.enter``), and count
alike. Nothing here reads a body, and whatever else is wrong with a request is left to its handler.
"""

import asyncio
import time
from collections.abc import Mapping

from gateway.errors import GatewayError, OverloadedError
from gateway.front import Front
from gateway.http.replies import error_reply, rendered
from gateway.http.router import Route, Router
from gateway.request_context import RequestContext, new_request_id
from gateway.turns import Turns

# A request that would wait longer than this to be begun is refused when it comes.
_LONGEST_WAIT_SECONDS = 0.25
# So long after a refusal, others are looked for before requests have become tasks.
_WATCH_SECONDS = 0.05


class Shedding:
    """Decides on new requests of one process. Belongs to its event loop."""

    def __init__(self, router: Router, front: Front) -> None:
        self._router = router
        self._front = front
        self._turns = Turns()
        self._watch_until = 0.0
        self._leaving = False
        # Requests of this turn of the loop, by endpoint, whose tasks have not begun: all that is
        # ready is read before any task runs, and would otherwise find the same room.
        self._let_in: dict[str, int] = {}

    async def turn(self, context: RequestContext, route: Route, params: dict[str, str]) -> None:
        """Lets a request begin, at once or after those that came before it.

        Raises:
            OverloadedError: that would take too long, or there would be no room for it then.
            GatewayError: what ``Front.enter`` refuses otherwise.
        """
        if self._turns.try_now():
            return
        name = params.get("endpoint", "") if route.predicts else ""
        self._look(context, name)
        if name:
            self._front.enter(context, name)
        elif context.crowded:
            return  # its handler refuses it, once it knows for which endpoint
        await self._turns.wait(name)
        context.ahead = 0

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

    def refusal(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> bytes | None:
        """The answer with which to refuse a request now, whole; None to let it come in.

        Args:
            method: as it was sent.
            path: unquoted, without the query.
            headers: lower-case names; of a repeated header the last value.
        """
        now = time.monotonic()
        try:
            route, params = self._router.find(method, path)
            if not route.predicts:
                return None
            name = params["endpoint"]
            context = RequestContext(new_request_id(), time.time(), now)
            context.read(headers)
            self._look(context, name)
            context.ahead += self._let_in.get(name, 0)
            self._front.enter(context, name)
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

    def _look(self, context: RequestContext, name: str) -> None:
        """Notes how many requests wait before this one."""
        context.ahead = self._turns.waiting_of(name)
        context.crowded = self._turns.wait_seconds(name) > _LONGEST_WAIT_SECONDS
