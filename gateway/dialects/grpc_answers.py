"""Answers over gRPC, from their handler's end until the caller has taken them.

gRPC's library takes an answer from its handler and tells nobody when it has left: with a window of
no bytes, never. It keeps what the handler returned until then, so that the end of that object is
what is waited for.
"""

from collections.abc import Callable
from urllib.parse import unquote

import grpc

from gateway.http.untaken import AnswerBytes, UntakenAnswers

# What the handler returned, and the copy of gRPC's core.
_COPIES = 2
# Of a call, beside its answer: the library's objects, among them its metadata in pieces.
_CALL_BYTES = 64 * 1024

HangUp = Callable[[str, int], None]


class Sending:
    """An answer as its handler returns it, which is held for as long as this object lives."""

    __slots__ = ("_held", "_untaken", "content")

    def __init__(self, content: bytes, held: "HeldAnswer", untaken: UntakenAnswers) -> None:
        self.content = content
        self._held = held
        self._untaken = untaken
        untaken.hold(held)

    def __del__(self) -> None:
        self._untaken.release(self._held)


class HeldAnswer:
    """What an answer holds, and the connection that goes with it. See ``Holder``."""

    __slots__ = ("_bytes", "_context", "_hang_up")

    def __init__(self, size: int, context: grpc.aio.ServicerContext, hang_up: HangUp) -> None:
        self._bytes = _COPIES * size + _CALL_BYTES
        self._context = context
        self._hang_up = hang_up

    def answer_bytes(self) -> AnswerBytes:
        """All of it, and nothing taken: what has left of an answer is not to be seen."""
        return AnswerBytes(held=self._bytes, taken=0, given=self._bytes)

    def abort(self) -> None:
        """Has the connection hung up on, which ends its other calls too."""
        address = address_of(self._context.peer())
        if address is not None:
            self._hang_up(*address)


class Answers:
    """The answers of one server. For its event loop only.

    Args:
        untaken: bounds what they hold.
        hang_up: ends the connection of a peer, by host and port.
    """

    def __init__(self, untaken: UntakenAnswers, hang_up: HangUp) -> None:
        self._untaken = untaken
        self._hang_up = hang_up

    def sending(self, content: bytes, context: grpc.aio.ServicerContext) -> Sending:
        """An answer that is on its way from now on; see ``serialised``."""
        return Sending(content, HeldAnswer(len(content), context, self._hang_up), self._untaken)


def serialised(sending: Sending) -> bytes:
    """The serialiser of methods that return what ``Answers.sending`` gives."""
    return sending.content


def address_of(peer: str) -> tuple[str, int] | None:
    """Host and port of a peer as gRPC writes it; None for one that is none of TCP's.

    >>> address_of("ipv4:192.0.2.7:4711"), address_of("ipv6:%5B2001:db8::1%5D:4711")
    (('192.0.2.7', 4711), ('2001:db8::1', 4711))
    """
    kind, _, rest = peer.partition(":")
    host, _, port = unquote(rest).rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdigit():
        return None
    return host.strip("[]"), int(port)
