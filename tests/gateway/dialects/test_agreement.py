"""The same texts get the same answers in every dialect."""

import base64

import grpc
import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from front_fakes import LABELS, RECEIPT, space_of
from front_server import Served
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

TEXTS = ["a good film", "", "naïve 🎬", "\x00", "good " * 300]

_CHECK = "/endpoints/sentiment/beta/litellm_basic_guardrail_api"


def grpc_outputs(fronts: Served, endpoint: str, name: str) -> np.ndarray:
    tensor = triton_grpc.InferInput("TEXT", [len(TEXTS)], "BYTES")
    tensor.set_data_from_numpy(np.array([text.encode() for text in TEXTS], np.object_))
    with triton_grpc.InferenceServerClient(fronts.grpc_address) as client:
        found: np.ndarray = client.infer(endpoint, [tensor]).as_numpy(name)
        return found


@pytest.fixture
def http(fronts: Served) -> httpx.Client:
    return httpx.Client(base_url=fronts.url, timeout=60)


def test_all_dialects_agree_on_scores(http: httpx.Client, fronts: Served) -> None:
    with http:
        tensor = {"name": "TEXT", "shape": [len(TEXTS)], "datatype": "BYTES", "data": TEXTS}
        oip = http.post("/v2/models/sentiment/infer", json={"inputs": [tensor]}).json()
        hf = http.post(
            "/endpoints/sentiment", json={"inputs": TEXTS, "parameters": {"top_k": None}}
        ).json()
        kserve = http.post("/v1/models/sentiment:predict", json={"instances": TEXTS}).json()
        contents = {"contents": TEXTS}
        detected = http.post("/endpoints/sentiment/api/v1/text/contents", json=contents).json()
        checks = [http.post(_CHECK, json={"texts": [text]}).json()["action"] for text in TEXTS]
    by_oip = next(one for one in oip["outputs"] if one["name"] == "SCORES")
    reference = np.array(by_oip["data"]).reshape(by_oip["shape"])
    by_label = [{one["label"]: one["score"] for one in row} for row in hf]
    np.testing.assert_array_equal([[row[label] for label in LABELS] for row in by_label], reference)
    scores = [[row["scores"][label] for label in LABELS] for row in kserve["predictions"]]
    np.testing.assert_array_equal(scores, reference)
    np.testing.assert_array_equal(grpc_outputs(fronts, "sentiment", "SCORES"), reference)
    positive = reference[:, LABELS.index("positive")]
    assert [[one["score"] for one in each] for each in detected] == [
        [score] if score >= 0.5 else [] for score in positive
    ]
    assert checks == ["BLOCKED" if score >= 0.5 else "NONE" for score in positive]


def test_all_dialects_agree_on_vectors(http: httpx.Client, fronts: Served) -> None:
    with http:
        hf = http.post("/endpoints/minilm", json={"inputs": TEXTS}).json()
        kserve = http.post("/v1/models/minilm:predict", json={"instances": TEXTS}).json()
        tei = http.post(
            "/endpoints/minilm/embed", json={"inputs": TEXTS, "normalize": False}
        ).json()
        body = {"model": "minilm", "input": TEXTS}
        plain = http.post("/v1/embeddings", json=body).json()
        packed = http.post("/v1/embeddings", json=body | {"encoding_format": "base64"}).json()
    np.testing.assert_array_equal(kserve["predictions"], hf)
    np.testing.assert_array_equal(tei, hf)
    np.testing.assert_array_equal([one["embedding"] for one in plain["data"]], hf)
    raw = [base64.b64decode(one["embedding"]) for one in packed["data"]]
    np.testing.assert_array_equal([np.frombuffer(one, "<f4") for one in raw], hf)
    np.testing.assert_array_equal(grpc_outputs(fronts, "minilm", "EMBEDDING"), hf)


