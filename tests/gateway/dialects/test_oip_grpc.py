"""What tritonclient never sends to the gRPC front, and what it never shows of an answer."""

import asyncio
import queue
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
import pytest
import tritonclient.grpc as triton_grpc
from front_fakes import LABELS, FakeKeys, FakePredictor, scores, space_of
from front_server import Served, serving
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from gateway.calls import Answer, Call
from gateway.errors import DeadlineExceededError, OverloadedError


@pytest.fixture
async def stub(fronts: Served) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(fronts.grpc_address) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def request(*texts: str, name: str = "TEXT", datatype: str = "BYTES", **fields: Any) -> Any:
    made = pb.ModelInferRequest(model_name="sentiment", **fields)
    tensor = made.inputs.add(name=name, datatype=datatype, shape=[len(texts)])
    tensor.contents.bytes_contents.extend(text.encode() for text in texts)
    return made


async def refusal(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


def trailing(error: grpc.aio.AioRpcError) -> dict[str, str]:
    return {key: str(value) for key, value in error.trailing_metadata() or ()}


async def test_contents_are_read_and_the_version_comes_before_the_answer(stub: Any) -> None:
    call = stub.ModelInfer(request("a", "good", id="mine"), metadata=[("x-request-id", "r1")])
    metadata = dict(await call.initial_metadata())
    answer = await call
    assert (metadata["x-request-id"], metadata["x-headrace-version"]) == ("r1", "3")
    assert metadata["x-headrace-arm"] == "stable"
    assert answer.id == "mine"
    assert [one.name for one in answer.outputs] == ["LABEL", "SCORE", "SCORES"]
    best = LABELS[scores("a").index(max(scores("a")))].encode()
    assert answer.raw_output_contents[0].startswith(len(best).to_bytes(4, "little") + best)


async def test_parameters_that_mean_nothing_are_named_or_under_strict_refused(stub: Any) -> None:
    asked = request("a")
    asked.parameters["priority"].int64_param = 1
    call = stub.ModelInfer(asked)
    assert dict(await call.initial_metadata())["x-headrace-ignored"] == "parameters.priority"
    await call
    error = await refusal(stub.ModelInfer(asked, metadata=[("x-headrace-strict", "true")]))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "parameters.priority" in (error.details() or "")


async def test_the_space_of_vectors_is_a_parameter_and_in_the_metadata(stub: Any) -> None:
    asked = request("a")
    asked.model_name = "minilm"
    call = stub.ModelInfer(asked)
    metadata = dict(await call.initial_metadata())
    answer = await call
    assert answer.parameters["space"].string_param == space_of("3")
    assert metadata["x-headrace-space"] == space_of("3")
    assert "space" not in (await stub.ModelInfer(request("a"))).parameters


async def test_the_class_of_a_request_is_a_parameter_or_metadata(stub: Any, fronts: Served) -> None:
    before = len(fronts.predictor.calls)
    asked = request("a")
    asked.parameters["headrace_class"].string_param = "bulk"
    await stub.ModelInfer(asked)
    await stub.ModelInfer(request("a"), metadata=[("x-headrace-class", "bulk")])
    await stub.ModelInfer(request("a"))
    assert [call.bulk for call in fronts.predictor.calls[before:]] == [True, True, False]
    assert ("oip_grpc_bulk", 200) in fronts.metrics.finished
    asked.parameters["headrace_class"].int64_param = 1
    error = await refusal(stub.ModelInfer(asked))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "headrace_class: expected bulk or interactive" in (error.details() or "")


async def test_a_text_that_was_cut_is_named(stub: Any) -> None:
    call = stub.ModelInfer(request("short", "w" * 2000))
    metadata = dict(await call.initial_metadata())
    assert metadata["x-headrace-truncated"] == "1"
    assert (await call).parameters["truncated"].string_param == "1"


async def test_headers_are_metadata(stub: Any, fronts: Served) -> None:
    metadata = [
        ("x-headrace-key", "user"),
        ("x-headrace-version", "2"),
        ("x-request-timeout", "0.5"),
    ]
    await stub.ModelInfer(request("a"), metadata=metadata)
    call = fronts.predictor.calls[-1]
    assert (call.sticky_key, call.forced_version) == ("user", "2")
    assert call.deadline == call.started + 0.5


async def test_the_clients_deadline_is_the_calls(stub: Any, fronts: Served) -> None:
    await stub.ModelInfer(request("a"), timeout=45.5)
    call = fronts.predictor.calls[-1]
    assert 0 < call.deadline - call.started < 50  # gRPC rounds 45.5 s up a little


def both() -> Any:
    made = request("a")
    made.raw_input_contents.append(b"\x01\x00\x00\x00a")
    return made


def raw(data: bytes, size: int = 1) -> Any:
    made = pb.ModelInferRequest(model_name="sentiment", raw_input_contents=[data])
    made.inputs.add(name="TEXT", datatype="BYTES", shape=[size])
    return made


def numbers() -> Any:
    made = pb.ModelInferRequest(model_name="sentiment")
    made.inputs.add(name="TEXT", datatype="BYTES", shape=[1]).contents.int_contents.append(1)
    return made


def of_shape(*shape: int) -> Any:
    made = request("a")
    made.inputs[0].shape[:] = shape
    return made


def too_many_raw() -> Any:
    made = raw(b"\x01\x00\x00\x00a")
    made.raw_input_contents.append(b"")
    return made


def with_timeout(value: int) -> Any:
    made = request("a")
    made.parameters["timeout"].int64_param = value
    return made


def with_unknown_input() -> Any:
    made = request("a")
    made.inputs.add().CopyFrom(request("a", name="WORDS").inputs[0])
    return made


BAD = [
    (pb.ModelInferRequest(model_name="sentiment"), "TEXT is missing"),
    (request(), "No text was sent"),
    (with_unknown_input(), "no input 'WORDS'"),
    (request("a", datatype="FP32"), "TEXT.datatype"),
    (of_shape(2), "the shape says 2 texts"),
    (of_shape(-1), "expected [N] or [N, 1]"),
    (of_shape(1, 2), "expected [N] or [N, 1]"),
    (of_shape(), "expected [N] or [N, 1]"),
    (both(), "not both"),
    (too_many_raw(), "expected one for each of the 1 inputs, got 2"),
    (raw(b"\xff\xff\xff\xff"), "its length says 4294967295 bytes"),
    (raw(b"\x01\x00\x00\x00\xff"), "not UTF-8"),
    (numbers(), "expected bytes_contents, got int_contents"),
    (with_timeout(-1), "parameters.timeout"),
]


@pytest.mark.parametrize(("message", "sentence"), BAD)
async def test_what_is_wrong_is_named(stub: Any, message: Any, sentence: str) -> None:
    error = await refusal(stub.ModelInfer(message))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert sentence in (error.details() or "")
    assert trailing(error)["x-headrace-error"] in ("bad_request", "invalid_input")


async def test_overload_says_when_to_come_back(stub: Any, fronts: Served) -> None:
    with fronts.predictor.failing(OverloadedError("Full.", retry_after_seconds=1.5)):
        error = await refusal(stub.ModelInfer(request("a")))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert trailing(error)["retry-after"] == "2"
    assert trailing(error)["grpc-retry-pushback-ms"] == "1500"


async def test_a_missed_deadline_has_its_own_status(stub: Any, fronts: Served) -> None:
    with fronts.predictor.failing(DeadlineExceededError("Too slow.")):
        error = await refusal(stub.ModelInfer(request("a")))
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_bug_is_internal_without_a_traceback(stub: Any, fronts: Served) -> None:
    with fronts.predictor.failing(RuntimeError("secret detail")):
        error = await refusal(stub.ModelInfer(request("a")))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in (error.details() or "")
    assert trailing(error)["x-request-id"]


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("RepositoryIndex", pb.RepositoryIndexRequest()),
        ("RepositoryModelLoad", pb.RepositoryModelLoadRequest()),
        ("ModelStatistics", pb.ModelStatisticsRequest()),
        ("SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest()),
        ("CudaSharedMemoryRegister", pb.CudaSharedMemoryRegisterRequest()),
        ("TraceSetting", pb.TraceSettingRequest()),
        ("LogSettings", pb.LogSettingsRequest()),
    ],
)
async def test_what_is_not_offered_is_unimplemented_with_a_sentence(
    stub: Any, method: str, message: Any
) -> None:
    error = await refusal(getattr(stub, method)(message))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert (error.details() or "").startswith("Headrace does not offer")


