"""OpenAI's completions: the unmodified client, streams on sockets, and what is refused."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import uvicorn
from front_fakes import Behind, FakeMetrics
from gateway_world import FakeEngine, endpoint_of, writer_of
from pipeline_world import ONE, World, world_of

from gateway.app import create_app
from gateway.dialects.front import Front
from gateway.engine.protocol import EngineModelError
from gateway.http.body import HttpLimits
from gateway.http.server import uvicorn_options
from gateway.inference.generation import Generation
from gateway.main import HttpServer

if TYPE_CHECKING:
    import openai

MODEL = writer_of(stop_ids=(9,))  # the token of w7
BODY = {"model": "sentiment", "prompt": "w0 w1", "max_tokens": 3, "temperature": 0}


class Told(FakeMetrics):
    """Says when a request is finished."""

    def __init__(self) -> None:
        super().__init__()
        self.told = asyncio.Event()

    def request_finished(self, dialect: str, status: int, seconds: float) -> None:
        super().request_finished(dialect, status, seconds)
        self.told.set()


class Server(HttpServer):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


@dataclass
class Here:
    """A gateway on a socket, and what is behind it."""

    world: World
    metrics: Told
    url: str
    port: int


@asynccontextmanager
async def gateway(engine: FakeEngine | None = None) -> AsyncIterator[Here]:
    async with world_of(endpoint_of(MODEL.ref), engine, more=(MODEL,)) as world:
        metrics = Told()
        front = Front(
            world.endpoints,
            world.admission,
            world.pipeline,
            metrics,
            generation=Generation(world.pipeline),
        )
        limits = HttpLimits()
        app = create_app(front, limits)
        config = uvicorn.Config(app, port=0, **uvicorn_options(limits, app.early_refusals, app))
        config.loop = "none"
        server = Server(config)
        serving = asyncio.create_task(server.serve())
        await server.up.wait()
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            yield Here(world, metrics, f"http://127.0.0.1:{port}", port)
        finally:
            server.should_exit = server.force_exit = True
            await serving


@asynccontextmanager
async def client_of(here: Here) -> AsyncIterator["openai.AsyncOpenAI"]:
    import openai

    async with openai.AsyncOpenAI(
        base_url=f"{here.url}/v1", api_key="any", max_retries=0, timeout=60
    ) as client:
        yield client


async def test_the_client_gets_a_text_its_end_and_its_tokens() -> None:
    async with gateway() as here, client_of(here) as client:
        answer = await client.completions.create(
            model="sentiment", prompt="w0 w1", max_tokens=3, temperature=0
        )
        (choice,) = answer.choices
        assert (choice.text, choice.finish_reason) == (" w0 w1 w0", "length")
        assert answer.usage is not None
        usage = answer.usage
        assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (2, 3, 5)
        answer = await client.completions.create(model="sentiment", prompt="w0 w7 w1")
        (choice,) = answer.choices
        assert (choice.text, choice.finish_reason) == (" w0", "stop")
        assert here.world.engine.prompts[1].most == 16
        assert here.world.engine.prompts[1].temperature == 1


async def test_the_client_gets_a_stream_of_the_same_text_with_its_tokens() -> None:
    async with gateway() as here, client_of(here) as client:
        stream = await client.completions.create(
            model="sentiment",
            prompt="w0 w1",
            max_tokens=3,
            stream=True,
            stream_options={"include_usage": True},
        )
        parts = [part async for part in stream]
        *pieces, end, usage = parts
        assert [part.choices[0].text for part in pieces] == [" w0", " w1", " w0"]
        assert {part.choices[0].finish_reason for part in pieces} == {None}
        assert (end.choices[0].text, end.choices[0].finish_reason) == ("", "length")
        assert usage.choices == []
        assert usage.usage is not None
        assert (usage.usage.prompt_tokens, usage.usage.completion_tokens) == (2, 3)
        assert len({part.id for part in parts}) == 1
        assert here.world.statuses == [200]
        # The connection goes on after a stream.
        assert (await client.completions.create(model="sentiment", prompt="w1")).choices


async def test_the_client_gets_several_texts_by_their_indexes() -> None:
    async with gateway() as here, client_of(here) as client:
        answer = await client.completions.create(
            model="sentiment", prompt="w0 w1", max_tokens=3, n=2, best_of=2, seed=5
        )
        assert [choice.index for choice in answer.choices] == [0, 1]
        assert {choice.text for choice in answer.choices} == {" w0 w1 w0"}
        assert {choice.finish_reason for choice in answer.choices} == {"length"}
        assert answer.usage is not None
        usage = answer.usage
        assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (2, 6, 8)
        first, second = here.world.engine.prompts
        assert first.seed == 5
        assert second.seed != 5
        await client.completions.create(model="sentiment", prompt="w0 w1", n=2, seed=5)
        assert [prompt.seed for prompt in here.world.engine.prompts[2:]] == [5, second.seed]
        assert here.world.statuses == [200] * 4
        assert here.metrics.finished == [("openai", 200)] * 2


async def test_the_client_gets_a_stream_of_several_texts() -> None:
    async with gateway() as here, client_of(here) as client:
        stream = await client.completions.create(
            model="sentiment",
            prompt="w0 w1 w7",
            max_tokens=5,
            n=2,
            stream=True,
            stream_options={"include_usage": True},
        )
        texts, ended = ["", ""], []
        *parts, usage = [part async for part in stream]
        for part in parts:
            (choice,) = part.choices
            assert choice.index not in ended
            texts[choice.index] += choice.text
            if choice.finish_reason is not None:
                assert choice.finish_reason == "stop"
                ended.append(choice.index)
        assert texts == [" w0 w1"] * 2
        assert sorted(ended) == [0, 1]
        assert usage.usage is not None
        assert (usage.usage.prompt_tokens, usage.usage.completion_tokens) == (3, 6)
        assert here.world.budget.by_endpoint() == {}


async def test_a_stream_of_several_texts_breaks_off_with_the_first_that_does() -> None:
    engine = FakeEngine(error=EngineModelError("out of memory"), breaks_after=2)
    async with gateway(engine) as here, httpx.AsyncClient(base_url=here.url, timeout=60) as client:
        answer = await client.post("/v1/completions", json={**BODY, "n": 2, "stream": True})
        *events, last, rest = answer.text.split("\n\n")
        assert events
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "model_failed"
        assert rest == ""
        assert 502 in here.world.statuses
        assert all(stream.closed for stream in engine.streams)
        assert here.world.budget.by_endpoint() == {}


@pytest.mark.parametrize("plain", [True, False])
async def test_a_stream_is_told_by_its_headers_and_ends_with_done(*, plain: bool) -> None:
    # A header that only the parser takes sends the other one through ASGI.
    headers = {} if plain else {"expect": "100-continue"}
    async with gateway() as here, httpx.AsyncClient(base_url=here.url, timeout=60) as client:
        answer = await client.post(
            "/v1/completions", json={**BODY, "stream": True}, headers=headers
        )
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["transfer-encoding"] == "chunked"
        assert answer.headers["x-headrace-version"] == "1"
        assert answer.headers["x-request-id"]
        *events, last, rest = answer.text.split("\n\n")
        assert (last, rest) == ("data: [DONE]", "")
        texts = [json.loads(event.removeprefix("data: "))["choices"][0]["text"] for event in events]
        assert "".join(texts) == " w0 w1 w0"
        assert here.metrics.finished == [("openai", 200)]


async def test_a_caller_of_http_1_0_gets_the_stream_up_to_the_end_of_the_connection() -> None:
    async with gateway() as here:
        body = json.dumps({**BODY, "stream": True}).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        head = f"POST /v1/completions HTTP/1.0\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = await reader.read()
        writer.close()
        head, _, content = answer.decode().partition("\r\n\r\n")
        assert "transfer-encoding" not in head
        assert "connection: close" in head
        assert content.startswith("data: {")
        assert content.endswith("data: [DONE]\n\n")


async def test_a_stream_that_breaks_off_says_why_and_is_not_done() -> None:
    engine = FakeEngine(error=EngineModelError("out of memory"), breaks_after=2)
    async with gateway(engine) as here, client_of(here) as client:
        import openai

        stream = await client.completions.create(
            model="sentiment", prompt="w0 w1", max_tokens=5, stream=True
        )
        parts = aiter(stream)
        assert [(await anext(parts)).choices[0].text for _ in range(2)] == [" w0", " w1"]
        with pytest.raises(openai.APIError, match="out of memory") as broken:
            await anext(parts)
        assert broken.value.code == "model_failed"
        assert here.world.statuses == [502]
        assert here.metrics.finished == [("openai", 502)]
        assert here.world.budget.by_endpoint() == {}


async def test_a_text_that_breaks_off_is_an_error_where_nothing_was_sent() -> None:
    engine = FakeEngine(error=EngineModelError("out of memory"), breaks_after=2)
    async with gateway(engine) as here, httpx.AsyncClient(base_url=here.url, timeout=60) as client:
        answer = await client.post("/v1/completions", json=BODY)
        assert answer.status_code == 502
        assert answer.json()["error"]["code"] == "model_failed"


@pytest.mark.parametrize("plain", [True, False])
async def test_a_caller_who_hangs_up_stops_the_engine(*, plain: bool) -> None:
    engine = FakeEngine(held=asyncio.Event(), breaks_after=1)
    async with gateway(engine) as here:
        body = json.dumps({**BODY, "stream": True}).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        expect = "" if plain else "x-a: 1\r\nx-a: 2\r\n"  # a repeated header needs the parser
        line = "POST /v1/completions HTTP/1.1\r\nhost: x\r\n"
        head = f"{line}{expect}content-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await reader.readuntil(b'"text":" w0"')
        writer.close()
        await here.metrics.told.wait()
        assert here.metrics.finished == [("openai", 499)]
        assert here.world.statuses == [499]
        assert engine.streams[0].closed
        assert here.world.budget.by_endpoint() == {}


@pytest.mark.parametrize(
    ("change", "status", "told"),
    [
        ({"prompt": ""}, 422, "prompt: it is empty"),
        ({"prompt": [1, 2]}, 422, "prompt: send one text"),
        ({"prompt": ["w0", "w1"]}, 422, "prompt: send one text"),
        ({"prompt": None}, 400, "prompt"),
        ({"prompt": "w0 " * 40}, 422, "prompt: it has more than the 32 tokens"),
        ({"prompt": "w0 " * 30}, 422, "max_tokens: the prompt has 30 tokens"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"max_tokens": 31}, 422, "max_tokens: "),
        ({"max_tokens": 2**70}, 422, "max_tokens: "),
        ({"max_tokens": 1.5}, 400, "max_tokens"),
        ({"temperature": 2.1}, 400, "temperature"),
        ({"temperature": -0.1}, 400, "temperature"),
        ({"top_p": 0}, 400, "top_p"),
        ({"seed": "x"}, 400, "seed"),
        ({"stop": ""}, 400, "stop"),
        ({"stop": ["a", "b", "c", "d", "e"]}, 400, "stop"),
        ({"n": 3}, 422, "n: this endpoint writes 2 texts at once"),
        ({"n": 0}, 400, "n"),
        ({"best_of": 2}, 422, "best_of: no text is chosen"),
        ({"n": 2, "best_of": 1}, 422, "best_of: "),
        ({"echo": True}, 422, "echo: "),
        ({"logprobs": 0}, 422, "logprobs: "),
        ({"suffix": "x"}, 422, "suffix: "),
        ({"presence_penalty": 0.5}, 422, "presence_penalty: "),
        ({"logit_bias": {"5": 1}}, 422, "logit_bias: "),
        ({"stream_options": {"include_usage": True}}, 422, "stream_options: "),
        ({"top_k": 5}, 400, "top_k"),
        ({"model": "nobody"}, 404, "no endpoint"),
    ],
)
async def test_what_can_not_be_done_is_refused_with_its_field(
    change: dict[str, Any], status: int, told: str
) -> None:
    async with gateway() as here, httpx.AsyncClient(base_url=here.url, timeout=60) as client:
        for stream in (False, True):
            if "stream_options" in change and stream:
                continue
            body = {**BODY, "stream": stream, **change}
            answer = await client.post("/v1/completions", json=body)
            assert (answer.status_code, told in answer.json()["error"]["message"]) == (status, True)
        assert here.world.engine.prompts == []


async def test_the_example_of_the_document_is_answered() -> None:
    described = {one.path: one.operation.examples for one in Behind().app.described}
    examples = described["/v1/completions"].values()
    assert examples
    async with gateway() as here, httpx.AsyncClient(base_url=here.url, timeout=60) as client:
        for example in examples:
            assert isinstance(example, dict)
            body = {**example, "model": "sentiment"}
            answer = await client.post("/v1/completions", json=body)
            assert answer.status_code == 200


async def test_fields_at_their_neutral_values_are_taken() -> None:
    neutral = {"n": 1, "best_of": 1, "echo": False, "logprobs": None, "presence_penalty": 0}
    async with gateway() as here, httpx.AsyncClient(base_url=here.url, timeout=60) as client:
        body = {**BODY, **neutral, "user": "me", "stop": None, "seed": 7, "top_p": 0.5}
        answer = await client.post("/v1/completions", json=body)
        assert answer.status_code == 200
        (prompt,) = here.world.engine.prompts
        assert (prompt.seed, prompt.top_p, prompt.temperature) == (7, 0.5, 0)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/endpoints/sentiment", {"inputs": "w0"}),
        ("/v1/models/sentiment:predict", {"instances": ["w0"]}),
        (
            "/v2/models/sentiment/infer",
            {"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": ["w0"]}]},
        ),
        ("/v1/embeddings", {"model": "sentiment", "input": "w0"}),
    ],
)
async def test_other_dialects_say_where_texts_are_written(path: str, body: dict[str, Any]) -> None:
    async with gateway() as here, httpx.AsyncClient(base_url=here.url, timeout=60) as client:
        answer = await client.post(path, json=body)
        assert answer.status_code == 422
        assert "text-generation" in answer.text


async def test_an_endpoint_of_another_task_writes_nothing() -> None:
    async with world_of(endpoint_of(ONE.ref)) as world:
        front = Front(
            world.endpoints, world.admission, world.pipeline, FakeMetrics(),
            generation=Generation(world.pipeline),
        )  # fmt: skip
        transport = httpx.ASGITransport(create_app(front))
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            answer = await client.post("/v1/completions", json=BODY)
        assert answer.status_code == 422
        assert "does text-classification" in answer.text
