"""Gateways hear each other's reports over UDP, and nobody else's."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.batching.bulk import LONG_SECONDS, BulkShare
from gateway.state.bulk_reports import BulkReports, ReportDatagram
from gateway.state.peers import LOOPBACK, Address, Peers


class CountedReports(BulkReports):
    """Keeps where datagrams came from."""

    def __init__(self, share: BulkShare, clock: Callable[[], float]) -> None:
        super().__init__(share, clock)
        self.datagrams: list[int] = []  # the ports that they came from

    def datagram_received(self, data: bytes, addr: Address) -> None:
        super().datagram_received(data, addr)
        self.datagrams.append(addr[1])


class Gateway:
    """A share, its reports and the port that they have."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.share = BulkShare()
        self.reports = CountedReports(self.share, clock)
        self.port = 0


def know(gateways: list[Gateway]) -> None:
    """Has each follow all, itself among them, as in a cluster."""
    for each in gateways:
        each.reports.follow(Peers(len(gateways), frozenset((LOOPBACK, g.port) for g in gateways)))


@asynccontextmanager
async def gateways(
    *hosts: str, clock: Callable[[], float] = lambda: 0.0
) -> AsyncIterator[list[Gateway]]:
    """Gateways that know each other, the first one with bulk requests."""
    found = [Gateway(clock) for _ in hosts]
    for host, each in zip(hosts, found, strict=True):
        each.port = await each.reports.open(host, 0)
        assert each.port
    know(found)
    found[0].share.jobs = 1
    tasks = [asyncio.create_task(each.reports.run()) for each in found]
    try:
        yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in found:
            each.reports.close()
        await asyncio.sleep(0)


async def until(holds: Callable[[], bool]) -> None:
    """Datagrams have no event of their own to wait for."""
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("first", [LOOPBACK, "::"])
async def test_a_gateway_with_bulk_requests_asks_all_others_and_they_measure(first: str) -> None:
    loop = asyncio.get_running_loop()
    async with gateways(first, LOOPBACK, LOOPBACK, clock=loop.time) as (one, two, three):
        await until(lambda: two.share.measures(loop.time()) and three.share.measures(loop.time()))
        await until(lambda: {two.port, three.port} <= set(one.reports.datagrams))
        assert spares_nobody(one.share, loop.time())
        for _ in range(1000):
            two.share.note_answer(loop.time(), "e", 0.003)

        def spares_them() -> bool:
            for _ in range(100):
                two.share.note_asked(loop.time())
            two.share.note_work(loop.time(), 0.05)
            most = one.share.most_seconds(loop.time(), 0.001)
            return most == pytest.approx(0.6 * 0.003, rel=0.3)

        await until(spares_them)


def spares_nobody(share: BulkShare, now: float) -> bool:
    """Batches begin, however many have begun."""
    share.most_seconds(now, 0.001)
    share.note_begin(now, 1.0)
    return share.most_seconds(now, 0.001) is not None


async def test_callers_that_come_are_told_of_at_once() -> None:
    async with gateways(LOOPBACK, LOOPBACK) as (one, two):
        await until(lambda: two.port in one.reports.datagrams)
        assert spares_nobody(one.share, 0.0)
        one.share.jobs = 0  # it asks no more
        heard = len(one.reports.datagrams)
        two.share.note_asked(0.0)
        await until(lambda: len(one.reports.datagrams) > heard)
        assert not spares_nobody(one.share, 0.0)


async def test_what_a_stranger_sends_is_neither_heard_nor_answered() -> None:
    async with gateways(LOOPBACK, LOOPBACK) as (one, two):
        one.share.jobs = 0
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.setblocking(False)
            stranger.bind((LOOPBACK, 0))
            two.reports.follow(Peers(2, frozenset({stranger.getsockname()})))
            stranger.sendto(STRANGE, (LOOPBACK, one.port))
            stranger.sendto(STRANGE, (LOOPBACK, two.port))
            await until(lambda: two.share.measures(0.0))  # it has heard of it, and answers
            heard: list[tuple[bytes, object]] = []
            await until(lambda: bool(heard) or _receive(stranger, heard))
            assert msgspec.json.decode(heard[0][0])[1] is False
            assert heard[0][1] == (LOOPBACK, two.port)
            assert not _receive(stranger, heard)
            assert not one.share.measures(0.0)


def _receive(listener: socket.socket, found: list[tuple[bytes, object]]) -> bool:
    try:
        found.append(listener.recvfrom(2000))
    except BlockingIOError:
        return False
    return True


