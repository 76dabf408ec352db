"""Streams of tokens from a server that speaks Triton's protocol."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from gateway.engine.protocol import (
    Ending,
    EngineBusyError,
    EngineError,
    EngineMissingModelError,
    EngineModelError,
    EngineProcessGoneError,
    EngineUnavailableError,
    Prompt,
    TokenChunk,
)
from gateway.engine.triton import TritonEngine

PROMPT = Prompt("m", [5, 6], 3, 0.5, 0.9, 7, (9,))
SECONDS = 60.0


class Server(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers each prompt with what it is given; ``parts`` are responses or sentences."""

    def __init__(self, parts: list[Any], *, holds: bool = False) -> None:
        self.parts = parts
        self.holds = holds
        self.request: Any = None
        self.left = asyncio.Event()

    async def ModelStreamInfer(  # noqa: N802 - the protocol's
        self, requests: AsyncIterator[Any], context: Any
    ) -> AsyncIterator[Any]:
        del context
        try:
            async for self.request in requests:
                for part in self.parts:
                    if isinstance(part, str):
                        yield service_pb2.ModelStreamInferResponse(error_message=part)
                    else:
                        yield service_pb2.ModelStreamInferResponse(infer_response=part)
                if self.holds:
                    await asyncio.Event().wait()
        finally:
            self.left.set()


def response(token: int, finish: int = 0) -> Any:
    made = service_pb2.ModelInferResponse(model_name="m")
    for name, value in (("tokens", token), ("finish", finish)):
        made.outputs.add(name=name, datatype="INT32", shape=[1])
        made.raw_output_contents.append(np.array([value], np.int32).tobytes())
    return made


@asynccontextmanager
async def served(server: Server) -> AsyncIterator[TritonEngine]:
    rpc = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(server, rpc)
    port = rpc.add_insecure_port("127.0.0.1:0")
    await rpc.start()
    engine = TritonEngine(f"127.0.0.1:{port}")
    try:
        yield engine
    finally:
        await engine.close()
        await rpc.stop(grace=None)


async def test_tokens_come_one_by_one_and_say_which_is_the_last() -> None:
    empty = service_pb2.ModelInferResponse(model_name="m")
    server = Server([response(4), empty, response(5), response(9, 1)])
    async with served(server) as engine:
        stream = engine.generate(PROMPT, SECONDS)
        parts = [await stream.next() for _ in range(3)]
        assert parts == [TokenChunk([4]), TokenChunk([5]), TokenChunk([9], Ending.STOPPED)]
        sent = dict(zip(
            (each.name for each in server.request.inputs),
            server.request.raw_input_contents, strict=True,
        ))  # fmt: skip
        assert np.frombuffer(sent["input_ids"], np.int64).tolist() == [5, 6]
        assert np.frombuffer(sent["max_tokens"], np.int32).tolist() == [3]
        assert np.frombuffer(sent["temperature"], np.float32).tolist() == [0.5]
        assert np.frombuffer(sent["stop_ids"], np.int64).tolist() == [9]
        assert np.frombuffer(sent["seed"], np.int64).tolist() == [7]


async def test_a_stream_that_is_closed_ends_at_the_server() -> None:
    server = Server([response(4)], holds=True)
    async with served(server) as engine:
        stream = engine.generate(PROMPT, SECONDS)
        await stream.next()
        stream.close()
        async with asyncio.timeout(SECONDS):
            await server.left.wait()


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        (["engine: out of memory"], EngineModelError),
        (["queue is full: 256 requests wait"], EngineBusyError),
        (["Stub process 'm' is not healthy."], EngineProcessGoneError),
        (["Request for unknown model: 'm' is not found"], EngineMissingModelError),
        ([service_pb2.ModelInferResponse(raw_output_contents=[b"1234"])], EngineModelError),
        ([], EngineUnavailableError),  # ended before the text
    ],
)
async def test_what_goes_wrong_is_told_by_its_kind(
    parts: list[Any], error: type[EngineError]
) -> None:
    async with served(Server(parts)) as engine:
        with pytest.raises(error):
            await engine.generate(PROMPT, SECONDS).next()


async def test_where_nobody_listens_no_text_begins() -> None:
    server = Server([])
    async with served(server) as engine:
        address = engine._address
    engine = TritonEngine(address)
    with pytest.raises(EngineUnavailableError):
        await engine.generate(PROMPT, SECONDS).next()
    await engine.close()
