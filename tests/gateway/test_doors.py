"""No byte of a body is read, inflated or parsed for a caller whom nobody has recognised."""

import asyncio
import gzip
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest
from fastapi.routing import APIRoute
from front_fakes import Behind, FakeKeys, FakeMetrics
from function_calls import counted_calls

from gateway.admission.early_refusals import EarlyRefusals
from gateway.http import large_work
from gateway.http.messages import Message, Reply, Request, StreamReply
from gateway.http.plain_post import PlainPost
from gateway.http.router import Route, Router

_BROKEN = b"{"
_CUT_OFF = gzip.compress(b'{"model": "minilm"}' * 100)[:-8]


def _posts() -> list[str]:
    """The paths of all routes that take a POST, with something in the place of each parameter."""
    routes = [route for route in Behind().app.routes if isinstance(route, APIRoute)]
    posts = [route for route in routes if "POST" in (route.methods or ())]
    return [re.sub(r"\{\w+\}", "minilm", each.path) for each in posts]


def _described() -> list[str]:
    """The paths of those that read a body, as the document of the API has them."""
    posts = [each for each in Behind().app.described if each.method == "POST"]
    return [re.sub(r"\{\w+\}", "minilm", each.path) for each in posts]


def _behind() -> Behind:
    return Behind(keys=FakeKeys(endpoints_of={"a": {"minilm"}}, forcing={"a"}))


async def _unread() -> dict[str, Any]:
    raise AssertionError("a body was read for a stranger")


