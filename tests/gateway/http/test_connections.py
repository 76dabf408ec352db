"""Which connections go when there are as many as a server may have, and which never do."""

from dataclasses import dataclass

import pytest
from connection_fakes import POST, Connected, Loop
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.body import HttpLimits
from gateway.http.connections import Connections, Waits, peer_of
from gateway.http.sending import Sending


@dataclass(eq=False)
class One:
    """A connection that says what it waits for."""

    waiting: tuple[Waits, float] | None = None
    aborted: bool = False

    def waits(self) -> tuple[Waits, float] | None:
        return self.waiting

    def make_way(self) -> None:
        self.aborted = True


def connections(most: int, most_of_peer: int = 0) -> Connections:
    times = iter(range(1_000_000))  # a second goes by between two looks
    return Connections(most, most_of_peer, lambda: float(next(times)))


def test_the_one_that_waits_longest_goes_and_one_that_has_asked_nothing_goes_first() -> None:
    asked = One((Waits.NEXT_REQUEST, 1.0))
    silent, older = One((Waits.HEAD, 9.0)), One((Waits.HEAD, 8.0))
    late = One((Waits.BODY, 0.0))
    all_of_them = connections(4)
    assert all(all_of_them.admit(one, "a") for one in (asked, silent, older, late))
    gone: list[One] = []
    for _ in range(4):
        assert all_of_them.admit(One(), "b")
        gone.append(next(one for one in (older, silent, asked, late, *gone) if one.aborted))
        gone[-1].aborted = False
    assert gone == [older, silent, asked, late]
    assert len(all_of_them) == 4


def test_one_whose_request_is_being_answered_stays_and_the_new_one_is_refused() -> None:
    busy = One()
    all_of_them = connections(1)
    assert all_of_them.admit(busy, "a")
    assert not all_of_them.admit(One(), "b")
    assert not busy.aborted
    all_of_them.left(busy)
    assert all_of_them.admit(One(), "b")


def test_a_peer_that_has_its_share_makes_room_by_its_own_connections_alone() -> None:
    others = One((Waits.HEAD, 0.0))
    first, second = One((Waits.NEXT_REQUEST, 1.0)), One()
    all_of_them = connections(8, most_of_peer=2)
    assert all_of_them.admit(others, "other")
    assert all_of_them.admit(first, "a")
    assert all_of_them.admit(second, "a")
    assert all_of_them.admit(One(), "a")
    assert (first.aborted, others.aborted) == (True, False)
    assert not all_of_them.admit(One(), "a")
    assert all_of_them.admit(One(), "b")


def test_nobody_looks_again_at_once_where_there_was_next_to_nothing_to_close() -> None:
    now = [0.0]
    all_of_them = Connections(32, 0, lambda: now[0])
    waiting = [One((Waits.HEAD, 0.0)), *(One() for _ in range(31))]
    assert all(all_of_them.admit(one, "a") for one in waiting)
    assert all_of_them.admit(One((Waits.HEAD, 0.0)), "a")
    assert not all_of_them.admit(One(), "a")
    now[0] = 1.0
    assert all_of_them.admit(One(), "a")


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.none() | st.tuples(st.sampled_from(Waits), st.floats(0, 9))
        )
    ),
    st.integers(1, 6),
    st.integers(0, 6),
)
def test_bounds_hold_and_no_busy_one_is_ever_closed(
    arrivals: list[tuple[str, tuple[Waits, float] | None]], most: int, most_of_peer: int
) -> None:
    all_of_them = connections(most, most_of_peer)
    kept: list[tuple[str, One]] = []
    for peer, waiting in arrivals:
        one = One(waiting)
        if all_of_them.admit(one, peer):
            kept.append((peer, one))
        still = [(peer, one) for peer, one in kept if not one.aborted]
        assert len(still) == len(all_of_them) <= most
        assert all(one.waiting is not None for _, one in kept if one.aborted)
        for name in "abc":
            assert sum(peer == name for peer, _ in still) <= (most_of_peer or most)


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        (("192.0.2.7", 1), "192.0.2.7"),
        (("::ffff:192.0.2.7", 1, 0, 0), "192.0.2.7"),
        (("2001:db8:1:2:3::4", 1, 0, 0), "2001:db8:1:2::"),
        (("fe80::1%eth0", 1, 0, 2), "fe80::"),
        ("", ""),
        (None, ""),
    ],
)
def test_a_peer_is_a_host_or_a_network_of_version_six(address: object, peer: str) -> None:
    assert peer_of(address) == peer


async def test_a_connection_says_what_it_waits_for() -> None:
    connected = Connected(HttpLimits(header_seconds=7, body_seconds=9))
    protocol, loop = connected.protocol, connected.loop
    assert protocol.waits() == (Waits.HEAD, loop.now)
    loop.advance(1)
    connected.ask()
    assert protocol.waits() == (Waits.NEXT_REQUEST, loop.now)
    began = loop.now + 1
    loop.advance(1)
    protocol.data_received(POST[:10])
    loop.advance(1)
    assert protocol.waits() == (Waits.HEAD, began)
    connected.answers.slow = True
    protocol.data_received(POST[10:-2])
    protocol.data_received(POST[-2:])
    connected.answers.slow = True
    connected.ask()
    assert protocol.waits() is None