@pytest.mark.parametrize(("forced", "following"), [(None, ""), (None, "b" * 12), ("2", "")])
def test_every_answer_of_an_embedder_says_the_space_of_its_version_and_which_one_waits(
    http: httpx.Client,
    fronts: Served,
    forced: str | None,
    following: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fronts.predictor, "next_space", following)
    headers = {} if forced is None else {"x-headrace-version": forced}
    tensor = {"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["a"]}
    asked = {
        "/endpoints/minilm": {"inputs": ["a"]},
        "/v1/models/minilm:predict": {"instances": ["a"]},
        "/v1/embeddings": {"model": "minilm", "input": "a"},
        "/endpoints/minilm/embed": {"inputs": "a"},
        "/v2/models/minilm/infer": {"inputs": [tensor]},
    }
    without = {"/endpoints/sentiment": {"inputs": "a"}}
    with http:
        said = [http.post(path, json=body, headers=headers).headers for path, body in asked.items()]
        other = [http.post(path, json=body).headers for path, body in without.items()]
    space = space_of(forced or "3")
    assert [found.get("x-headrace-space") for found in said] == [space] * len(asked)
    assert [found.get("x-headrace-space-next", "") for found in said] == [following] * len(asked)
    assert "x-headrace-space" not in other[0]


def test_every_dialect_hands_on_the_space_and_the_class_that_a_caller_names(
    http: httpx.Client, fronts: Served
) -> None:
    headers = {"x-headrace-space": "next", "x-headrace-class": "bulk"}
    fronts.predictor.calls.clear()
    tensor = {"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["a"]}
    with http:
        http.post("/endpoints/minilm", json={"inputs": ["a"]}, headers=headers)
        http.post("/v1/embeddings", json={"model": "minilm", "input": "a"}, headers=headers)
        http.post("/v2/models/minilm/infer", json={"inputs": [tensor]}, headers=headers)
    with grpc.insecure_channel(fronts.grpc_address) as channel:
        query = pb.ModelInferRequest(model_name="minilm")
        given = query.inputs.add(name="TEXT", datatype="BYTES", shape=[1])
        given.contents.bytes_contents.append(b"a")
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        stub.ModelInfer(query, metadata=tuple(headers.items()), timeout=60)
    assert [(call.space, call.bulk) for call in fronts.predictor.calls] == [("next", True)] * 4


@pytest.mark.parametrize(("forced", "arm"), [(None, "stable"), ("2", "forced")])
def test_every_dialect_says_which_version_answered_and_gives_a_receipt(
    http: httpx.Client, fronts: Served, forced: str | None, arm: str
) -> None:
    headers = {} if forced is None else {"x-headrace-version": forced}
    tensor = {"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["a"]}
    asked = {
        "/endpoints/sentiment": {"inputs": "a"},
        "/endpoints/minilm": {"inputs": ["a"]},
        "/v1/models/sentiment:predict": {"instances": ["a"]},
        "/v1/embeddings": {"model": "minilm", "input": "a"},
        "/endpoints/minilm/embed": {"inputs": "a"},
        "/v2/models/sentiment/infer": {"inputs": [tensor]},
        "/endpoints/sentiment/api/v1/text/contents": {"contents": ["a"]},
        _CHECK: {"texts": ["a"]},
    }
    with http:
        said = [http.post(path, json=body, headers=headers).headers for path, body in asked.items()]
    query = pb.ModelInferRequest(
        model_name="sentiment",
        inputs=[
            pb.ModelInferRequest.InferInputTensor(
                name="TEXT",
                datatype="BYTES",
                shape=[1],
                contents=pb.InferTensorContents(bytes_contents=[b"a"]),
            )
        ],
    )
    with grpc.insecure_channel(fronts.grpc_address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        _, call = stub.ModelInfer.with_call(query, metadata=tuple(headers.items()), timeout=60)
        metadata = dict(call.initial_metadata())
    for found in (*said, metadata):
        assert found["x-headrace-version"] == (forced or "3")
        assert found["x-headrace-arm"] == arm
        assert found["x-headrace-receipt"] == RECEIPT
