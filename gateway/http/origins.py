"""Which pages in browsers may ask and read answers: the Fetch standard's CORS.

A browser asks first (a preflight: no key, no body), and shows an answer to its page only if the
answer names the page's origin. Credentials that a browser adds by itself, such as cookies, are
never allowed: a page sends its key in a header, which it has to know. So every origin (``*``) may
be allowed without giving anything away. Nothing here refuses a request that is no preflight: others
than browsers send an origin too. Starlette's middleware would see neither whole POSTs nor early
refusals, which are answered before ASGI.
"""

from collections.abc import Iterable, Mapping, Sequence

from gateway.errors import ForbiddenError
from gateway.http.error_replies import ErrorForm, error_reply
from gateway.http.messages import Headers, Reply, StreamReply
from gateway.request_context import new_request_id
from service.origins import ANY

_HEADER, _METHOD = b"origin", b"access-control-request-method"
_VARY = (b"vary", b"origin")
_PREFLIGHT_SECONDS = b"7200"  # the longest that Chromium keeps an answer to a preflight


class AllowedOrigins:
    """The origins whose pages may ask one application.

    Args:
        origins: as ``read_origins`` makes them.
        methods: that the application's routes have.
    """

    def __init__(self, origins: Sequence[str], methods: Iterable[str]) -> None:
        self._origins = {origin.encode() for origin in origins}
        self._any = origins == (ANY,)
        self._methods = ", ".join(sorted(methods)).encode()

    def mark(self, method: str, headers: Mapping[bytes, bytes], reply: Reply | StreamReply) -> None:
        """Lets the page that asked read a reply, if it may."""
        origin = headers.get(_HEADER)
        if origin is None:
            if method != "POST" and not self._any:  # a cache may keep it for a page
                reply.headers = [*reply.headers, _VARY]
        elif allowed := self._allowance(origin):
            exposed = (b"access-control-expose-headers", b"*")
            reply.headers = [*reply.headers, *allowed, exposed]
        else:
            reply.headers = [*reply.headers, _VARY]

    def preflight(self, headers: Mapping[bytes, bytes]) -> Reply | None:
        """The answer to a browser that asks whether a page may ask; None to another request."""
        origin = headers.get(_HEADER)
        if origin is None or _METHOD not in headers:
            return None
        allowed = self._allowance(origin)
        if not allowed:
            error = ForbiddenError(
                "Pages of this origin may not ask: an operator names those that may in the "
                "gateway's allowed-origins."
            )
            reply = error_reply(error, new_request_id(), ErrorForm.OBJECT)
            reply.headers.append(_VARY)
            return reply
        return Reply(
            b"",
            status=204,
            headers=[
                *allowed,
                (b"access-control-allow-methods", self._methods),
                # The star does not stand for authorization.
                (b"access-control-allow-headers", b"authorization, *"),
                (b"access-control-max-age", _PREFLIGHT_SECONDS),
            ],
        )

    def _allowance(self, origin: bytes) -> Headers:
        """The headers that allow an origin; none if it is not allowed."""
        if self._any:
            return [(b"access-control-allow-origin", b"*")]
        if origin not in self._origins:
            return []
        return [(b"access-control-allow-origin", origin), _VARY]
