"""Triton's protocol: tensors as they are, every status as the error it means, nothing hangs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from certificates import write
from gpu_messages import OF_ALL
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from contracts import gpu_faults
from gateway.engine.protocol import (
    EngineError,
    EngineMissingModelError,
    EngineModelError,
    EngineProcessGoneError,
    EngineTimeoutError,
    EngineUnavailableError,
    Work,
)
from gateway.engine.triton import TritonEngine, engine_error, infer_request, result
from service.mutual_tls import AUTHORITY, MutualTls

Code = grpc.StatusCode
IDS = np.array([[5, 6, 0], [7, 0, 0]], np.int64)
EITHER_CLIENT = pytest.mark.parametrize("own_client", [True, False], ids=["own", "grpc"])
WORK = Work(model="m", output="logits", tensors={"input_ids": IDS})


class Triton(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers [sum, count] of each row; fails or never answers where told."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.arrived = asyncio.Event()
        self.failure: tuple[grpc.StatusCode, str] | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.given_up = asyncio.Event()

    async def ModelInfer(  # noqa: N802 - the protocol's own name
        self, request: Any, context: Any
    ) -> Any:
        self.requests.append(request)
        self.arrived.set()
        try:
            await self.answers.wait()
        except asyncio.CancelledError:
            self.given_up.set()
            raise
        if self.failure is not None:
            await context.abort(*self.failure)
        shape = tuple(request.inputs[0].shape)
        ids = np.frombuffer(request.raw_input_contents[0], np.int64).reshape(shape)
        values = np.stack([ids.sum(axis=1), (ids > 0).sum(axis=1)], axis=1).astype(np.float32)
        response = pb.ModelInferResponse(model_name=request.model_name)
        response.outputs.add(name="logits", datatype="FP32", shape=values.shape)
        response.raw_output_contents.append(values.tobytes())
        return response

    async def ModelReady(  # noqa: N802 - the protocol's own name
        self, request: Any, context: Any
    ) -> Any:
        return pb.ModelReadyResponse(ready=request.name == "m")


@asynccontextmanager
async def triton_at(
    own_client: bool = True,
) -> AsyncIterator[tuple[Triton, TritonEngine, grpc.aio.Server]]:
    triton, server = Triton(), grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(triton, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    engine = TritonEngine(f"127.0.0.1:{port}", own_client=own_client)
    async with asyncio.timeout(60):
        yield triton, engine, server
    await engine.close()
    await server.stop(None)


@EITHER_CLIENT
async def test_a_batch_goes_and_its_answer_comes(own_client: bool) -> None:
    async with triton_at(own_client) as (triton, engine, _):
        values = await engine.infer(WORK, 5)
        assert values.tolist() == [[11, 2], [7, 1]]
        assert values.dtype == np.float32
        assert triton.requests[0].model_name == "m"
        assert [output.name for output in triton.requests[0].outputs] == ["logits"]


@EITHER_CLIENT
async def test_a_slow_engine_runs_into_its_time(own_client: bool) -> None:
    async with triton_at(own_client) as (triton, engine, _):
        triton.answers.clear()
        with pytest.raises(EngineTimeoutError):
            await engine.infer(WORK, 0.05)


@EITHER_CLIENT
async def test_an_engine_that_is_away_fails_at_once_and_is_not_ready(own_client: bool) -> None:
    async with triton_at(own_client) as (_, engine, server):
        await engine.infer(WORK, 5)
        await server.stop(None)
        with pytest.raises(EngineUnavailableError):
            await engine.infer(WORK, 5)
        assert not await engine.ready("m", 0.05)


@EITHER_CLIENT
async def test_an_engine_that_dies_under_a_batch_is_unavailable(own_client: bool) -> None:
    async with triton_at(own_client) as (triton, engine, server):
        triton.answers.clear()
        batch = asyncio.create_task(engine.infer(WORK, 10))
        await triton.arrived.wait()
        await server.stop(None)
        with pytest.raises(EngineUnavailableError):
            await batch


@EITHER_CLIENT
async def test_an_engine_is_ready_for_the_models_that_it_holds(own_client: bool) -> None:
    async with triton_at(own_client) as (_, engine, _):
        assert await engine.ready("m", 5)
        assert not await engine.ready("other", 5)


@EITHER_CLIENT
async def test_a_closed_engine_is_unavailable(own_client: bool) -> None:
    async with triton_at(own_client) as (_, engine, _):
        await engine.close()
        with pytest.raises(EngineUnavailableError):
            await engine.infer(WORK, 5)
        assert not await engine.ready("m", 0.05)


@EITHER_CLIENT
async def test_an_engine_that_is_closed_under_a_batch_is_unavailable(own_client: bool) -> None:
    async with triton_at(own_client) as (triton, engine, _):
        triton.answers.clear()
        batch = asyncio.create_task(engine.infer(WORK, 10))
        await triton.arrived.wait()
        await engine.close()
        with pytest.raises(EngineUnavailableError):
            await batch


@EITHER_CLIENT
async def test_a_batch_that_is_given_up_is_told_to_the_engine(own_client: bool) -> None:
    async with triton_at(own_client) as (triton, engine, _):
        triton.answers.clear()
        batch = asyncio.create_task(engine.infer(WORK, 10))
        await triton.arrived.wait()
        batch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await batch
        await triton.given_up.wait()


@EITHER_CLIENT
async def test_many_batches_at_once_get_each_its_own_answer(own_client: bool) -> None:
    async with triton_at(own_client) as (_, engine, _):
        works = [Work("m", "logits", {"input_ids": IDS + n}) for n in range(50)]
        answers = await asyncio.gather(*(engine.infer(work, 30) for work in works))
        assert [int(answer[0, 0]) for answer in answers] == [11 + 3 * n for n in range(50)]


@EITHER_CLIENT
async def test_an_engine_over_tls_is_called_by_the_name_in_its_certificate(
    own_client: bool, tmp_path: Path
) -> None:
    certificate, key = (path.read_bytes() for path in write(tmp_path, "localhost"))
    (tmp_path / AUTHORITY).write_bytes(certificate)
    credentials = grpc.ssl_server_credentials([(key, certificate)], certificate, True)
    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Triton(), server)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    address = f"127.0.0.1:{port}"
    engine = TritonEngine(address, MutualTls(tmp_path, "localhost"), own_client=own_client)
    assert (await engine.infer(WORK, 30)).tolist() == [[11, 2], [7, 1]]
    other = TritonEngine(address, MutualTls(tmp_path, "another"), own_client=own_client)
    with pytest.raises(EngineUnavailableError):
        await other.infer(WORK, 30)
    await engine.close()
    await other.close()
    await server.stop(None)


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        (Code.UNAVAILABLE, "failed to connect", EngineUnavailableError),
        (Code.UNAVAILABLE, "Socket closed", EngineUnavailableError),
        (Code.RESOURCE_EXHAUSTED, "queue full", EngineUnavailableError),
        (Code.CANCELLED, "", EngineUnavailableError),
        (Code.NOT_FOUND, "Request for unknown model: 'm' is not found", EngineMissingModelError),
        (Code.UNAVAILABLE, "Request for unknown model: 'm' has no available versions",
         EngineMissingModelError),
        (Code.INTERNAL, "Stub process 'm_0' is not healthy.", EngineProcessGoneError),
        (Code.INTERNAL, "engine: ValueError: server exiting, stub process", EngineModelError),
        (Code.UNAVAILABLE, "Server is stopping: shutting down", EngineUnavailableError),
        (Code.INTERNAL, "ONNX Runtime: bad shape", EngineModelError),
        (Code.INVALID_ARGUMENT, "unexpected shape for input", EngineModelError),
        (Code.DEADLINE_EXCEEDED, "Deadline Exceeded", EngineTimeoutError),
    ],
)  # fmt: skip
def test_each_status_is_what_it_means(
    code: grpc.StatusCode, details: str, kind: type[EngineError]
) -> None:
    error = engine_error(code, details, "here:1")
    assert type(error) is kind
    assert details in str(error)


@pytest.mark.parametrize(("name", "words"), OF_ALL)
def test_words_of_a_lost_gpu_are_of_that_triton_and_no_failure_of_the_model(
    name: str, words: str
) -> None:
    del name
    lost = gpu_faults.ends_process(words)
    error = engine_error(Code.INTERNAL, f"onnx runtime error 6: {words}", "here:1")
    assert type(error) is (EngineProcessGoneError if lost else EngineModelError)
    # What a model of the Python backend raised may be a stranger's words.
    assert type(engine_error(Code.INTERNAL, f"engine: {words}", "here:1")) is EngineModelError


@EITHER_CLIENT
async def test_a_models_own_failure_keeps_its_words(own_client: bool) -> None:
    async with triton_at(own_client) as (triton, engine, _):
        triton.failure = (Code.INTERNAL, "division by zero in layer 3")
        with pytest.raises(EngineModelError, match="layer 3"):
            await engine.infer(WORK, 5)


def test_tensors_of_all_integer_types_and_rows_are_sent_and_others_refused() -> None:
    tensors: dict[str, NDArray[Any]] = {
        "input_ids": IDS,
        "attention_mask": IDS.astype(np.int32),
        "features": IDS.astype(np.float64),
        "token_type_ids": IDS.astype(np.uint8).ravel(),
    }
    request = infer_request(Work("m", "logits", tensors))
    assert [(t.name, t.datatype, list(t.shape)) for t in request.inputs] == [
        ("input_ids", "INT64", [2, 3]),
        ("attention_mask", "INT32", [2, 3]),
        ("features", "FP64", [2, 3]),
        ("token_type_ids", "UINT8", [6]),
    ]
    with pytest.raises(TypeError, match="x is float32"):
        infer_request(Work("m", "logits", {"x": np.zeros((1, 1), np.float32)}))


def response_of(name: str, datatype: str, shape: list[int], content: bytes) -> Any:
    response = pb.ModelInferResponse()
    response.outputs.add(name=name, datatype=datatype, shape=shape)
    response.raw_output_contents.append(content)
    return response


@pytest.mark.parametrize(
    "response",
    [
        pb.ModelInferResponse(),
        response_of("other", "FP32", [1, 1], b"\0\0\0\0"),
        response_of("logits", "FP64", [1, 1], b"\0\0\0\0"),
        response_of("logits", "FP32", [4], b"\0" * 16),
        response_of("logits", "FP32", [2, 2], b"\0" * 12),
    ],
)
def test_an_answer_that_is_none_is_the_models_fault(response: Any) -> None:
    with pytest.raises(EngineModelError):
        result(response, "logits")