def test_a_stream_is_unimplemented_with_a_sentence(fronts: Served) -> None:
    told: queue.Queue[tuple[object, Exception]] = queue.Queue()
    with triton_grpc.InferenceServerClient(fronts.grpc_address) as client:
        client.start_stream(lambda result, error: told.put((result, error)))
        _, error = told.get(timeout=60)
    assert "[StatusCode.UNIMPLEMENTED] Headrace does not offer streams" in str(error)


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
async def test_a_message_over_the_limit_is_refused_compressed_or_not(
    stub: Any, fronts: Served, compression: grpc.Compression
) -> None:
    large = request("x" * (fronts.limits.max_body_bytes + 1))
    error = await refusal(stub.ModelInfer(large, compression=compression))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_compressed_message_is_read(stub: Any) -> None:
    answer = await stub.ModelInfer(request("good " * 50), compression=grpc.Compression.Gzip)
    assert answer.model_name == "sentiment"


@dataclass
class HeldUp(FakePredictor):
    """Keeps the event loop, and so every call that has not reached it, until it is let go."""

    free: threading.Event = field(default_factory=threading.Event)

    async def predict(self, call: Call) -> Answer:
        """Answers once it may."""
        self.free.wait(60)
        return await super().predict(call)


@pytest.mark.slow
async def test_calls_that_nobody_can_look_at_yet_are_bounded() -> None:
    held = HeldUp(FakePredictor.with_endpoints().views)
    with serving(Served(predictor=held)) as served:
        async with (
            asyncio.timeout(60),
            grpc.aio.insecure_channel(served.grpc_address) as channel,
        ):
            made = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            calls = [made.ModelInfer(request("a")) for _ in range(900)]
            ends = [asyncio.ensure_future(call.code()) for call in calls]
            # The core ends one though nothing was answered yet.
            (end, *_), _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            assert end.result() is grpc.StatusCode.CANCELLED
            held.free.set()
            codes = set(await asyncio.gather(*ends))
    assert codes >= {grpc.StatusCode.OK, grpc.StatusCode.CANCELLED}
    assert codes <= {grpc.StatusCode.OK, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE}


