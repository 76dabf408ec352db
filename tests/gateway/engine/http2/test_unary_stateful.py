"""The client of one server against everything that a server may do, in any order."""

import asyncio
from dataclasses import dataclass

import grpc
import pytest
from http2_peer import EVERY_STREAM, REFUSED_STREAM, Peer, PeerLoop, Stream
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.engine.http2.connection import CANCEL
from gateway.engine.http2.unary import CallError, UnaryClient

pytestmark = pytest.mark.slow

LONGEST_SECONDS = 1000.0
INTERNAL_ERROR = 2
which = st.integers(0, 7)


@dataclass(frozen=True)
class Asked:
    """A call, when it must have ended, and how many troubles there had been when it was made."""

    message: bytes
    until: float
    troubles: int
    task: "asyncio.Task[bytes]"

    def error(self) -> grpc.StatusCode | None:
        """Of a call that has ended, the code; None if it was answered or cancelled."""
        error = None if self.task.cancelled() else self.task.exception()
        if error is None:
            return None
        assert isinstance(error, CallError), error
        return error.code


class Calls(RuleBasedStateMachine):
    """Calls that are made, given up and answered on connections that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = PeerLoop()
        self.faults: list[object] = []
        self.loop.set_exception_handler(lambda _, context: self.faults.append(context))
        self.client = UnaryClient("server:1")
        self.calls: list[Asked] = []
        self.given_up: set[bytes] = set()
        self.is_closed = False
        self.troubles = 0  # for which a call may fail that is in time

    @property
    def open_peers(self) -> list[Peer]:
        return [peer for peer in self.loop.peers if peer.is_open]

    @property
    def running(self) -> list[tuple[Peer, Stream]]:
        return [(peer, one) for peer in self.open_peers for one in peer.running if one.whole]

    @property
    def waiting(self) -> list[Asked]:
        return [call for call in self.calls if not call.task.done()]

    @property
    def unsent(self) -> set[bytes]:
        """Messages of calls that wait and that no server has."""
        return {each.message for each in self.waiting} - {
            one.message[5:] for _, one in self.running
        }

    @property
    def is_well(self) -> bool:
        """Whether who connects now is heard."""
        return self.loop.listens and self.loop.most_streams is not None

    def some_call(self, number: int) -> tuple[Peer, Stream]:
        return self.running[number % len(self.running)]

    def some_peer(self, number: int) -> Peer:
        return self.open_peers[number % len(self.open_peers)]

    @rule(count=st.integers(1, 4), seconds=st.sampled_from([0.01, 7.0, LONGEST_SECONDS]))
    def send(self, count: int, seconds: float) -> None:
        for _ in range(count):
            message = b"%d" % len(self.calls)
            work = self.client.call("/a.B/C", message, seconds)
            until = self.loop.time() + seconds
            task = self.loop.create_task(work)
            before = self.troubles - (not self.is_well)
            self.calls.append(Asked(message, until, before, task))
        self.loop.settle()

    @precondition(lambda self: self.open_peers)
    @rule(number=which, most=st.sampled_from([0, 1, 2, 3, 100]))
    def say_settings(self, number: int, most: int) -> None:
        self.some_peer(number).settle(most)
        self.loop.settle()

    @precondition(lambda self: self.running)
    @rule(number=which, cut=st.integers(0, 40))
    def answer(self, number: int, cut: int) -> None:
        peer, stream = self.some_call(number)
        peer.answer(stream, cut)
        self.loop.settle()

    @precondition(lambda self: self.running)
    @rule(number=which, code=st.sampled_from([INTERNAL_ERROR, REFUSED_STREAM, CANCEL]))
    def reset(self, number: int, code: int) -> None:
        peer, stream = self.some_call(number)
        self.troubles += 1
        peer.reset(stream, code)
        self.loop.settle()

    @precondition(lambda self: self.open_peers)
    @rule(number=which, last=st.sampled_from([0, 1, EVERY_STREAM, EVERY_STREAM]))
    def leave(self, number: int, last: int) -> None:
        peer = self.some_peer(number)
        self.troubles += last < EVERY_STREAM or not peer.settled or not peer.streams
        peer.leave(last)
        self.loop.settle()

    @precondition(lambda self: self.open_peers)
    @rule(number=which)
    def lose(self, number: int) -> None:
        self.troubles += 1
        self.some_peer(number).lose()
        self.loop.settle()

    @precondition(lambda self: self.waiting)
    @rule(number=which)
    def cancel(self, number: int) -> None:
        call = self.waiting[number % len(self.waiting)]
        self.given_up.add(call.message)
        call.task.cancel()
        self.loop.settle()

    @precondition(lambda self: self.running)
    @rule(number=which)
    def cancel_as_the_answer_comes(self, number: int) -> None:
        peer, stream = self.some_call(number)
        call = self.calls[int(stream.message[5:])]
        self.given_up.add(call.message)
        peer.answer(stream)
        call.task.cancel()
        self.loop.settle()

    @rule(seconds=st.sampled_from([0.002, 0.5, 6.0, 40.0]))
    def pass_time(self, seconds: float) -> None:
        self.loop.pass_time(seconds)

    @rule(
        listens=st.sampled_from([True, True, True, False]),
        most=st.sampled_from([0, 1, 1, 2, 2, 3, 100, None]),
    )
    def change_server(self, listens: bool, most: int | None) -> None:
        self.loop.listens, self.loop.most_streams = listens, most
        self.troubles += not self.is_well

    @precondition(lambda self: not self.is_closed and len(self.calls) > 5)
    @rule()
    def close(self) -> None:
        self.is_closed = True
        self.troubles += 1
        self.loop.run_until_complete(self.client.close())
        self.loop.pass_time(0.2)  # those that were refused pause
        assert not self.waiting
        assert not self.open_peers

    @invariant()
    def no_call_outlives_its_time(self) -> None:
        assert all(call.until >= self.loop.time() for call in self.waiting)

    @invariant()
    def every_answer_is_the_calls_own(self) -> None:
        for call in self.calls:
            if not call.task.done():
                continue
            if call.task.cancelled():
                assert call.message in self.given_up
            elif call.error() is None:
                assert call.task.result() == call.message

    @invariant()
    def no_call_fails_without_a_cause(self) -> None:
        for call in self.calls:
            if call.task.done() and (code := call.error()) is not None:
                expired = code is grpc.StatusCode.DEADLINE_EXCEEDED
                assert self.troubles > call.troubles or self.is_closed or expired
                assert not expired or self.loop.time() >= call.until

    @invariant()
    def no_server_computes_a_call_twice(self) -> None:
        looked_at = [
            one.message
            for peer in self.loop.peers
            for one in peer.streams.values()
            if one.whole and not one.refused
        ]
        assert len(looked_at) == len(set(looked_at))

    @invariant()
    def no_server_gets_more_than_it_takes(self) -> None:
        assert all(peer.most_at_once <= 0 or not peer.settled for peer in self.loop.peers)

    @invariant()
    def a_connection_lasts_as_long_as_it_is_of_use(self) -> None:
        assert all(peer.running for peer in self.open_peers if peer.leaves and peer.settled)
        assert len([peer for peer in self.open_peers if not peer.leaves]) <= 1
        assert not (self.is_closed and self.open_peers)

    @invariant()
    def a_call_waits_only_for_a_server_that_has_enough_to_do(self) -> None:
        for peer in self.open_peers:
            if peer.settled and not peer.leaves and peer.most_streams and not peer.running:
                self.loop.pass_time(0.2)  # those that were refused pause
                assert peer.running or not peer.is_open or not self.unsent

    @invariant()
    def nothing_fails_where_nobody_looks(self) -> None:
        assert not self.faults

    def teardown(self) -> None:
        """With a server that is well, every call that is not over is answered."""
        try:
            self.answer_all()
            assert not self.waiting
            self.every_answer_is_the_calls_own()
            self.loop.run_until_complete(self.client.close())
            self.loop.settle()
            assert not self.open_peers
        finally:
            for call in self.waiting:
                call.task.cancel()
            self.loop.settle()
            self.loop.close()

    def answer_all(self) -> None:
        self.loop.listens, self.loop.most_streams = True, 100
        for _ in range(2 * len(self.calls) + 10):
            if not self.waiting:
                return
            for peer in self.open_peers:
                if not peer.settled or peer.most_streams < 100:
                    peer.settle(100)
            for peer, stream in self.running:
                peer.answer(stream)
            self.loop.pass_time(0.05)


TestCalls = Calls.TestCase
TestCalls.settings = settings(max_examples=60, stateful_step_count=30)
