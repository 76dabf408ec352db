"""Tells other gateways over UDP what is known of interactive requests, while one has bulk ones.

The one that has them asks all others a few times a second, and each answers; see
``gateway.batching.bulk``. A datagram that is lost, or is none of ours, is one that has not come.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Annotated, cast

import msgspec

from gateway.batching.bulk import BulkShare, EndpointReport, GatewayReport
from gateway.state.peers import Address

log = logging.getLogger(__name__)

EVERY_SECONDS = 0.1
_MOST_ENDPOINTS = 64  # of a datagram: those of which the fewest requests may still be slow
_SILENT_SECONDS = 5.0  # until a gateway that says nothing is named
_MAPPED = "::ffff:"  # an IPv4 address to a socket of IPv6

_Positive = Annotated[float, msgspec.Meta(gt=0)]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Message(msgspec.Struct, array_like=True):
    """One datagram: whether the other is asked, and a report; an endpoint's are p99, seen, room."""

    asks: bool
    known: bool
    endpoints: dict[str, tuple[_Positive, _Count, float]]


_DECODER = msgspec.json.Decoder(_Message)


class BulkReports(asyncio.DatagramProtocol):
    """Asks, answers and hears other gateways.

    Args:
        share: whose reports are told, and which hears those of others.
        clock: the event loop's, seconds.
    """

    def __init__(self, share: BulkShare, clock: Callable[[], float] = monotonic) -> None:
        self._share = share
        self._clock = clock
        self._transport: asyncio.DatagramTransport | None = None
        self._others: dict[str, Address] = {}  # by what their datagrams come from
        self._heard: dict[str, float] = {}
        self._silent = False

    async def open(self, host: str, port: int) -> int:
        """Listens; gives the port, or 0 if it can't, which is logged."""
        loop = asyncio.get_running_loop()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_DGRAM)
        try:
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listener.bind((host, port))
            await loop.create_datagram_endpoint(lambda: self, sock=listener)
        except OSError as error:
            listener.close()
            log.warning("other gateways can't be heard", extra={"reason": str(error)})
            return 0
        bound: int = listener.getsockname()[1]
        return bound

    def follow(self, others: Iterable[Address]) -> None:
        """Takes where the other gateways are."""
        self._others = {_name(each): each for each in others}
        now = self._clock()
        self._heard = {name: self._heard.get(name, now) for name in self._others}

    async def run(self) -> None:
        """Asks while there are bulk requests, until it is cancelled."""
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            if self._share.jobs:
                self.ask()

    def close(self) -> None:
        """Hears and tells nothing any more."""
        if self._transport is not None:
            self._transport.close()

    def ask(self) -> None:
        """Asks every other gateway, and logs those that have not answered for long."""
        now = self._clock()
        for other in self._others.values():
            self._send(other, now, asks=True)
        silent = [name for name, at in self._heard.items() if now - at > _SILENT_SECONDS]
        if silent and not self._silent:
            log.warning(
                "bulk requests wait: other gateways do not say what they know",
                extra={"gateways": silent, "port": "the operations port, UDP"},
            )
        self._silent = bool(silent)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.DatagramProtocol``."""
        self._transport = cast(
            "asyncio.DatagramTransport", transport
        )  # uvloop's is of no such class

    def error_received(self, exc: Exception) -> None:
        """A gateway has just left."""

    def datagram_received(self, data: bytes, addr: Address) -> None:
        """Hears a report of another gateway, and answers it if it asks."""
        name = _name(addr)
        other = self._others.get(name)
        if other is None:
            return
        try:
            message = _DECODER.decode(data)
        except msgspec.DecodeError:
            return
        now = self._clock()
        self._heard[name] = now
        found = {key: EndpointReport(*each) for key, each in message.endpoints.items()}
        self._share.hear(now, name, GatewayReport(found, message.known))
        if message.asks:
            self._send(other, now, asks=False)

    def _send(self, other: Address, now: float, *, asks: bool) -> None:
        if self._transport is None:
            return
        report = self._share.report(now)
        fewest = sorted(report.endpoints.items(), key=lambda each: each[1].room)[:_MOST_ENDPOINTS]
        endpoints = {name: (each.p99, each.seen, each.room) for name, each in fewest}
        host, port = other
        mapped = ":" in self._transport.get_extra_info("sockname")[0] and ":" not in host
        self._transport.sendto(
            msgspec.json.encode(_Message(asks, report.known, endpoints)),
            (f"{_MAPPED}{host}" if mapped else host, port),
        )


def _name(address: tuple[str, int]) -> str:
    host = address[0].removeprefix(_MAPPED)
    return f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"