STRANGE = b'["another",true,true,true,null,{},7.0]'
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(), each, max_size=3),
    max_leaves=8,
)
MESSAGES = st.builds(
    ReportDatagram,
    st.text(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.none() | st.floats(1e-4, 3600) | st.floats(),
    st.dictionaries(st.text(max_size=300), st.floats(0, 10**9) | st.floats(), max_size=42),
    st.floats(0, 10**9) | st.floats(),
)


@settings(max_examples=300)
@given(st.binary(max_size=200) | (JSON | MESSAGES).map(msgspec.json.encode))
@example(b'["\xff",true,true,true,null,{},7.0]')
@example(b'["a",true,true,true,null,{},7.0,' + b"[" * 100_000)
@example(b'["a",true,true,true,null,{},7.0,' + b"[" * 5000 + b"]" * 5000 + b"]")
def test_a_datagram_of_any_bytes_is_heard_or_ignored(data: bytes) -> None:
    share = BulkShare()
    reports = BulkReports(share, lambda: 0.0)
    reports.follow(Peers(2, frozenset({("10.0.0.2", 9310)})))
    reports.datagram_received(data, ("10.0.0.2", 9310))
    share.note_asked(0.0)
    share.note_answer(0.0, "e", 0.1)
    most = share.most_seconds(0.0, 0.001)
    assert most is None or 0 < most < 3600
    assert 1 <= share.most_tritons(0.0, 8) <= 7


async def test_a_datagram_of_many_tritons_fits_into_a_frame_and_names_the_busiest() -> None:
    async with gateways(LOOPBACK, LOOPBACK) as (_, two):
        for number in range(200):
            two.share.note_work(0.0, number / 1000, f"10.100.200.{number}:8001")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.setblocking(False)
            other.bind((LOOPBACK, 0))
            two.reports.follow(Peers(2, frozenset({other.getsockname()})))
            other.sendto(STRANGE, (LOOPBACK, two.port))
            heard: list[tuple[bytes, object]] = []
            await until(lambda: bool(heard) or _receive(other, heard))
        assert len(heard[0][0]) < 1400
        busy = msgspec.json.decode(heard[0][0], type=ReportDatagram).busy
        assert busy["10.100.200.199:8001"] == 0.199
        assert "10.100.200.1:8001" not in busy


async def test_gateways_that_say_nothing_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    now = 3600.0  # nobody was asked for an hour
    async with gateways(LOOPBACK, LOOPBACK, clock=lambda: now) as (one, two):
        two.reports.follow(Peers(1))
        one.reports.follow(Peers(2, frozenset({(LOOPBACK, two.port)})))
        caplog.set_level(logging.WARNING)
        one.reports.ask()
        assert not caplog.records
        for now in (3600.9, 3601.8, 3602.7, 3603.6, 3604.5, 3605.4, 3606.3):  # noqa: B007
            one.reports.ask()
        (said,) = [vars(record)["gateways"] for record in caplog.records]
        assert said == f"{LOOPBACK}:{two.port}"


async def test_a_gateway_does_not_take_itself_for_another() -> None:
    async with gateways(LOOPBACK, LOOPBACK) as (one, two):
        two.reports.close()
        one.share.note_asked(0.0)
        for _ in range(200):
            one.share.note_answer(0.0, "e", 0.003)
        one.reports.ask()
        await until(lambda: one.port in one.reports.datagrams)
        assert one.share.gateways == 2
        # The other one, which says nothing, counts as one with callers of an unknown p99.
        assert one.share.most_seconds(0.0, 0.001) is None  # it is waited for
        assert one.share.most_seconds(0.9, 0.001) == LONG_SECONDS
        one.reports.follow(Peers(1, frozenset({(LOOPBACK, one.port)})))
        assert one.share.gateways == 1


async def test_gateways_that_end_count_though_none_of_them_is_ready() -> None:
    async with gateways(LOOPBACK, LOOPBACK) as (one, two):
        both = frozenset({(LOOPBACK, one.port), (LOOPBACK, two.port)})
        await until(lambda: one.port in one.reports.datagrams)
        for others in (both, both - {(LOOPBACK, one.port)}):
            one.reports.follow(Peers(1, others))
            assert one.share.gateways == 2


async def test_gateways_of_both_families_are_asked_where_there_is_a_way() -> None:
    """None can be asked whose address is of a family that this one does not listen on."""
    async with gateways(LOOPBACK, LOOPBACK, clock=lambda: 0.0) as (one, two):
        others = frozenset({("::1", 9), ("a.name", 9), (LOOPBACK, two.port)})
        one.reports.follow(Peers(4, others))
        one.reports.ask()
        await until(lambda: two.share.measures(0.0))


async def test_a_port_that_is_taken_is_said_and_the_gateway_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((LOOPBACK, 0))
        share = BulkShare()
        reports = BulkReports(share)
        assert await reports.open(LOOPBACK, taken.getsockname()[1]) == 0
    assert share.gateways == 2  # as long as it is not known
    assert "can't be heard" in caplog.text
    reports.follow(Peers(2, frozenset({(LOOPBACK, 9)})))
    reports.ask()
