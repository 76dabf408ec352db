"""Unmodified tritonclient against the gateway, over HTTP and gRPC."""

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
import tritonclient.http.aio as triton_http_aio
from front_fakes import LABELS, scores
from front_server import Served
from tritonclient.utils import InferenceServerException

from gateway.errors import OverloadedError

pytestmark = pytest.mark.slow  # imports tritonclient with aiohttp and gevent

TEXTS = ["a good film", "", "good good naïve 🎬", "x" * 300]


def text_input(
    module: Any, texts: list[str], name: str = "TEXT", *, column: bool = False, **how: Any
) -> Any:
    shape = [len(texts), 1] if column else [len(texts)]
    tensor = module.InferInput(name, shape, "BYTES")
    data = np.array([text.encode() for text in texts], dtype=np.object_).reshape(shape)
    tensor.set_data_from_numpy(data, **how)
    return tensor


def check_classified(result: Any, texts: list[str]) -> None:
    expected = np.array([scores(text) for text in texts], np.float32)
    np.testing.assert_array_equal(result.as_numpy("SCORES"), expected)
    np.testing.assert_array_equal(result.as_numpy("SCORE"), expected.max(axis=1))
    labels = [
        label if isinstance(label, str) else label.decode() for label in result.as_numpy("LABEL")
    ]
    assert labels == [LABELS[i] for i in expected.argmax(axis=1)]


@pytest.fixture(scope="module")
def http(fronts: Served) -> Iterator[triton_http.InferenceServerClient]:
    with triton_http.InferenceServerClient(fronts.address) as client:
        yield client


@pytest.fixture(scope="module")
def rpc(fronts: Served) -> Iterator[triton_grpc.InferenceServerClient]:
    with triton_grpc.InferenceServerClient(fronts.grpc_address) as client:
        yield client


@pytest.mark.parametrize("column", [False, True])
@pytest.mark.parametrize("binary_in", [False, True])
@pytest.mark.parametrize("binary_out", [False, True, None])
@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_http_client_gets_the_labels_in_every_encoding(
    http: Any, column: bool, binary_in: bool, binary_out: bool | None, compression: str | None
) -> None:
    wanted = None
    if binary_out is not None:
        wanted = [
            triton_http.InferRequestedOutput(name, binary_data=binary_out)
            for name in ("SCORES", "LABEL", "SCORE")
        ]
    result = http.infer(
        "sentiment",
        [text_input(triton_http, TEXTS, column=column, binary_data=binary_in)],
        outputs=wanted,
        request_id="mine",
        request_compression_algorithm=compression,
        response_compression_algorithm=compression,
    )
    check_classified(result, TEXTS)
    assert result.get_response()["id"] == "mine"
    assert result.get_response()["model_version"] == "3"


def test_http_client_reads_health_and_metadata(http: Any, fronts: Served) -> None:
    assert http.is_server_live()
    assert http.is_server_ready()
    assert http.is_model_ready("sentiment")
    assert http.is_model_ready("sentiment", "2")
    assert not http.is_model_ready("nobody")
    assert not http.is_model_ready("sentiment", "9")
    assert http.get_server_metadata()["name"] == "headrace"
    metadata = http.get_model_metadata("sentiment")
    assert metadata["versions"] == ["3", "2"]
    assert [one["name"] for one in metadata["inputs"]] == ["TEXT", "TEXT_PAIR"]
    assert [one.get("optional", False) for one in metadata["inputs"]] == [False, True]
    assert metadata["outputs"][2] == {"name": "SCORES", "datatype": "FP32", "shape": [-1, 3]}
    assert http.get_model_config("minilm")["output"][0]["dims"] == [-1, 4]
    fronts.predictor.ready = False
    try:
        assert not http.is_server_ready()
    finally:
        fronts.predictor.ready = True


def test_http_client_raises_the_sentence(http: Any) -> None:
    with pytest.raises(InferenceServerException) as refusal:
        http.infer("nobody", [text_input(triton_http, ["x"])])
    assert str(refusal.value) == "[404] There is no endpoint 'nobody'."
    with pytest.raises(InferenceServerException, match="does not offer the model repository"):
        http.get_model_repository_index()
    with pytest.raises(InferenceServerException, match="does not offer statistics"):
        http.get_inference_statistics()
    with pytest.raises(InferenceServerException, match="does not offer shared memory"):
        http.register_system_shared_memory("a", "b", 1)