async def test_refusals_of_the_front_are_recorded(stub: Any, fronts: Served) -> None:
    fronts.recorder.refusals.clear()
    await refusal(stub.ModelInfer(with_unknown_input()))
    unknown = request("a")
    unknown.model_name = "nobody"
    error = await refusal(stub.ModelInfer(unknown))
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert fronts.recorder.refusals == [("sentiment", 400, "bad_request")]
    assert ("oip_grpc", 400) in fronts.metrics.finished


async def test_a_message_that_is_refused_counts_and_the_next_one_is_not_read() -> None:
    served = Served(keys=FakeKeys(endpoints_of={"a": {"sentiment"}}))
    views = served.predictor.views
    views["sentiment"] = replace(views["sentiment"], requests_per_second_per_key=1e-6)
    key = [("authorization", "Bearer a")]
    with serving(served):
        async with grpc.aio.insecure_channel(served.grpc_address) as channel:
            ask = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            broken = await refusal(ask(b"\xff", metadata=key))
            assert broken.code() is grpc.StatusCode.INVALID_ARGUMENT
            late = await refusal(ask(b"\xff", metadata=key))
            assert late.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert int(trailing(late)["retry-after"]) > 1


async def test_a_message_that_takes_long_to_read_counts_as_several() -> None:
    served = Served(keys=FakeKeys(endpoints_of={"a": {"sentiment"}}))
    views = served.predictor.views
    views["sentiment"] = replace(views["sentiment"], requests_per_second_per_key=0.1)
    key = [("authorization", "Bearer a")]
    with serving(served):
        async with grpc.aio.insecure_channel(served.grpc_address) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            long = request(
                *["a"] * 1_500_000
            )  # several times what counts as one, also if all is quick
            long.inputs[0].shape[:] = [1]
            await refusal(stub.ModelInfer(long, metadata=key))
            late = await refusal(stub.ModelInfer(request("a"), metadata=key))
    assert late.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "counts as several" in (late.details() or "")
