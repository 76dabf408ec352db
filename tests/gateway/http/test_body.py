"""Bodies are read within their bounds."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import accumulate, pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admission.byte_budget import ByteBudget
from gateway.errors import (
    BadRequestError,
    ClientGoneError,
    OverloadedError,
    TooLargeError,
    UnsupportedEncodingError,
)
from gateway.http.body import BodyReader, HttpLimits
from gateway.http.large_work import LargeWork
from gateway.http.messages import Request
from gateway.request_context import RequestContext

LIMIT = 1000
LIMITS = HttpLimits(max_body_bytes=LIMIT)
ABC = gzip.compress(b"abc", mtime=0)


def request_of(receive: Callable[[], Awaitable[Any]], **headers: str) -> Request:
    named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    context = RequestContext("id", 0.0, 0.0, recognised=True)
    return Request("POST", "/", {}, named, receive, context)


def counted(request: Request, budget: ByteBudget) -> Request:
    """A request whose memory counts."""
    request.context.holding = budget.holding()
    return request


def pieces(*chunks: bytes) -> Callable[[], Awaitable[Any]]:
    async def stream() -> AsyncIterator[dict[str, object]]:
        for chunk in chunks[:-1]:
            yield {"type": "http.request", "body": chunk, "more_body": True}
        yield {"type": "http.request", "body": chunks[-1], "more_body": False}

    iterator = stream()
    return lambda: anext(iterator)


async def read(*chunks: bytes, limits: HttpLimits = LIMITS, **headers: str) -> bytes:
    return await BodyReader(limits, LargeWork()).read(request_of(pieces(*chunks), **headers))


async def test_pieces_are_joined() -> None:
    assert await read(b"ab", b"", b"c") == b"abc"


async def test_a_body_at_the_limit_is_read_and_one_byte_more_is_not() -> None:
    assert len(await read(b"x" * LIMIT)) == LIMIT
    with pytest.raises(TooLargeError):
        await read(b"x" * (LIMIT + 1))
    with pytest.raises(TooLargeError):
        await read(b"x" * 600, b"x" * 401)


async def test_an_announced_length_over_the_limit_is_refused_before_reading() -> None:
    async def never() -> Any:
        raise AssertionError("read")

    with pytest.raises(TooLargeError):
        await BodyReader(LIMITS, LargeWork()).read(request_of(never, content_length=str(LIMIT + 1)))


async def test_a_caller_that_hangs_up_is_no_error_of_ours() -> None:
    async def gone() -> Any:
        return {"type": "http.disconnect"}

    with pytest.raises(ClientGoneError):
        await BodyReader(LIMITS, LargeWork()).read(request_of(gone))


async def test_all_bodies_together_are_bounded_and_the_room_comes_back() -> None:
    reader = BodyReader(LIMITS, LargeWork())
    held = asyncio.Event()
    begun = asyncio.Event()

    async def waiting() -> Any:
        if not begun.is_set():
            begun.set()
            return {"type": "http.request", "body": b"\xff" * 900, "more_body": True}
        await held.wait()
        return {"type": "http.request", "body": b"", "more_body": False}

    budget = ByteBudget(3600)
    slow = counted(request_of(waiting), budget)
    first = asyncio.create_task(reader.read(slow))
    await begun.wait()
    await asyncio.sleep(0)
    refused = counted(request_of(pieces(b"\xff" * 900, b"\xff" * 99)), budget)
    with pytest.raises(OverloadedError, match="too much memory"):
        await reader.read(refused)
    refused.context.hold(0)
    held.set()
    assert len(await first) == 900
    # What was read counts until its request ends, four bytes a character.
    assert budget.held == 4 * 900
    slow.context.hold(0)
    for _ in range(2):
        request = counted(request_of(pieces(b"\xff" * 700, b"")), budget)
        assert len(await reader.read(request)) == 700
        request.context.hold(0)
    assert budget.held == 0


async def test_a_small_body_of_plain_characters_counts_as_large_as_it_is() -> None:
    budget = ByteBudget(10**6)
    for body, size in ((b"x" * 900, 900), (b"\\u00e9" * 150, 3600)):
        request = counted(request_of(pieces(body)), budget)
        await BodyReader(LIMITS, LargeWork()).read(request)
        assert budget.held == size
        request.context.release()


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        ("gzip", gzip.compress),
        ("x-gzip", gzip.compress),
        (" GZIP ", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", raw_deflate),
        ("identity", bytes),
        ("gzip", lambda data: gzip.compress(data[:3]) + gzip.compress(data[3:])),
    ],
)
async def test_compressed_bodies_are_read(
    encoding: str, compress: Callable[[bytes], bytes]
) -> None:
    assert await read(compress(b'{"inputs": 1}'), content_encoding=encoding) == b'{"inputs": 1}'


@pytest.mark.parametrize("size", [LIMIT + 1, 50_000_000])
async def test_a_gzip_bomb_is_too_large(size: int) -> None:
    limits = HttpLimits(max_body_bytes=LIMIT if size < 1e6 else 200_000)
    bomb = gzip.compress(bytes(size))
    with pytest.raises(TooLargeError):
        await read(bomb, limits=limits, content_encoding="gzip")


async def test_bodies_that_grow_by_decompression_count_as_large_as_they_may_become() -> None:
    size = 1_000_000  # more than is decompressed on the event loop
    reader = BodyReader(HttpLimits(max_body_bytes=size), LargeWork())
    bomb = gzip.compress(bytes(size))
    budget = ByteBudget(8 * (size + len(bomb)))

    async def one() -> bool:
        request = counted(request_of(pieces(bomb), content_encoding="gzip"), budget)
        try:
            body = await reader.read(request)
        except OverloadedError:
            return False
        finally:
            request.context.hold(0)
        return len(body) == size

    # Each counts once while it is made, and four times once it is there.
    assert sorted(await asyncio.gather(*(one() for _ in range(12))))[:4] == [False] * 4
    assert budget.held == 0
    assert await one()  # the room comes back


STEP = 256 * 1024


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress, raw_deflate])
async def test_what_ends_about_where_a_step_does_is_read_whole(
    monkeypatch: pytest.MonkeyPatch, compress: Callable[[bytes], bytes]
) -> None:
    """Of zlib's input nothing may be left while of its output some is."""
    asked: list[int] = []
    real = zlib.decompressobj

    class Inflating:
        def __init__(self, window: int) -> None:
            self._stream = real(window)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._stream, name)

        def decompress(self, data: bytes, most: int) -> bytes:
            asked.append(most)
            return self._stream.decompress(data, most)

    monkeypatch.setattr(zlib, "decompressobj", Inflating)
    limits = HttpLimits(max_body_bytes=3 * STEP)
    encoding = "gzip" if compress is gzip.compress else "deflate"
    ends = STEP // 2, STEP // 2 + STEP  # the first step is half a one, on the event loop
    for size in [end + more for end in ends for more in range(-1, 260, 9)]:
        body = b"a" * size
        found = await read(compress(body), limits=limits, content_encoding=encoding)
        assert found == body
    assert max(asked) <= STEP


