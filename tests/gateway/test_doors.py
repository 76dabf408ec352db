"""No byte of a body is read, inflated or parsed for a caller whom nobody has recognised."""

import asyncio
import gzip
import re
from typing import Any

import pytest
from fastapi.routing import APIRoute
from front_fakes import Behind, FakeKeys

from gateway.http.messages import Reply, StreamReply
from gateway.http.plain_post import PlainPost

_BROKEN = b"{"
_CUT_OFF = gzip.compress(b'{"model": "minilm"}' * 100)[:-8]


def _posts() -> list[str]:
    """The paths of all routes that take a POST, with something in the place of each parameter."""
    routes = [route for route in Behind().app.routes if isinstance(route, APIRoute)]
    posts = [route for route in routes if "POST" in (route.methods or ())]
    return [re.sub(r"\{\w+\}", "minilm", each.path) for each in posts]


def _behind() -> Behind:
    return Behind(keys=FakeKeys(endpoints_of={"a": {"minilm"}}))


async def _unread() -> dict[str, Any]:
    raise AssertionError("a body was read for a stranger")


async def _asked_in_pieces(behind: Behind, path: str) -> tuple[int, bytes]:
    """What a stranger is answered before the first byte of its body is asked for."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": []}
    await behind.app(scope, _unread, send)
    return sent[0]["status"], sent[1]["body"]


async def _asked_whole(
    behind: Behind, path: str, body: bytes, headers: dict[bytes, bytes] | None = None
) -> int:
    """The status of what a stranger is answered whose request arrives whole."""
    replies: list[Reply] = []

    async def stream(_: StreamReply, __: str) -> None:
        raise AssertionError("a stream for a stranger")

    post = PlainPost(path, headers or {}, body)
    await behind.app.answer_post(post, lambda reply, _: replies.append(reply), stream)
    return int(replies[0].status)


@pytest.mark.parametrize("path", _posts())
async def test_every_route_asks_for_a_key_before_it_reads_a_body(path: str) -> None:
    behind = _behind()
    status, answer = await _asked_in_pieces(behind, path)
    # A route that refuses whatever is sent reads no body.
    assert status in (401, 501), answer
    assert await _asked_whole(behind, path, _BROKEN) == status
    encoded = {b"content-encoding": b"gzip"}
    assert await _asked_whole(behind, path, _CUT_OFF, encoded) == status


def test_the_routes_that_take_a_body_are_among_those_that_were_asked() -> None:
    asked = {path for path in _posts() if asyncio.run(_asked_in_pieces(_behind(), path))[0] == 401}
    described = {
        re.sub(r"\{\w+\}", "minilm", each.path)
        for each in Behind().app.described
        if each.method == "POST" and each.operation.request is not None
    }
    assert asked == described
    assert len(asked) > 15
