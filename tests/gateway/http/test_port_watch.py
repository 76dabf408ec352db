"""Which connections of a port go that a library accepts, and that no others are touched."""

import asyncio
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http import port_watch
from gateway.http.port_watch import OpenSocket, PortWatch, Quiet, superfluous

PEERS = ["192.0.2.1", "192.0.2.2", "2001:db8::"]


@given(
    st.lists(st.tuples(st.sampled_from(PEERS), st.floats(0, 100)), max_size=40),
    st.integers(1, 20),
    st.integers(1, 20),
)
def test_no_more_go_than_must_and_those_that_were_quiet_the_longest(
    found: list[tuple[str, float]], most: int, most_of_peer: int
) -> None:
    quiet = [
        Quiet(OpenSocket(number, 1000 + number, peer, 4711), seconds)
        for number, (peer, seconds) in enumerate(found)
    ]
    gone = superfluous(quiet, most, most_of_peer)
    assert len(set(gone)) == len(gone)
    stay = [each for each in quiet if each.socket not in gone]
    by_peer = Counter(each.socket.peer for each in quiet)
    allowed = sum(min(count, most_of_peer) for count in by_peer.values())
    assert len(stay) == min(allowed, most)
    left = Counter(each.socket.peer for each in stay)
    assert all(count <= most_of_peer for count in left.values())
    for peer in PEERS:
        kept = [each.seconds for each in stay if each.socket.peer == peer]
        ended = [each.seconds for each in quiet if each.socket in gone and each.socket.peer == peer]
        assert not kept or not ended or max(kept) <= min(ended)


class Port:
    """A port that accepts by itself, and those who are connected to it."""

    def __init__(self, held: ExitStack) -> None:
        self._held = held
        self._listener = held.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.number: int = self._listener.getsockname()[1]

    def connect(self, source: str = "127.0.0.1") -> tuple[socket.socket, socket.socket]:
        """The client's end and the server's."""
        address = ("127.0.0.1", self.number)
        ours = self._held.enter_context(socket.create_connection(address, 60, (source, 0)))
        theirs, _ = self._listener.accept()
        return ours, self._held.enter_context(theirs)


def quiet_milliseconds(one: socket.socket) -> int:
    info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 56)
    return int(min(struct.unpack_from("I", info, 44) + struct.unpack_from("I", info, 52)))


def stays(one: tuple[socket.socket, socket.socket]) -> bool:
    """Whether what the server sends still arrives."""
    ours, theirs = one
    try:
        theirs.sendall(b"x")
    except BrokenPipeError:
        assert ours.recv(1) == b""  # the client is told
        return False
    return ours.recv(1) == b"x"


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_those_that_are_quiet_the_longest_are_closed_for_the_others(held: ExitStack) -> None:
    port, other = Port(held), Port(held)
    idle = [port.connect() for _ in range(3)]
    elsewhere = [other.connect() for _ in range(9)]
    while quiet_milliseconds(idle[-1][1]) < 50:
        time.sleep(0.01)  # the kernel's clock goes on
    asked = [port.connect() for _ in range(4)]
    for ours, theirs in asked:
        ours.sendall(b"x")
        assert theirs.recv(1) == b"x"
    watch = PortWatch(4, 0)
    assert watch.trim(port.number) == 3
    assert [stays(one) for one in idle] == [False] * 3
    assert all(stays(one) for one in [*asked, *elsewhere])
    for _, theirs in idle:
        theirs.close()
    assert watch.trim(port.number) == 0


def test_a_peer_that_has_too_many_loses_its_own_alone(held: ExitStack) -> None:
    port = Port(held)
    others = [port.connect("127.0.0.2") for _ in range(2)]
    while quiet_milliseconds(others[-1][1]) < 50:
        time.sleep(0.01)  # the kernel's clock goes on
    many = [port.connect("127.0.0.3") for _ in range(5)]
    assert PortWatch(8, 2).trim(port.number) == 3
    assert all(stays(one) for one in others)
    assert sum(stays(one) for one in many) == 2


def test_within_the_bounds_all_stay_and_files_that_come_and_go_are_seen(held: ExitStack) -> None:
    port = Port(held)
    watch = PortWatch(3, 2)
    for _ in range(3):
        one, two = port.connect("127.0.0.2"), port.connect("127.0.0.3")
        assert watch.trim(port.number) == 0
        assert stays(one)
        assert stays(two)
        for each in (*one, *two):
            each.close()  # the next ones get these files' numbers
    four = [port.connect(f"127.0.0.{number}") for number in range(2, 6)]
    assert watch.trim(port.number) == 1
    assert sum(stays(one) for one in four) == 3


async def test_all_are_looked_at_when_a_bound_may_be_passed_and_now_and_then(
    held: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(port_watch, "monotonic", lambda: now)
    looks = 0
    port, watch = Port(held), PortWatch(3, 0)
    trim = watch.trim

    def counted(*asked: Any) -> int:
        nonlocal looks
        looks += 1
        return trim(*asked)

    monkeypatch.setattr(watch, "trim", counted)
    others = [held.enter_context(socket.socket()) for _ in range(6)]
    first = port.connect()
    for _ in range(3):
        assert await watch._look(port.number, ()) == 0
    assert looks == 1
    many = [first, *(port.connect() for _ in range(3))]
    assert await watch._look(port.number, ()) == 1
    (gone,) = [one for one in many if not stays(one)]
    for end in gone:
        end.close()
    assert await watch._look(port.number, ()) == 0
    for each in others:
        each.close()
    port.connect()  # no more files than there were
    assert await watch._look(port.number, ()) == 0
    now = 2.0
    assert await watch._look(port.number, ()) == 1


async def test_a_connection_that_is_unwanted_is_closed_alone(held: ExitStack) -> None:
    port = Port(held)
    unwanted, others = port.connect(), [port.connect() for _ in range(3)]
    watch = PortWatch(64, 0)
    following = asyncio.create_task(watch.follow(port.number))
    watch.hang_up("::ffff:127.0.0.1", unwanted[0].getsockname()[1])
    assert await asyncio.to_thread(unwanted[0].recv, 1) == b""
    assert not stays(unwanted)
    assert all(stays(one) for one in others)
    following.cancel()