async def test_a_large_compressed_body_is_read_whole() -> None:
    limits = HttpLimits(max_body_bytes=1_000_000)
    data = bytes(range(250)) * 4000
    assert await read(gzip.compress(data), limits=limits, content_encoding="gzip") == data


@given(
    sizes=st.lists(st.integers(0, 20_000), min_size=1, max_size=5),
    seed=st.integers(0, 99),
    tail=st.sampled_from([b"", b"\0", b"\x1f"]),
)
def test_members_are_joined_wherever_they_end(sizes: list[int], seed: int, tail: bytes) -> None:
    data = Random(seed).randbytes(sum(sizes))  # which doesn't get smaller
    ends = list(accumulate(sizes, initial=0))
    parts = [data[start:end] for start, end in pairwise(ends)]
    body = b"".join(gzip.compress(part, mtime=0) for part in parts) + tail
    limits = HttpLimits()
    if tail:
        with pytest.raises(BadRequestError, match="bytes follow its end"):
            asyncio.run(read(body, limits=limits, content_encoding="gzip"))
    else:
        assert asyncio.run(read(body, limits=limits, content_encoding="gzip")) == data


async def test_a_body_of_very_many_members_is_refused() -> None:
    limits = HttpLimits()
    members = [gzip.compress(b"x" * (n % 2), mtime=0) for n in range(1001)]
    assert await read(b"".join(members[:-1]), limits=limits, content_encoding="gzip") == b"x" * 500
    with pytest.raises(BadRequestError, match="more than 1000 members"):
        await read(b"".join(members), limits=limits, content_encoding="gzip")


@pytest.mark.parametrize(
    "body",
    # Names of tests: ABC must not hold the time of its making.
    [b"", b"not gzip", ABC[:-9], ABC + b"tail", b"\x1f\x8b"],
)
async def test_what_is_not_gzip_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequestError, match="not gzip"):
        await read(body, content_encoding="gzip")


async def test_an_unknown_encoding_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedEncodingError, match="br"):
        await read(b"x", content_encoding="br")


@given(st.binary(max_size=300), st.integers(0, 400), st.none() | st.binary(max_size=3))
def test_what_is_read_of_a_damaged_body_is_what_was_compressed(
    data: bytes, place: int, instead: bytes | None
) -> None:
    whole = gzip.compress(data, mtime=0)
    body = whole if instead is None else whole[:place] + instead + whole[place + len(instead) + 1 :]
    try:
        found = asyncio.run(read(body, content_encoding="gzip"))
    except BadRequestError:
        assert body != whole
    else:
        assert found == data  # as the damage is in the header, which has no checksum


async def test_no_body_is_read_of_a_caller_whom_nobody_has_recognised() -> None:
    async def receive() -> dict[str, object]:
        raise AssertionError("it was read")

    request = request_of(receive)
    request.context.recognised = False
    with pytest.raises(RuntimeError, match="not recognised"):
        await BodyReader(LIMITS, LargeWork()).read(request)


class WatchedWork(LargeWork):
    """Counts what it is asked to do."""

    asked = 0

    async def do(self, work: Callable[[], Any], context: RequestContext | None = None) -> Any:
        self.asked += 1
        return await super().do(work, context)


@pytest.mark.parametrize("size", [1000, 1_000_000])
async def test_of_blocks_that_hold_nothing_many_are_read_in_a_thread(size: int) -> None:
    large = WatchedWork()
    # Without a last block, so that it is refused in the end, whoever reads it.
    body = b"\x00\x00\x00\xff\xff" * (size // 5)
    request = request_of(pieces(body), content_encoding="deflate")
    with pytest.raises(BadRequestError, match="too early"):
        await BodyReader(HttpLimits(), large).read(request)
    assert large.asked == (1 if size > 128 * 1024 else 0)
    large.close()
