"""Messages over gRPC: keys before bytes, one budget for all, a deadline for each."""

import asyncio
from collections.abc import Iterator
from typing import cast

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from front_fakes import FakeKeys
from front_server import Served, serving
from hypothesis import given
from hypothesis import strategies as st
from raw_grpc import RawGrpc, prefixed
from tritonclient.grpc import service_pb2 as pb

from gateway.admission.byte_budget import ByteBudget
from gateway.dialects.grpc_messages import MessageReader
from gateway.errors import ClientGoneError, OverloadedError, RequestTimeoutError
from gateway.http.body import HttpLimits

MEGABYTE = 1024 * 1024
# Room for one message at a time: the core holds it, and hands over a copy.
LIMITS = HttpLimits(max_body_bytes=MEGABYTE, body_seconds=60)


class Arriving:
    """The context of a call whose message comes when the test says so."""

    def __init__(self) -> None:
        self.message: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    async def read(self) -> object:
        return await self.message


def begun(reader: MessageReader, arriving: Arriving) -> "asyncio.Task[bytes]":
    return asyncio.create_task(reader.read(cast("grpc.aio.ServicerContext", arriving)))


async def turn(times: int = 5) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


async def test_a_message_beyond_the_budget_waits_until_there_is_room() -> None:
    reader = MessageReader(LIMITS, ByteBudget(2 * MEGABYTE))
    first, second = Arriving(), Arriving()
    one, two = begun(reader, first), begun(reader, second)
    first.message.set_result(b"12345")
    second.message.set_result(b"six")
    assert await one == b"12345"
    await turn()
    assert not two.done()  # five bytes are held
    reader.release(5)
    assert await two == b"six"


async def test_a_call_that_ends_while_it_waits_takes_no_room_with_it() -> None:
    reader = MessageReader(LIMITS, ByteBudget(2 * MEGABYTE))
    first, third = Arriving(), Arriving()
    one, two, three = (begun(reader, each) for each in (first, Arriving(), third))
    await turn()
    two.cancel()
    first.message.set_result(b"")
    await one
    third.message.set_result(b"three")
    assert await three == b"three"


async def test_a_call_that_ends_as_it_is_given_room_gives_it_back() -> None:
    reader = MessageReader(LIMITS, ByteBudget(2 * MEGABYTE))
    first, second, third = Arriving(), Arriving(), Arriving()
    one, two, three = (begun(reader, each) for each in (first, second, third))
    await turn()
    one.cancel()
    one.add_done_callback(lambda _: two.cancel())  # in the turn in which it is given room
    third.message.set_result(b"three")
    async with asyncio.timeout(60):
        assert await three == b"three"


async def test_reads_that_take_their_time_are_ended_for_one_that_waits() -> None:
    reader = MessageReader(LIMITS, ByteBudget(2 * MEGABYTE))
    last = Arriving()
    slow = [begun(reader, Arriving()) for _ in range(3)]
    await turn()
    usual = begun(reader, last)
    last.message.set_result(b"here")
    async with asyncio.timeout(30):  # of the 60 s that each of them would have by itself
        assert await usual == b"here"
    for each in slow:
        with pytest.raises(RequestTimeoutError):
            await each


async def test_too_many_that_wait_are_refused() -> None:
    reader = MessageReader(LIMITS, ByteBudget(2 * MEGABYTE))
    waiting = [begun(reader, Arriving()) for _ in range(1025)]
    await turn()
    with pytest.raises(OverloadedError):
        await begun(reader, Arriving())
    for each in waiting:
        each.cancel()


async def test_a_call_without_a_message_is_one_that_is_gone() -> None:
    reader = MessageReader(LIMITS, ByteBudget(2 * MEGABYTE))
    for _ in range(3):  # and keeps no room
        empty = Arriving()
        empty.message.set_result(grpc.aio.EOF)
        with pytest.raises(ClientGoneError):
            await begun(reader, empty)


