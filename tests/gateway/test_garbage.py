"""Requests leave no circles of objects, or the garbage collector would stop the loop to end them.

A collection of the circles of 8,000 requests took 25 ms, and every other request waited for it.
"""

import gc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import pytest
from front_fakes import FakeMetrics
from gateway_world import FakeEngine, endpoint_of
from numpy.typing import NDArray
from pipeline_world import ONE, TWO, World, world_of
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from contracts.endpoint import EndpointLimits
from gateway.app import Application, create_app
from gateway.dialects.front import Front
from gateway.dialects.oip_grpc import OpenInferenceGrpc, create_server
from gateway.engine.protocol import EngineError, EngineModelError, EngineTimeoutError, Work
from gateway.http.body import HttpLimits
from gateway.http.messages import Reply
from gateway.http.plain_post import PlainPost

REQUESTS = 600  # more than a batcher remembers until it sweeps those out that have ended
LIMITS = EndpointLimits(
    max_texts_per_request=2, timeout_seconds=600
)  # also where the machine stands still
GOOD = b'{"inputs": ["w1 w2", "w3"]}'
PATH = "/endpoints/sentiment"


async def circles_of(ask: Callable[[int], Awaitable[None]]) -> int:
    """Objects that so many requests leave to the garbage collector."""
    await ask(10)  # what is made only once is there then
    gc.collect()
    gc.freeze()  # what other tests left behind does not count
    gc.disable()
    try:
        await ask(REQUESTS)
        return gc.collect()
    finally:
        gc.enable()


async def circles_of_posts(app: Application, post: PlainPost, status: int) -> int:
    statuses: list[int] = []

    def keep(reply: Reply, _: str) -> None:
        statuses.append(int(reply.status))

    async def ask(times: int) -> None:
        for _ in range(times):
            await app.answer_post(post, keep, no_stream)

    found = await circles_of(ask)
    assert set(statuses) == {status}
    return found


async def no_stream(*_: object) -> None:
    raise AssertionError("it should come whole")


def front_of(world: World) -> Front:
    return Front(world.endpoints, world.admission, world.pipeline, FakeMetrics())


def app_of(world: World) -> Application:
    return create_app(front_of(world))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (PATH, GOOD, 200),
        (PATH, b"{", 400),
        ("/endpoints/nobody", GOOD, 404),
        (PATH, b'{"inputs": ["a", "b", "c"]}', 413),
    ],
)
async def test_a_request_leaves_nothing_to_the_garbage_collector(
    path: str, body: bytes, status: int
) -> None:
    endpoint = endpoint_of(ONE.ref, limits=LIMITS)
    async with world_of(endpoint) as world:
        assert await circles_of_posts(app_of(world), PlainPost(path, {}, body), status) < REQUESTS


@dataclass
class Failing(FakeEngine):
    """Fails on everything, each time with another error object."""

    kind: type[EngineError] = EngineModelError

    async def infer(self, work: Work, timeout_seconds: float) -> NDArray[np.float32]:
        raise self.kind("It fails.")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "weight", "status"),
    [
        (Failing(), 0.0, 502),
        (Failing(kind=EngineTimeoutError), 0.0, 504),
        (FakeEngine(others={TWO.name: Failing()}), 100.0, 200),
    ],
    ids=["the model fails", "Triton is late", "a candidate fails and stable answers"],
)
async def test_a_request_that_an_engine_fails_leaves_nothing_either(
    engine: FakeEngine, weight: float, status: int
) -> None:
    endpoint = endpoint_of(ONE.ref, canary=TWO.ref, weight=weight, rollout="r", limits=LIMITS)
    async with world_of(endpoint, engine) as world:
        assert await circles_of_posts(app_of(world), PlainPost(PATH, {}, GOOD), status) < REQUESTS


@pytest.mark.slow
async def test_a_refusal_over_grpc_leaves_no_more_than_grpc_itself() -> None:
    async with world_of(endpoint_of(ONE.ref, limits=LIMITS)) as world:
        server = create_server(OpenInferenceGrpc(front_of(world), "1"), HttpLimits())
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        codes: list[grpc.StatusCode] = []
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub: Any = service_pb2_grpc.GRPCInferenceServiceStub(channel)

            async def ask(times: int) -> None:
                for _ in range(times):
                    call = stub.ModelInfer(pb.ModelInferRequest(model_name="nobody"))
                    codes.append(await call.code())

            # gRPC leaves five a call, and left forty more of a call that was aborted.
            assert await circles_of(ask) < 10 * REQUESTS
        assert set(codes) == {grpc.StatusCode.NOT_FOUND}
        await server.stop(None)
