"""A Triton behind the proxy is sick in the way that is told; all else passes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from sick_triton import FITTING_ROWS, INFER, LOAD, Sickness, SickTriton, Ward
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc
from well_triton import KEY, VALUES, WellTriton, well_triton


@asynccontextmanager
async def behind(ward: Ward) -> AsyncIterator[tuple[Any, WellTriton]]:
    """A stub that asks the proxy, and the Triton behind it."""
    async with well_triton() as (address, well):
        proxy = SickTriton(ward, address)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{await proxy.start()}") as channel:
            yield service_pb2_grpc.GRPCInferenceServiceStub(channel), well
        await proxy.close()


async def infer(stub: Any, rows: int = 1, model: str = "m") -> np.ndarray[Any, Any]:
    request = pb.ModelInferRequest(model_name=model)
    request.inputs.add(name="input_ids", datatype="INT64", shape=[rows, 3])
    request.raw_input_contents.append(np.ones((rows, 3), np.int64).tobytes())
    answer = await stub.ModelInfer(request, timeout=60)
    return np.frombuffer(answer.raw_output_contents[0], np.float32).reshape(rows, 2)


async def load(stub: Any) -> None:
    request = pb.RepositoryModelLoadRequest(model_name="m")
    await stub.RepositoryModelLoad(request, metadata=(KEY,), timeout=60)


def words_of(error: "pytest.ExceptionInfo[grpc.aio.AioRpcError]") -> str:
    assert error.value.code() is grpc.StatusCode.INTERNAL
    return error.value.details() or ""


@pytest.fixture
def ward(tmp_path: Path) -> Ward:
    return Ward(tmp_path / "ward")


async def test_a_well_triton_is_passed_on_with_its_words_and_its_callers_metadata(
    ward: Ward,
) -> None:
    async with behind(ward) as (stub, well):
        assert (await infer(stub, rows=3) == VALUES).all()
        await load(stub)
        assert well.loaded == ["m"]
        assert not (await stub.ModelReady(pb.ModelReadyRequest(name="other"))).ready
        with pytest.raises(grpc.aio.AioRpcError, match="unknown model"):
            await infer(stub, model="other")
        call = stub.ModelStreamInfer(iter([pb.ModelInferRequest(id="7")]))
        assert [each.infer_response.id async for each in call] == ["7"]
        assert ward.seen() == {}


async def test_one_that_refuses_loads_answers_what_it_holds(ward: Ward) -> None:
    async with behind(ward) as (stub, well):
        ward.make_sick(Sickness.REFUSES_LOADS)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await load(stub)
        assert words_of(error)
        assert (await infer(stub, rows=8) == VALUES).all()
        assert ward.seen().keys() == {LOAD}
        assert well.loaded == []


async def test_one_that_fails_inferences_says_that_it_is_ready(ward: Ward) -> None:
    async with behind(ward) as (stub, _):
        ward.make_sick(Sickness.FAILS)
        with pytest.raises(grpc.aio.AioRpcError, match="CUDA failure 719"):
            await infer(stub)
        assert (await stub.ModelReady(pb.ModelReadyRequest(name="m"))).ready
        assert ward.seen().keys() == {INFER}


async def test_one_that_answers_nan_answers_as_many_values(ward: Ward) -> None:
    async with behind(ward) as (stub, _):
        ward.make_sick(Sickness.NAN)
        found = await infer(stub, rows=2)
        assert found.shape == (2, 2)
        assert np.isnan(found).all()


async def test_one_that_is_short_of_memory_refuses_loads_and_large_batches(ward: Ward) -> None:
    async with behind(ward) as (stub, _):
        ward.make_sick(Sickness.NO_MEMORY)
        asked: tuple[Callable[[], Any], ...] = (
            lambda: load(stub),
            lambda: infer(stub, rows=FITTING_ROWS + 1),
        )
        for ask in asked:
            with pytest.raises(grpc.aio.AioRpcError, match="out of memory"):
                await ask()
        assert (await infer(stub, rows=FITTING_ROWS) == VALUES).all()


async def test_a_slow_one_answers_rightly(ward: Ward) -> None:
    async with behind(ward) as (stub, _):
        ward.make_sick(Sickness.SLOW)
        assert (await infer(stub) == VALUES).all()
        assert ward.seen().keys() == {INFER}


async def test_what_was_spoilt_is_told_of_the_last_sickness_alone(ward: Ward) -> None:
    async with behind(ward) as (stub, _):
        ward.make_sick(Sickness.NAN)
        await infer(stub)
        ward.make_well()
        ward.make_sick(Sickness.NAN)
        assert ward.seen() == {}
        await infer(stub)
        assert ward.seen().keys() == {INFER}
        ward.make_well()
        assert (await infer(stub) == VALUES).all()


async def test_a_port_that_is_taken_is_told(ward: Ward) -> None:
    first, second = SickTriton(ward, "127.0.0.1:1"), SickTriton(ward, "127.0.0.1:1")
    port = await first.start()
    try:
        with pytest.raises(RuntimeError):
            await second.start(port)
    finally:
        await asyncio.gather(first.close(), second.close())
