"""Every dialect goes through the request scheduler: in rotation, and no wait is too long."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import httpx
import pytest
from front_fakes import FakePredictor, front_of, guard, view
from loop_clocks import PatientLoop, runs_on
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from contracts.tasks import Task
from gateway.admission.request_scheduler import RequestScheduler
from gateway.app import create_app
from gateway.calls import Answer, Call
from gateway.dialects.oip_grpc import OpenInferenceGrpc, create_server
from gateway.errors import OverloadedError
from gateway.http.body import HttpLimits
from gateway.request_context import RequestContext

TEXTS = [f"text {number}" for number in range(8)]
CLASSIFIERS, EMBEDDERS = ("busy", "quiet"), ("busy-vectors", "quiet-vectors")


def loop() -> PatientLoop:
    running = asyncio.get_running_loop()
    assert isinstance(running, PatientLoop)
    return running


@dataclass
class BusyPredictor(FakePredictor):
    """Keeps the processor for a while for each call, as tokenising does; notes their order."""

    seconds: float = 0.003
    order: list[str] = field(default_factory=list)

    async def predict(self, call: Call) -> Answer:
        loop().work(self.seconds)
        self.order.append(call.endpoint)
        return await super().predict(call)


@dataclass
class Fronts:
    """Both fronts over one predictor, all in one event loop."""

    predictor: BusyPredictor
    http: httpx.AsyncClient
    grpc: service_pb2_grpc.GRPCInferenceServiceStub

    async def post(self, path: str, body: object) -> int:
        """The status of one request over HTTP."""
        return (await self.http.post(path, json=body)).status_code

    async def huggingface(self, endpoint: str) -> int:
        return await self.post(f"/endpoints/{endpoint}", {"inputs": TEXTS})

    async def kserve(self, endpoint: str) -> int:
        return await self.post(f"/v1/models/{endpoint}:predict", {"instances": TEXTS})

    async def oip_http(self, endpoint: str) -> int:
        one = {"name": "TEXT", "datatype": "BYTES", "shape": [len(TEXTS)], "data": TEXTS}
        return await self.post(f"/v2/models/{endpoint}/infer", {"inputs": [one]})

    async def embeddings(self, endpoint: str) -> int:
        return await self.post("/v1/embeddings", {"input": TEXTS, "model": f"{endpoint}-vectors"})

    async def tei(self, endpoint: str) -> int:
        return await self.post(f"/endpoints/{endpoint}-vectors/embed", {"inputs": TEXTS})

    async def litellm(self, endpoint: str) -> int:
        path = f"/endpoints/{endpoint}/beta/litellm_basic_guardrail_api"
        return await self.post(path, {"texts": TEXTS})

    async def detectors(self, endpoint: str) -> int:
        return await self.post(f"/endpoints/{endpoint}/api/v1/text/contents", {"contents": TEXTS})

    async def oip_grpc(self, endpoint: str, version: str = "") -> int:
        request = pb.ModelInferRequest(model_name=endpoint, model_version=version)
        tensor = request.inputs.add(name="TEXT", datatype="BYTES", shape=[len(TEXTS)])
        tensor.contents.bytes_contents.extend(text.encode() for text in TEXTS)
        try:
            await self.grpc.ModelInfer(request)
        except grpc.aio.AioRpcError as error:
            told = dict(error.trailing_metadata() or ())
            return 503 if told.get("x-headrace-error") == "overloaded" else 0
        return 200


Ask = Callable[[Fronts, str], Coroutine[None, None, int]]
HTTP = [
    Fronts.huggingface, Fronts.kserve, Fronts.oip_http, Fronts.embeddings, Fronts.tei,
    Fronts.litellm, Fronts.detectors,
]  # fmt: skip
DIALECTS = [*HTTP, Fronts.oip_grpc]


@asynccontextmanager
async def fronts_with(seconds: float) -> AsyncIterator[Fronts]:
    """Fronts whose requests keep the processor for so long each."""
    views = [guard(name=name) for name in CLASSIFIERS]
    views += [view(name, Task.TEXT_EMBEDDING) for name in EMBEDDERS]
    predictor = BusyPredictor({one.name: one for one in views}, seconds=seconds)
    front = front_of(predictor, scheduler=RequestScheduler(loop().time))
    limits = HttpLimits()
    server = create_server(OpenInferenceGrpc(front, "0"), limits)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    transport = httpx.ASGITransport(create_app(front, limits))
    async with (
        httpx.AsyncClient(transport=transport, base_url="http://gateway") as http,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        asyncio.timeout(60),
    ):
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        await stub.ServerLive(pb.ServerLiveRequest())
        yield Fronts(predictor, http, stub)
    await server.stop(None)


@pytest.mark.parametrize("ask", HTTP)
@runs_on(PatientLoop)
async def test_a_quiet_endpoint_is_not_behind_all_of_a_busy_one(ask: Ask) -> None:
    async with fronts_with(0.003) as fronts:
        busy = [asyncio.create_task(ask(fronts, "busy")) for _ in range(60)]
        await asyncio.sleep(0)
        quiet = asyncio.create_task(ask(fronts, "quiet"))
        await asyncio.gather(*busy)
        assert await quiet == 200
        order = fronts.predictor.order
    (place,) = [at for at, name in enumerate(order) if name.startswith("quiet")]
    assert place < 40


# Over gRPC, `tests/stack/test_overload.py` does it: here callers share the server's event loop, so
# that calls over gRPC come no faster than they are answered.
@pytest.mark.parametrize("ask", HTTP)
@runs_on(PatientLoop)
async def test_whoever_would_wait_too_long_is_refused_when_it_comes(ask: Ask) -> None:
    async with fronts_with(0.02) as fronts:
        first = [asyncio.create_task(ask(fronts, "busy")) for _ in range(40)]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        later = await asyncio.gather(*(ask(fronts, "busy") for _ in range(20)))
        began = await asyncio.gather(*first)
    assert set(began) | set(later) == {200, 503}
    answered = sum(status == 200 for status in (*began, *later))
    assert answered == len(fronts.predictor.order) >= 10  # what was refused took no work


@runs_on(PatientLoop)
async def test_over_grpc_nobody_overtakes_those_who_wait_over_http() -> None:
    async with fronts_with(0.003) as fronts:
        first = [asyncio.create_task(fronts.huggingface("busy")) for _ in range(40)]
        await asyncio.sleep(0)
        # A version of its own, to be told apart by: the fake holds 3 and 2.
        status = await fronts.oip_grpc("busy", version="2")
        statuses = await asyncio.gather(*first)
        versions = [call.forced_version for call in fronts.predictor.calls]
    assert set(statuses) == {200}
    assert versions == [None] * 40 + ["2"] * (status == 200)


@runs_on(PatientLoop)
async def test_what_would_find_no_room_is_refused_before_it_waits() -> None:
    scheduler = RequestScheduler(loop().time)
    predictor = FakePredictor.with_endpoints()
    admission = front_of(predictor, scheduler=scheduler).admission
    await admission.enter(RequestContext("first", 0.0, 0.0), "sentiment")
    loop().work(0.02)  # this turn of the loop is used up
    predictor.full = OverloadedError("Full.", retry_after_seconds=1)
    with pytest.raises(OverloadedError):
        await admission.enter(RequestContext("second", 0.0, 0.0), "sentiment")
    assert scheduler.waiting == 0
