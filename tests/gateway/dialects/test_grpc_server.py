"""The gRPC server's connections: renewed in time, and no call is lost when it is stopped."""

import asyncio

import grpc
from front_fakes import FakePredictor, front_of, view
from google.protobuf.message import Message
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from contracts.tasks import Task
from gateway.dialects.front import Front
from gateway.dialects.oip_grpc import OpenInferenceGrpc, create_server
from gateway.http.body import HttpLimits

ENDPOINT = "sentiment"


def front() -> Front:
    predictor = FakePredictor({ENDPOINT: view(ENDPOINT, Task.TEXT_CLASSIFICATION)})
    return front_of(predictor)


class _PeersSeen(OpenInferenceGrpc):
    """Notes from which connection each call came."""

    def __init__(self) -> None:
        super().__init__(front(), "0")
        self.peers: set[str] = set()

    async def ServerLive(  # noqa: N802  the protocol's name
        self, context: grpc.aio.ServicerContext
    ) -> Message | None:
        self.peers.add(context.peer())
        return await super().ServerLive(context)


async def test_a_client_over_grpc_opens_a_new_connection_in_time_and_no_call_fails_by_it() -> None:
    service = _PeersSeen()
    server = create_server(service, HttpLimits(), connection_seconds=0.2)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel, asyncio.timeout(60):
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        while len(service.peers) < 3:
            await stub.ServerLive(pb.ServerLiveRequest())
    await server.stop(None)


async def _code_when_refused(stub: service_pb2_grpc.GRPCInferenceServiceStub) -> str:
    """How the first failing call ends, of calls without a pause: the caller goes elsewhere."""
    while True:
        try:
            await stub.ModelReady(pb.ModelReadyRequest(name=ENDPOINT))
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)


async def test_calls_over_grpc_while_a_gateway_ends_are_told_to_try_again() -> None:
    for _ in range(5):
        service = OpenInferenceGrpc(front(), "0")
        # A busy machine may need more than the second that calls have to reach the event loop.
        server = create_server(service, HttpLimits(), pending_seconds=60)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel, asyncio.timeout(60):
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            await stub.ServerLive(pb.ServerLiveRequest())
            callers = [asyncio.create_task(_code_when_refused(stub)) for _ in range(8)]
            await asyncio.sleep(0)
            await stub.ServerLive(pb.ServerLiveRequest())  # all are at work by now
            await service.drain()
            await server.stop(5)
            assert set(await asyncio.gather(*callers)) == {"UNAVAILABLE"}
