"""Tells other gateways over UDP whether there are callers here, while one has bulk requests.

The one that has them asks all others a few times a second, and each answers; see
``gateway.batching.bulk``. A datagram that is lost, or is none of ours, is one that has not come.
"""

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from ipaddress import ip_address
from math import inf
from time import monotonic
from typing import Annotated, cast

import msgspec

from gateway.batching.bulk import HEARD_SECONDS, BulkShare, GatewayReport
from gateway.state.peers import Address, Peers

log = logging.getLogger(__name__)

EVERY_SECONDS = 0.1
_SILENT_SECONDS = 5.0  # until a gateway that says nothing is named
_MOST_TRITONS = 40  # of a datagram, which is to fit into one frame: the busiest
_LEAST_P99, _MOST_P99 = 1e-5, 3600.0  # seconds
_MAPPED = "::ffff:"  # an IPv4 address to a socket of IPv6


_Triton = Annotated[str, msgspec.Meta(max_length=300)]
_Amount = Annotated[float, msgspec.Meta(ge=0, le=10**9)]


class ReportDatagram(msgspec.Struct, array_like=True):
    """One datagram: whether the other is asked, and a report.

    Attributes:
        sender: a number of the process; a gateway may ask itself, as it need not know its address.
        asks: for a datagram that asks for none.
        wants: see ``GatewayReport``, as are ``spared``, ``p99``, ``busy`` and ``rate``.
    """

    sender: str
    asks: bool
    wants: bool
    spared: bool
    p99: Annotated[float, msgspec.Meta(ge=_LEAST_P99, le=_MOST_P99)] | None
    busy: Annotated[dict[_Triton, _Amount], msgspec.Meta(max_length=_MOST_TRITONS)]
    rate: _Amount


_DECODER = msgspec.json.Decoder(ReportDatagram)


class BulkReports(asyncio.DatagramProtocol):
    """Asks, answers and hears other gateways.

    Args:
        share: whose reports are told, and which hears those of others.
        clock: the event loop's, seconds.
    """

    def __init__(self, share: BulkShare, clock: Callable[[], float] = monotonic) -> None:
        self._share = share
        self._clock = clock
        self._sender = secrets.token_hex(8)
        self._transport: asyncio.DatagramTransport | None = None
        self._family = socket.AF_INET
        self._others: dict[str, Address] = {}  # by what their datagrams come from
        self._heard: dict[str, float] = {}
        self._own = ""  # its own address among these, once it is known
        self._gateways = 1
        self._asked = 0.0  # when last
        self._told_until = -inf  # another is told at once of callers that come
        self._silent: list[str] = []
        share.tell = self._tell

    async def open(self, host: str, port: int) -> int:
        """Listens; gives the port, or 0 if it can't, which is logged."""
        self._share.gateways = 2  # until it is known, there may be others
        families = [(host, socket.AF_INET)]
        if ":" in host:  # which a machine may not have
            families = [(host, socket.AF_INET6), *[("0.0.0.0", socket.AF_INET)] * (host == "::")]
        for bound, family in families:
            try:
                listener = await self._listen(bound, port, family)
            except OSError as error:
                log.warning("other gateways can't be heard", extra={"reason": str(error)})
            else:
                self._family = family
                return int(listener.getsockname()[1])
        return 0

    async def _listen(self, host: str, port: int, family: socket.AddressFamily) -> socket.socket:
        listener = socket.socket(family, socket.SOCK_DGRAM)
        try:
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listener.bind((host, port))
            loop = asyncio.get_running_loop()
            await loop.create_datagram_endpoint(lambda: self, sock=listener)
        except OSError:
            listener.close()
            raise
        return listener

    def follow(self, peers: Peers) -> None:
        """Takes which other gateways there are."""
        self._gateways = peers.gateways
        others: dict[str, Address] = {}
        for each in peers.others:
            with suppress(ValueError):  # a name, where none can be asked
                others[_name(each)] = each
        self._share.forget(self._others.keys() - others.keys())
        now = self._clock()
        self._others = others
        self._heard = {name: self._heard.get(name, now) for name in others}
        self._count()

    def _count(self) -> None:
        """Tells how many gateways there are, those among them that end; this one need not be."""
        self._share.gateways = max(self._gateways, 1 + len(self._others.keys() - {self._own}))

    async def run(self) -> None:
        """Asks while there are bulk requests, until it is cancelled."""
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            if self._share.jobs and self._share.gateways > 1:
                try:
                    self.ask()
                except Exception:
                    log.exception("other gateways can't be asked")
                    await asyncio.sleep(_SILENT_SECONDS)

    def ask(self) -> None:
        """Asks every other gateway, and logs it if one is not heard for long."""
        now = self._clock()
        if now - self._asked > 10 * EVERY_SECONDS:  # none was asked, so that none has answered
            self._heard = dict.fromkeys(self._heard, now)
        self._asked = now
        self._send(self._others.values(), now, asks=True)
        silent = sorted(name for name, at in self._heard.items() if now - at > _SILENT_SECONDS)
        if silent and silent != self._silent:
            log.warning(
                "bulk requests are slowed down for gateways that say nothing over UDP",
                extra={"gateways": ", ".join(silent)},
            )
        self._silent = silent

    def close(self) -> None:
        """Hears and tells nothing any more."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.DatagramProtocol``."""
        # uvloop's is of no such class.
        self._transport = cast("asyncio.DatagramTransport", transport)

    def connection_lost(self, _: Exception | None) -> None:
        """The loop has closed it."""
        self._transport = None

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
        except (msgspec.DecodeError, ValueError, RecursionError):  # UTF-8, depth
            return
        now = self._clock()
        self._heard[name] = now
        if message.sender == self._sender:
            self._own = name
            self._count()
            return
        _, _, wants, spared, p99, busy, rate = msgspec.structs.astuple(message)
        self._share.hear(now, name, GatewayReport(spared, p99, wants, busy, rate))
        if message.asks:
            self._told_until = now + HEARD_SECONDS
            if not self._share.jobs:  # else it is told soon
                self._send([other], now, asks=False)

    def _tell(self) -> None:
        now = self._clock()
        if now < self._told_until:
            self._send(self._others.values(), now, asks=False)

    def _send(self, others: Iterable[Address], now: float, *, asks: bool) -> None:
        if self._transport is None:
            return
        it = self._share.report(now)
        p99 = None if it.p99 is None else min(max(it.p99, _LEAST_P99), _MOST_P99)
        busiest = sorted(it.busy.items(), key=lambda each: each[1])[-_MOST_TRITONS:]
        busy = {triton: round(each, 4) for triton, each in busiest}
        message = ReportDatagram(self._sender, asks, it.wants, it.spared, p99, busy, it.rate)
        data = msgspec.json.encode(message)
        for host, port in others:
            if self._family == socket.AF_INET6 and ":" not in host:
                self._transport.sendto(data, (_MAPPED + host, port))
            elif self._family == socket.AF_INET6 or ":" not in host:
                self._transport.sendto(data, (host, port))


def _name(address: tuple[str, int]) -> str:
    host = ip_address(address[0].partition("%")[0])
    if host.version == 6 and host.ipv4_mapped is not None:
        host = host.ipv4_mapped
    return f"[{host}]:{address[1]}" if host.version == 6 else f"{host}:{address[1]}"
