"""Gateways hear each other's reports over UDP, and nobody else's."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.batching.bulk import BulkShare
from gateway.state.bulk_reports import BulkReports
from gateway.state.peers import LOOPBACK


class Gateway:
    """A share, its reports and the port that they have."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.share = BulkShare(wall_clock=lambda: 0.5 + (self.share.rank or 0))  # always its turn
        self.reports = BulkReports(self.share, clock)
        self.port = 0


@asynccontextmanager
async def gateways(
    *hosts: str, clock: Callable[[], float] = lambda: 0.0
) -> AsyncIterator[list[Gateway]]:
    """Gateways that know each other, the first one with bulk requests."""
    found = [Gateway(clock) for _ in hosts]
    for host, each in zip(hosts, found, strict=True):
        each.port = await each.reports.open(host, 0)
        assert each.port
    for rank, each in enumerate(found):
        each.share.gateways, each.share.rank = len(found), rank
        each.reports.follow((LOOPBACK, other.port) for other in found if other is not each)
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
    if first == "::" and not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    loop = asyncio.get_running_loop()
    async with gateways(first, LOOPBACK, LOOPBACK, clock=loop.time) as (one, two, three):
        await until(lambda: two.share.measures(loop.time()) and three.share.measures(loop.time()))
        for _ in range(1000):
            two.share.note_answer(loop.time(), "e", 0.02)
        await until(lambda: one.share.most_seconds(loop.time(), 0.001) is not None)
        assert one.share.most_seconds(loop.time(), 0.001) == pytest.approx(0.55 * 0.02, rel=0.3)


async def test_what_a_stranger_or_nobody_sends_is_not_heard() -> None:
    async with gateways(LOOPBACK, LOOPBACK) as (one, two):
        two.reports.follow(())  # it does not know the first one, so it does not answer
        stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with stranger:
            stranger.setblocking(False)
            stranger.bind((LOOPBACK, 0))
            stranger.sendto(b"[true,true,{}]", (LOOPBACK, one.port))
            one.reports.ask()
            await asyncio.sleep(0)
            two.reports.follow([(LOOPBACK, one.port)])
            await until(lambda: two.share.measures(0.0))
            with pytest.raises(BlockingIOError):
                stranger.recvfrom(1000)


@given(
    st.binary(max_size=200)
    | st.builds(
        msgspec.json.encode,
        st.recursive(
            st.none()
            | st.booleans()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(),
            lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(), each, max_size=3),
            max_leaves=8,
        ),
    )
)
def test_a_datagram_of_any_bytes_is_heard_or_ignored(data: bytes) -> None:
    share = BulkShare(wall_clock=lambda: 0.5)
    share.gateways = 2
    reports = BulkReports(share, lambda: 0.0)
    reports.follow([("10.0.0.2", 9310)])
    reports.datagram_received(data, ("10.0.0.2", 9310))
    most = share.most_seconds(0.0, 0.001)
    assert most is None or most > 0


async def test_gateways_that_say_nothing_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    async with gateways(LOOPBACK, LOOPBACK, clock=lambda: now) as (one, two):
        two.reports.follow(())
        caplog.set_level(logging.WARNING)
        one.reports.ask()
        assert not caplog.records
        now = 6.0
        one.reports.ask()
        one.reports.ask()
        (record,) = caplog.records
        assert vars(record)["gateways"] == [f"{LOOPBACK}:{two.port}"]


async def test_a_port_that_is_taken_is_said_and_the_gateway_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind((LOOPBACK, 0))
        reports = BulkReports(BulkShare())
        assert await reports.open(LOOPBACK, taken.getsockname()[1]) == 0
    assert "can't be heard" in caplog.text
    reports.follow([(LOOPBACK, 9)])
    reports.ask()