async def _asked_in_pieces(
    behind: Behind, path: str, headers: Mapping[bytes, bytes] = {}
) -> tuple[int, bytes]:
    """What is answered to a request of whose body no byte can be read."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": list(headers.items())}
    await behind.app(scope, _unread, send)
    return sent[0]["status"], sent[1]["body"]


async def _asked_whole(
    behind: Behind, path: str, body: bytes, headers: dict[bytes, bytes] | None = None
) -> int:
    """The status of what is answered to a request that arrives whole."""
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
    assert asked == set(_described())
    assert len(asked) > 15


@pytest.mark.parametrize("path", _described())
async def test_what_a_stranger_sends_does_not_change_what_it_costs(path: str) -> None:
    behind = _behind()
    large = b'{"a": [' + b"[]," * 100_000 + b'[]], "b": "\\ud800"}'
    costs = []
    for body in (_BROKEN, large, gzip.compress(large)):
        headers = {b"content-encoding": b"gzip" if body[:1] == b"\x1f" else b"identity"}
        await _asked_whole(behind, path, body, headers)  # what is made once is made now
        await asyncio.sleep(0)  # the scheduler's slice of time ends
        with counted_calls() as calls:
            await _asked_whole(behind, path, body, headers)
        costs.append(calls.count)
    assert len(set(costs)) == 1, costs


_KEY = {b"authorization": b"Bearer a"}


def _limit(behind: Behind, rate: float) -> None:
    """Lets a key send the endpoint so many requests a second."""
    views = behind.predictor.views
    views["minilm"] = replace(views["minilm"], requests_per_second_per_key=rate)


@pytest.mark.parametrize("path", _described())
async def test_a_body_that_is_refused_counts_and_the_next_one_is_not_read(path: str) -> None:
    behind = _behind()
    _limit(behind, 1e-6)
    assert await _asked_whole(behind, path, _BROKEN, dict(_KEY)) == 400
    status, answer = await _asked_in_pieces(behind, path, _KEY)
    assert status == 429
    assert b"requests a second" in answer
    assert await _asked_whole(behind, path, _BROKEN, dict(_KEY)) == 429


@pytest.mark.parametrize("path", ["/endpoints/minilm", "/v1/embeddings"])
async def test_a_body_that_is_answered_counts_once(path: str) -> None:
    behind = _behind()
    _limit(behind, 1e-6)
    body = b'{"model": "minilm", "input": "a"}' if path.startswith("/v1") else b'{"inputs": "a"}'
    assert await _asked_whole(behind, path, body, dict(_KEY)) == 200
    assert await _asked_whole(behind, path, body, dict(_KEY)) == 429
    assert len(behind.predictor.calls) == 1


async def test_bodies_that_name_an_endpoint_over_its_rate_are_soon_not_read_either() -> None:
    behind = _behind()
    _limit(behind, 1e-6)
    body = b'{"model": "minilm", "input": "a"}'
    found = [await _asked_whole(behind, "/v1/embeddings", body, dict(_KEY)) for _ in range(2)]
    assert found == [200, 429]
    status, _ = await _asked_in_pieces(behind, "/v1/embeddings", _KEY)
    assert status == 429


async def test_a_body_that_takes_long_to_read_counts_as_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A machine on which each reading takes its thread a second.
    monkeypatch.setattr(large_work, "thread_time", count().__next__)
    behind = _behind()
    _limit(behind, 1.0)
    # One text, with an escape for each of its characters: it is read in a thread.
    long = b'{"inputs": "' + b"\\u00e9" * 1_200_000 + b'"}'
    assert await _asked_whole(behind, "/endpoints/minilm", long, dict(_KEY)) == 200
    status, answer = await _asked_in_pieces(behind, "/endpoints/minilm", _KEY)
    assert status == 429
    assert b"counts as several" in answer


@pytest.mark.parametrize("path", ["/endpoints/minilm", "/v1/embeddings", "/feedback"])
async def test_a_body_whose_caller_hangs_up_counts(path: str) -> None:
    behind = _behind()
    _limit(behind, 1e-6)

    async def hung_up() -> Message:
        return {"type": "http.disconnect"}

    async def send(_: object) -> None:
        raise AssertionError("nobody is there")

    scope = {"type": "http", "method": "POST", "path": path, "headers": list(_KEY.items())}
    await behind.app(scope, hung_up, send)
    status, _ = await _asked_in_pieces(behind, path, _KEY)
    assert status == 429


@dataclass
class _Loading:
    """Has models that are away come back at once, and keeps what waited for them."""

    sizes: list[int] = field(default_factory=list)
    seconds: float = 60.0
    asleep: bool = True

    def is_asleep(self, pool: str, model: str) -> bool:
        return self.asleep

    async def wait(self, pool: str, model: str, until: float, size: int) -> None:
        self.sizes.append(size)
        self.asleep = False


async def test_who_waits_for_a_model_holds_the_bytes_of_a_body_that_is_not_read_yet() -> None:
    loading = _Loading()
    behind = Behind(keys=FakeKeys(endpoints_of={"a": {"minilm"}}), waking=loading)
    behind.predictor.views["minilm"] = replace(behind.predictor.views["minilm"], asleep=True)
    body = b'{"inputs": "a"}'
    assert await _asked_whole(behind, "/endpoints/minilm", body, dict(_KEY)) == 200
    for length, most in ((b"99", 99), (b"8000000", 128 * 1024)):
        loading.asleep = True
        await _asked_in_pieces(behind, "/endpoints/minilm", {**_KEY, b"content-length": length})
        assert loading.sizes[-1] == most
    assert loading.sizes[0] == len(body)


@pytest.mark.parametrize("headers", [{}, _KEY])
async def test_in_an_overload_a_strangers_body_is_not_searched_for_an_endpoint(
    headers: dict[bytes, bytes],
) -> None:
    searched: list[bytes] = []

    async def handle(_: Request) -> Reply:
        raise AssertionError("a connection calls no handler")

    def endpoint_in(body: bytes) -> str:
        searched.append(body)
        return "minilm"

    front = _behind().front
    route = Route("POST", "/named", handle, "openai", predicts=True, endpoint_in=endpoint_in)
    refusals = EarlyRefusals(Router([route]), front.admission, FakeMetrics())
    assert refusals.refusal("POST", "/named", headers, _BROKEN) is None
    assert searched == ([_BROKEN] if headers else [])
