"""The generator against a server whose behaviour is known."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from front_server import Served, serving
from hypothesis import given
from hypothesis import strategies as st
from loop_clocks import PatientLoop, runs_on

from bench import corpus
from bench.load import Load
from bench.loadgen import Generator, rates_of
from bench.wire import request
from gateway.errors import OverloadedError

pytestmark = pytest.mark.slow

Answer = Callable[[int, str], Awaitable[int | None]]  # index, body -> status, None to hang up


@asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[int]:
    """Answers each request with the status that ``answer`` gives, in two pieces."""
    seen = 0
    open_now: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        open_now[writer] = asyncio.current_task()
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                body = (await reader.readexactly(length)).decode()
                seen += 1
                status = await answer(seen - 1, body)
                if status is None:
                    break
                writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: 4\r\n".encode())
                await writer.drain()
                await asyncio.sleep(0)
                writer.write(b"\r\nbody")
        except (asyncio.IncompleteReadError, ConnectionResetError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield listening.sockets[0].getsockname()[1]
        for writer in open_now:
            writer.close()
        await asyncio.gather(*(task for task in open_now.values() if task is not None))


def load(
    port: int, rate: float | None = None, callers: int = 3, timeout_seconds: float = 20.0
) -> Load:
    return Load(
        host="127.0.0.1", port=port, path="/x", bodies=[json.dumps({"n": n}) for n in range(5)],
        callers=callers, rate=rate, warm_up_seconds=0.1, seconds=0.3,
        timeout_seconds=timeout_seconds,
    )  # fmt: skip


def grpc_load(port: int, rate: float | None = None, callers: int = 1) -> Load:
    """Without a warm-up: the first requests are sent and measured on any machine."""
    return Load(
        host="127.0.0.1", port=port, path="sentiment", protocol="grpc",
        bodies=[json.dumps(["a", "b"]), json.dumps(["c"])], callers=callers, rate=rate,
        warm_up_seconds=0.0, seconds=0.3, timeout_seconds=20.0,
    )  # fmt: skip


def generator(asked: Load) -> Generator:
    """By the clock of the loop, on which a server of ``server`` runs too."""
    return Generator(asked, asyncio.get_running_loop().time)


@runs_on(PatientLoop)
async def test_a_closed_load_keeps_as_many_requests_on_the_way_as_it_has_callers() -> None:
    now = most = 0
    all_of_them = asyncio.Event()

    async def answer(index: int, body: str) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if now == 3:
            all_of_them.set()
        await all_of_them.wait()
        await asyncio.sleep(0)
        now -= 1
        return 200

    async with server(answer) as port:
        result = await generator(load(port)).run()
    assert most == 3
    assert result.of(200).count == result.offered > 0


@runs_on(PatientLoop)
async def test_an_open_load_sends_all_that_is_due_though_no_answer_comes_back() -> None:
    release, enough = asyncio.Event(), asyncio.Event()

    async def answer(index: int, body: str) -> int:
        if index == 70:  # due at 0.35 s, and nothing was answered so far
            enough.set()
        await release.wait()
        return 200

    async with server(answer) as port, asyncio.timeout(60):
        running = asyncio.create_task(generator(load(port, rate=200)).run())
        await enough.wait()
        release.set()
        result = await running
    assert result.offered == result.of(200).count
    assert result.offered in {60, 61}  # 0.3 s at 200 a second
    # The first measured requests were due long before the answers were let go.
    assert result.of(200).latency.max >= 200


@runs_on(PatientLoop)
async def test_where_callers_give_up_who_finds_no_connection_gives_up_and_holds_nobody_up() -> None:
    held = asyncio.Event()

    async def answer(index: int, body: str) -> int:
        if index < 2:  # both connections are taken until many others were due
            await held.wait()
        return 200

    async with server(answer) as port:
        asked = msgspec.structs.replace(load(port, rate=100), connections=2, gives_up=True)
        running = asyncio.create_task(generator(asked).run())
        asyncio.get_running_loop().call_later(0.25, held.set)
        result = await running
    assert result.of(0).count > 0
    assert result.of(200).count > 0
    assert result.of(200).count + result.of(0).count == result.offered


@runs_on(PatientLoop)
async def test_statuses_are_counted_apart_and_a_hang_up_is_status_0() -> None:
    async def answer(index: int, body: str) -> int | None:
        return (200, 503, None)[index % 3]

    async with server(answer) as port:
        result = await generator(load(port, rate=150)).run()
    counts = [result.of(status).count for status in (200, 503, 0)]
    assert sum(counts) == result.offered
    assert result.offered in {45, 46}  # 0.3 s at 150 a second
    assert all(abs(count - 15) <= 3 for count in counts)


async def test_over_grpc_answers_and_refusals_are_counted_as_over_http() -> None:
    with serving(Served()) as served:
        calm = await Generator(grpc_load(served.grpc_port, callers=3)).run()
        served.predictor.failure = OverloadedError("Full.", retry_after_seconds=1)
        full = await Generator(grpc_load(served.grpc_port, rate=100)).run()
    assert calm.of(200).count == calm.offered > 0
    assert full.of(503).count == full.offered > 0
    assert {len(call.texts) for call in served.predictor.calls} == {1, 2}
    assert {call.endpoint for call in served.predictor.calls} == {"sentiment"}


@runs_on(PatientLoop)
async def test_a_request_without_an_answer_is_told_apart() -> None:
    release = asyncio.Event()

    async def answer(index: int, body: str) -> int:
        await release.wait()
        return 200

    async with server(answer) as port:
        result = await generator(load(port, callers=2, timeout_seconds=1.0)).run()
        release.set()
    assert result.of(200).count == 0
    assert result.of(-1).count == 2


def test_a_request_says_its_length_in_bytes() -> None:
    head, body = request("/x", "h:1", '"é"').split(b"\r\n\r\n")
    assert body == '"é"'.encode()
    assert b"Content-Length: 4" in head
    assert head.startswith(b"POST /x HTTP/1.1\r\nHost: h:1")


@pytest.mark.parametrize("length", [16, 64, 200])
def test_texts_of_one_length_are_beginnings_of_real_ones(length: int) -> None:

    known = corpus.tokenizer()
    found = corpus.of_length(length, 20)
    assert len(found) == 20
    assert {len(known.encode(text).ids) for text in found} == {length}
    whole = corpus.replay()
    assert all(any(text.startswith(part) for text in whole) for part in found)


@given(
    batch=st.integers(1, 64),
    period=st.floats(0.05, 0.6),
    offset=st.floats(0.0, 0.6),
)
def test_a_server_that_answers_in_batches_has_its_own_rate_at_any_moment(
    batch: int, period: float, offset: float
) -> None:
    ends = [
        (offset + turn * period, 200 if row else 503) for turn in range(60) for row in range(batch)
    ]
    found = rates_of(ends, 1.0, 2.8)
    assert sum(found.values()) == pytest.approx(batch / period)
    assert found.get(503) == pytest.approx(1 / period)


def test_of_fewer_than_two_answers_in_the_time_no_rate_is_made() -> None:
    assert rates_of([(0.5, 200)], 1.0, 2.0) == {}
    assert rates_of([], 1.0, 2.0) == {}