async def test_a_caller_that_takes_no_answer_loses_its_connection() -> None:
    connected = Connected(HttpLimits(body_seconds=9))
    connected.transport.untaken = 1000
    connected.ask()
    connected.loop.advance(8.9)
    assert not connected.transport.aborted
    connected.loop.advance(0.2)
    assert connected.transport.aborted


class Slow(Sending):
    """Of a caller who takes so much each second, all of which waits in this process."""

    rate = 0
    loop: Loop

    def left(self) -> int:
        return 1_000_000

    def acknowledged(self) -> int:
        return int(self.rate * self.loop.now)


@pytest.mark.parametrize(("rate", "stays"), [(0, False), (1_000, False), (2_000, True)])
async def test_what_a_slow_caller_has_taken_is_what_its_own_system_acknowledged(
    rate: int, *, stays: bool
) -> None:
    """What waits in this process may not get less in all that time: systems take it in pieces."""
    connected = Connected(HttpLimits(body_seconds=10))
    protocol = connected.protocol
    sending = protocol._sending = Slow(connected.transport, protocol._writer)
    sending.rate, sending.loop = rate, connected.loop
    connected.ask()
    connected.loop.advance(60)
    assert connected.transport.aborted != stays


async def test_one_whose_answer_is_on_its_way_goes_after_idle_ones_for_its_time() -> None:
    connected = Connected(HttpLimits(body_seconds=9))
    connected.ask()
    connected.transport.untaken = 1000
    assert connected.protocol.waits() == (Waits.TAKING, connected.loop.now)
    since = connected.loop.now
    connected.loop.advance(9)
    assert connected.protocol.waits() == (Waits.NEXT_REQUEST, since)


async def test_the_last_answer_of_a_connection_is_on_its_way_too() -> None:
    connected = Connected(HttpLimits(body_seconds=9))
    connected.answers.draining = True
    connected.transport.untaken = 1000
    connected.ask()
    assert connected.transport.closed
    assert connected.protocol.waits() == (Waits.TAKING, connected.loop.now)


async def test_tls_is_ended_once_its_last_answer_is_out_and_not_before() -> None:
    connected = Connected(HttpLimits(body_seconds=9))
    connected.transport.half_closes = False
    connected.answers.draining = True
    connected.transport.untaken = 100_000
    connected.ask()
    for _ in range(4):
        connected.loop.advance(8)
        connected.transport.untaken -= 20_000
        assert connected.protocol.waits() is not None
    assert not connected.transport.closed
    connected.transport.untaken = 0
    connected.loop.advance(0.5)
    assert (connected.transport.closed, connected.transport.aborted) == (True, False)
    connected.protocol.connection_lost(None)
    assert connected.loop.waiting == []


async def test_a_gateway_that_stops_lets_tls_callers_take_their_answers() -> None:
    connected = Connected(HttpLimits(body_seconds=9))
    connected.transport.half_closes = False
    connected.transport.untaken = 100_000
    connected.ask()
    for _ in range(2):
        connected.protocol.shutdown()
        connected.loop.advance(5)
        connected.transport.untaken -= 20_000
    assert not connected.transport.closed
    connected.transport.untaken = 0
    connected.loop.advance(0.5)
    assert (connected.transport.closed, connected.transport.aborted) == (True, False)


async def test_a_refusal_that_ends_tls_behind_a_long_answer_does_end_it() -> None:
    connected = Connected(HttpLimits(body_seconds=9))
    connected.transport.half_closes = False
    connected.ask()
    connected.transport.untaken = 100_000
    connected.answers.active = connected.answers.draining = True
    connected.protocol.data_received(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n" * 2)
    assert connected.transport.written.count(b"HTTP/1.1 503") == 1
    assert connected.answers.parsed == []
    connected.loop.advance(1)
    connected.transport.untaken = 0
    connected.loop.advance(0.5)
    assert (connected.transport.closed, connected.transport.aborted) == (True, False)


async def test_a_connection_whose_answer_is_taken_is_not_idle() -> None:
    connected = Connected(HttpLimits(body_seconds=9, keep_alive_seconds=10))
    connected.transport.untaken = 500_000
    connected.ask()
    for _ in range(20):
        connected.loop.advance(1)
        connected.transport.untaken -= 20_000
    assert not connected.transport.closed
    connected.transport.untaken = 0
    connected.loop.advance(9)
    assert (connected.transport.closed, connected.transport.aborted) == (True, False)


async def test_a_caller_that_takes_its_answers_slowly_keeps_its_connection() -> None:
    connected = Connected(HttpLimits(body_seconds=9, keep_alive_seconds=1000))
    connected.transport.untaken = 100_000
    connected.ask()
    for _ in range(4):
        connected.loop.advance(8)
        connected.transport.untaken -= 20_000
    assert not connected.transport.aborted
    connected.transport.untaken = 0
    connected.loop.advance(20)
    assert not connected.transport.aborted
    connected.protocol.connection_lost(None)
    assert connected.loop.waiting == []
