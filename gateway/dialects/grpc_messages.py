"""Reads the messages of gRPC calls within the budget of all callers, each with a deadline.

gRPC tells nothing of a message before it is there, so that each one being read counts as the
largest that may come; once it is there, as what it has. Calls beyond the budget wait in their
order. A call that takes its time is then worth less than one that waits: where the budget is spent,
reads that have lasted for a while are ended, the oldest first. A usual message is there with its
call, and never meets any of this.
"""

import asyncio
from collections import OrderedDict, deque

import grpc

from gateway.admission.byte_budget import ByteBudget
from gateway.errors import ClientGoneError, OverloadedError, RequestTimeoutError
from gateway.http.body import HttpLimits

# gRPC's core holds a message's bytes, and hands over a copy.
_COPIES = 2
# How long a message may take to arrive while others wait for room.
_CROWDED_SECONDS = 0.25
_MOST_WAITING = 1024


class MessageReader:
    """The messages of all calls of one server. For its event loop only.

    Args:
        limits: of a message, and of the time that it takes.
        held: what all callers hold.
    """

    def __init__(self, limits: HttpLimits, held: ByteBudget) -> None:
        self._largest_bytes = _COPIES * limits.max_body_bytes
        self._held = held
        held.on_release.append(self._admit)
        self._seconds = limits.body_seconds
        # Reads in the order in which they began; the value is when, by the loop's clock. Those that
        # were told to hurry are no longer here.
        self._unhurried: OrderedDict[asyncio.Timeout, float] = OrderedDict()
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def read(self, context: grpc.aio.ServicerContext) -> bytes:
        """The message of a call; ``release`` must be told its length once it is forgotten.

        Raises:
            OverloadedError: too many calls wait for room.
            RequestTimeoutError: the message did not arrive in time.
            ClientGoneError: there is none, or it is larger than the server takes.
        """
        await self._take_room()
        left = self._largest_bytes
        try:
            message = await self._received(context)
            left -= len(message)
            return message
        finally:
            self.release(left)

    def release(self, size: int) -> None:
        """Gives room back, to the calls that wait first."""
        self._held.add(-size)

    def _admit(self) -> None:
        while self._waiting and self._held.fits(self._largest_bytes):
            waiting = self._waiting.popleft()
            if not waiting.done():
                self._held.add(self._largest_bytes)
                waiting.set_result(None)

    async def _take_room(self) -> None:
        if self._waiting or not self._held.fits(self._largest_bytes):
            if len(self._waiting) >= _MOST_WAITING:
                raise OverloadedError("Too many messages are being read; try again.")
            loop = asyncio.get_running_loop()
            self._hurry(loop.time())
            waiting: asyncio.Future[None] = loop.create_future()
            self._waiting.append(waiting)
            try:
                await waiting  # the room is then this call's
            except asyncio.CancelledError:
                if waiting.done() and not waiting.cancelled():
                    self.release(self._largest_bytes)
                raise
        else:
            self._held.add(self._largest_bytes)

    def _hurry(self, now: float) -> None:
        """Gives the oldest read that has its full time only a little of it."""
        if self._unhurried:
            timeout, began = self._unhurried.popitem(last=False)
            timeout.reschedule(max(now, began + _CROWDED_SECONDS))

    async def _received(self, context: grpc.aio.ServicerContext) -> bytes:
        began = asyncio.get_running_loop().time()
        hurried = bool(self._waiting)
        timeout = asyncio.timeout_at(began + (_CROWDED_SECONDS if hurried else self._seconds))
        try:
            async with timeout:
                if not hurried:
                    self._unhurried[timeout] = began
                message = await context.read()
        except TimeoutError:
            raise RequestTimeoutError("The message did not arrive in time.") from None
        finally:
            self._unhurried.pop(timeout, None)
        if not isinstance(message, bytes):
            raise ClientGoneError
        return message