def test_extensions_that_are_not_offered_say_so(http: Any, rpc: Any) -> None:
    for client, module in ((http, triton_http), (rpc, triton_grpc)):
        wanted = [module.InferRequestedOutput("SCORES", class_count=2)]
        with pytest.raises(InferenceServerException, match="classification extension"):
            client.infer("sentiment", [text_input(module, ["x"])], outputs=wanted)
        tensor = module.InferInput("TEXT", [1], "BYTES")
        tensor.set_shared_memory("region", 10)
        with pytest.raises(InferenceServerException, match="shared memory"):
            client.infer("sentiment", [tensor])


@pytest.mark.parametrize("column", [False, True])
def test_grpc_client_gets_the_labels(rpc: Any, column: bool) -> None:
    tensor = text_input(triton_grpc, TEXTS, column=column)
    result = rpc.infer("sentiment", [tensor], request_id="mine")
    check_classified(result, TEXTS)
    assert result.get_response().id == "mine"
    assert result.get_response().model_version == "3"


def test_pairs_go_together(http: Any, rpc: Any) -> None:
    for client, module in ((http, triton_http), (rpc, triton_grpc)):
        inputs = [text_input(module, ["q"]), text_input(module, ["answer"], "TEXT_PAIR")]
        result = client.infer("sentiment", inputs)
        expected = np.array([scores("q", "answer")], np.float32)
        np.testing.assert_array_equal(result.as_numpy("SCORES"), expected)


def test_grpc_client_reads_health_and_metadata(rpc: Any) -> None:
    assert rpc.is_server_live()
    assert rpc.is_server_ready()
    assert rpc.is_model_ready("sentiment")
    assert not rpc.is_model_ready("nobody")
    assert rpc.get_server_metadata().name == "headrace"
    metadata = rpc.get_model_metadata("minilm")
    assert list(metadata.outputs[0].shape) == [-1, 4]
    config = rpc.get_model_config("sentiment").config
    assert config.input[1].optional
    assert list(config.output[2].dims) == [-1, 3]


def test_grpc_refusals_have_their_status(rpc: Any, fronts: Served) -> None:
    def refusal(**call: Any) -> InferenceServerException:
        with pytest.raises(InferenceServerException) as caught:
            rpc.infer(
                **{"model_name": "sentiment", "inputs": [text_input(triton_grpc, ["x"])]} | call
            )
        return caught.value

    assert refusal(model_name="nobody").status() == "StatusCode.NOT_FOUND"
    assert refusal(model_version="9").status() == "StatusCode.NOT_FOUND"
    assert refusal(inputs=[]).status() == "StatusCode.INVALID_ARGUMENT"
    wrong = text_input(triton_grpc, ["x"], "WORDS")
    assert "no input 'WORDS'" in str(refusal(inputs=[text_input(triton_grpc, ["x"]), wrong]))
    with fronts.predictor.failing(OverloadedError("Full.", retry_after_seconds=2)):
        assert refusal().status() == "StatusCode.UNAVAILABLE"
    with pytest.raises(InferenceServerException) as streaming:
        rpc.get_inference_statistics()
    assert streaming.value.status() == "StatusCode.UNIMPLEMENTED"


def test_grpc_keys_are_metadata(keyed_fronts: Served) -> None:
    with triton_grpc.InferenceServerClient(keyed_fronts.grpc_address) as client:
        tensor = text_input(triton_grpc, ["x"])
        good = {"authorization": "Bearer good"}
        assert client.infer("sentiment", [tensor], headers=good).as_numpy("SCORE").shape == (1,)
        with pytest.raises(InferenceServerException) as caught:
            client.infer("sentiment", [tensor])
        assert caught.value.status() == "StatusCode.UNAUTHENTICATED"
        with pytest.raises(InferenceServerException) as caught:
            client.infer("minilm", [tensor], headers={"x-api-key": "good"})
        assert caught.value.status() == "StatusCode.PERMISSION_DENIED"


async def test_many_calls_at_once_each_get_their_own_answer(fronts: Served) -> None:
    async with triton_http_aio.InferenceServerClient(fronts.address, conn_limit=20) as client:
        texts = [f"{'good ' * (i % 4)}{i}" for i in range(60)]
        results = await asyncio.gather(
            *(client.infer("sentiment", [text_input(triton_http, [text])]) for text in texts)
        )
    for text, result in zip(texts, results, strict=True):
        check_classified(result, [text])