@given(st.lists(st.sampled_from(["arrive", "cancel", "release"]), max_size=40), st.integers(1, 4))
async def test_no_more_is_read_at_once_than_there_is_room_for(steps: list[str], room: int) -> None:
    limits = HttpLimits(max_body_bytes=10, body_seconds=600)
    reader = MessageReader(limits, ByteBudget(20 * room))
    reading: list[Arriving] = []

    class Counted(Arriving):
        async def read(self) -> object:
            reading.append(self)
            try:
                return await self.message
            finally:
                reading.remove(self)

    calls = [(each, begun(reader, each)) for each in (Counted() for _ in range(8))]
    held = 0
    for step in steps:
        await turn()
        assert 20 * len(reading) + held <= 20 * room
        if step == "arrive" and reading:
            reading[0].message.set_result(b"0123456789")
            held += 10
        elif step == "cancel" and reading:
            next(task for each, task in calls if each is reading[-1]).cancel()
        elif step == "release" and held:
            reader.release(10)
            held -= 10
    for _, task in calls:
        task.cancel()
    await asyncio.gather(*(task for _, task in calls), return_exceptions=True)


@pytest.fixture(scope="module")
def fronts() -> Iterator[Served]:
    with serving(Served(keys=FakeKeys({"good": {"sentiment"}}), limits=LIMITS)) as served:
        yield served


def infer(text: str) -> bytes:
    request = pb.ModelInferRequest(model_name="sentiment")
    tensor = request.inputs.add(name="TEXT", datatype="BYTES", shape=[1])
    tensor.contents.bytes_contents.append(text.encode())
    message: bytes = request.SerializeToString()
    return message


def ended(raw: RawGrpc, *calls: int) -> None:
    """Waits until the server has ended these calls."""
    while not raw.ended.issuperset(calls):
        assert not raw.closed
        raw.pump(1.0)


def test_no_byte_of_a_message_is_asked_for_without_a_key(fronts: Served) -> None:
    raw = RawGrpc(fronts.grpc_port)
    calls = [raw.call(prefixed(bytes(MEGABYTE - 5))[:-1], end=False) for _ in range(64)]
    ended(raw, *calls)
    assert raw.status(calls[0]) == "16"  # UNAUTHENTICATED
    # Nothing but what the server takes of any connection before it is asked to.
    assert raw.sent_bytes < 8 * MEGABYTE
    raw.close()


def test_one_connection_may_not_have_calls_without_end(fronts: Served) -> None:
    raw = RawGrpc(fronts.grpc_port)
    while not raw.most_calls:
        assert not raw.closed
        raw.pump(1.0)
    assert raw.most_calls == 1024
    raw.close()


@pytest.mark.parametrize("path", ["ServerLive", "RepositoryIndex", "Nobody"])
def test_what_needs_no_message_reads_none(fronts: Served, path: str) -> None:
    raw = RawGrpc(fronts.grpc_port)
    call = raw.call(
        prefixed(bytes(MEGABYTE - 5))[:-1],
        path=f"/inference.GRPCInferenceService/{path}",
        end=False,
    )
    ended(raw, call)
    assert raw.status(call) == ("0" if path == "ServerLive" else "12")
    raw.close()


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (prefixed(infer("a good film")), "0"),
        (prefixed(infer("a good film")[:-3]), "3"),
        (prefixed(b"\xff" * 100), "3"),
        (prefixed(b""), "5"),  # a request for the endpoint without a name
        (prefixed(infer("a good film"))[:-3], "3"),  # it ends before its announced end
        (prefixed(b"", announced=MEGABYTE + 1), "8"),
        (b"", "3"),
    ],
)
def test_whatever_comes_as_a_message_gets_a_status(
    fronts: Served, message: bytes, status: str
) -> None:
    fronts.keys.endpoints_of = {"good": {"sentiment", ""}}
    raw = RawGrpc(fronts.grpc_port)
    call = raw.call(message, x_api_key="good")
    ended(raw, call)
    assert raw.status(call) == status
    raw.close()


def test_slow_messages_keep_nobody_from_asking(fronts: Served) -> None:
    raw = RawGrpc(fronts.grpc_port)
    slow = [raw.call(prefixed(infer("slow"))[:-1], end=False, x_api_key="good") for _ in range(8)]
    raw.pump(1.0)
    with triton.InferenceServerClient(fronts.grpc_address) as client:
        text = triton.InferInput("TEXT", [1], "BYTES")
        text.set_data_from_numpy(np.array([b"a good film"], dtype=object))
        answer = client.infer("sentiment", [text], headers={"x-api-key": "good"})
    assert answer.as_numpy("LABEL") is not None
    fronts.pass_time(LIMITS.body_seconds)
    ended(raw, slow[0])
    assert raw.status(slow[0]) == "4"  # DEADLINE_EXCEEDED
    raw.close()
