"""A replay against a small HTTP server that answers as it is told to."""

import asyncio
from typing import Any

from scripted_server import Headers, Raw, Server, answer, positive, serving

from headrace.replay.sender import Plan, Replay
from headrace.replay.texts import ReplayText


async def replayed(server: Server, texts: list[ReplayText], **plan: Any) -> Replay:
    known = {"url": server.url, "endpoint": "tone", "rate": 1000.0, "timeout_seconds": 20.0}
    replay = Replay(Plan(**{**known, **plan}), texts)
    await replay.run(asyncio.Event())
    return replay


async def test_texts_are_sent_in_order_again_and_again_until_the_count_is_full() -> None:
    async with serving(positive) as server:
        replay = await replayed(
            server, [ReplayText("a"), ReplayText("b")], requests=5, concurrency=1
        )
    assert [body["inputs"] for _, body, _ in server.asked] == ["a", "b", "a", "b", "a"]
    assert {path for path, _, _ in server.asked} == {"/endpoints/tone"}
    assert replay.tally.statuses == {"200": 5}
    assert replay.tally.versions == {"3": 5}
    assert server.connections == 1


async def test_a_duration_ends_it_at_the_rate_that_was_asked_for() -> None:
    async with serving(positive) as server:
        replay = await replayed(server, [ReplayText("a")], seconds=0.2, rate=100.0)
    assert replay.tally.sent + replay.tally.skipped == 20


async def test_feedback_tells_the_truth_where_it_is_known() -> None:
    async with serving(positive) as server:
        texts = [
            ReplayText("a", label="negative"),
            ReplayText("b"),
            ReplayText("c", label="positive"),
        ]
        replay = await replayed(server, texts, requests=3, feedback=True)
    told = [body for path, body, _ in server.asked if path == "/feedback"]
    assert sorted(body["labels"][0] for body in told) == ["negative", "positive"]
    assert all(body["receipt"] == "r" for body in told)
    assert replay.tally.feedback == {"202": 2}
    assert (replay.tally.right, replay.tally.labelled) == (1, 2)


async def test_callers_are_named_by_a_column_or_made_up() -> None:
    async with serving(positive) as server:
        await replayed(server, [ReplayText("a", key="ann ü\n")], requests=1, api_key="kü")
        await replayed(server, [ReplayText("a")], requests=50, callers=3)
    headers = [headers for _, _, headers in server.asked]
    assert headers[0]["x-headrace-key"] == "ann%20%C3%BC%0A"
    assert headers[0]["authorization"] == "Bearer kü"
    made = {one["x-headrace-key"] for one in headers[1:]}
    assert made == {"caller-0", "caller-1", "caller-2"}


async def test_refusals_are_counted_with_their_sentence() -> None:
    async def refuses(path: str, body: Any, headers: Headers) -> Raw:
        return answer(503, {"error": {"code": "overloaded", "message": "too much"}})

    async with serving(refuses) as server:
        replay = await replayed(server, [ReplayText("a")], requests=3)
    assert replay.tally.statuses == {"503": 3}
    assert replay.tally.failures == {"503: too much": 3}
    assert not replay.tally.versions


async def test_a_server_that_says_nothing_is_counted_and_it_goes_on() -> None:
    async def silent(path: str, body: Any, headers: Headers) -> Raw:
        return b""

    async with serving(silent) as server:
        replay = await replayed(server, [ReplayText("a")], requests=4)
    assert replay.tally.statuses == {"none": 4}


async def test_a_request_that_takes_too_long_is_counted() -> None:
    async def never(path: str, body: Any, headers: Headers) -> Raw:
        await asyncio.Event().wait()
        return b""

    async with serving(never) as server:
        replay = await replayed(server, [ReplayText("a")], requests=2, timeout_seconds=0.05)
    assert replay.tally.failures == {"no answer: timeout": 2}


async def test_no_more_are_on_their_way_than_allowed() -> None:
    here, most = 0, 0
    full, go = asyncio.Event(), asyncio.Event()

    async def slow(path: str, body: Any, headers: Headers) -> Raw:
        nonlocal here, most
        here += 1
        most = max(most, here)
        if here == 3:
            full.set()
        await go.wait()
        here -= 1
        return await positive(path, body, headers)

    async with serving(slow) as server:
        running = asyncio.create_task(
            replayed(server, [ReplayText("a")], requests=9, concurrency=3)
        )
        await full.wait()
        go.set()
        replay = await running
    assert most == 3
    assert replay.tally.statuses == {"200": 9}


async def test_stopping_waits_for_what_is_on_its_way() -> None:
    arrived, go, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def waits(path: str, body: Any, headers: Headers) -> Raw:
        arrived.set()
        await go.wait()
        return await positive(path, body, headers)

    async with serving(waits) as server:
        replay = Replay(Plan(url=server.url, endpoint="tone", rate=0.01), [ReplayText("a")])
        running = asyncio.create_task(replay.run(stop))
        await arrived.wait()
        stop.set()
        go.set()
        await running
    assert replay.tally.statuses == {"200": 1}
    assert replay.tally.unfinished == 0


async def test_a_connection_that_the_server_closed_meanwhile_is_replaced() -> None:
    async with serving(positive) as server:
        server.keeps = False
        under = {"url": f"{server.url}/under/"}
        replay = await replayed(server, [ReplayText("a")], requests=3, concurrency=1, **under)
    assert replay.tally.statuses == {"200": 3}
    assert server.connections == 3
    assert server.asked[0][0] == "/under/endpoints/tone"
