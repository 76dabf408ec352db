"""What a task can't be done with is refused alike in every dialect: the field, and the reason."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from front_fakes import view
from front_server import Served, serving
from tritonclient.utils import InferenceServerException

from contracts.tasks import Task

TASKS = {
    "entities": Task.TOKEN_CLASSIFICATION,
    "topics": Task.ZERO_SHOT_CLASSIFICATION,
    "reader": Task.QUESTION_ANSWERING,
    "splade": Task.SPARSE_EMBEDDING,
    "m3": Task.HYBRID_EMBEDDING,
    "colbert": Task.MULTI_VECTOR_EMBEDDING,
}
Refusal = tuple[int, str]  # status and message
Ask = Callable[[Served, str, list[str], list[str] | None, dict[str, Any]], Refusal]


@pytest.fixture(scope="module")
def fronts() -> Iterator[Served]:
    made = Served()
    made.predictor.views |= {name: view(name, task) for name, task in TASKS.items()}
    with serving(made) as served:
        yield served


def posted(fronts: Served, path: str, body: object) -> Refusal:
    answer = httpx.post(f"{fronts.url}{path}", json=body, timeout=60)
    error = answer.json()["error"]
    return answer.status_code, error if isinstance(error, str) else error["message"]


def objects(texts: list[str], pairs: list[str] | None, names: tuple[str, str]) -> list[object]:
    if pairs is None:
        return list(texts)
    return [dict(zip(names, both, strict=True)) for both in zip(texts, pairs, strict=True)]


def names_of(endpoint: str) -> tuple[str, str]:
    return ("question", "context") if endpoint == "reader" else ("text", "text_pair")


def huggingface(
    fronts: Served, endpoint: str, texts: list[str], pairs: list[str] | None, parameters: Any
) -> Refusal:
    inputs = objects(texts, pairs, names_of(endpoint))
    body = {"inputs": inputs, "parameters": parameters}
    return posted(fronts, f"/endpoints/{endpoint}", body)


def kserve_v1(
    fronts: Served, endpoint: str, texts: list[str], pairs: list[str] | None, parameters: Any
) -> Refusal:
    instances = objects(texts, pairs, names_of(endpoint))
    body = {"instances": instances, "parameters": parameters}
    return posted(fronts, f"/v1/models/{endpoint}:predict", body)


def in_strings(parameters: dict[str, Any]) -> dict[str, Any]:
    """Lists as JSON: this protocol's parameters hold none."""
    return {
        name: json.dumps(value) if isinstance(value, list) else value
        for name, value in parameters.items()
    }


def oip_http(
    fronts: Served, endpoint: str, texts: list[str], pairs: list[str] | None, parameters: Any
) -> Refusal:
    tensors = [
        {"name": name, "shape": [len(data)], "datatype": "BYTES", "data": data}
        for name, data in (("TEXT", texts), ("TEXT_PAIR", pairs))
        if data is not None
    ]
    body = {"inputs": tensors, "parameters": in_strings(parameters)}
    return posted(fronts, f"/v2/models/{endpoint}/infer", body)


def oip_grpc(
    fronts: Served, endpoint: str, texts: list[str], pairs: list[str] | None, parameters: Any
) -> Refusal:
    tensors = []
    for name, data in (("TEXT", texts), ("TEXT_PAIR", pairs)):
        if data is not None:
            tensor = triton_grpc.InferInput(name, [len(data)], "BYTES")
            encoded = np.array([text.encode() for text in data], np.object_)
            tensors.append(tensor.set_data_from_numpy(encoded))
    with triton_grpc.InferenceServerClient(fronts.grpc_address) as client:
        try:
            client.infer(endpoint, tensors, parameters=in_strings(parameters))
        except InferenceServerException as error:
            refused = error.status() == "StatusCode.INVALID_ARGUMENT"
            return 422 if refused else 0, error.message()
    return 200, ""


DIALECTS: tuple[Ask, ...] = (huggingface, kserve_v1, oip_http, oip_grpc)
CONTEXT = "the soup was warm"
LABELS = {"candidate_labels": ["soup", "rain"]}
# Endpoint, texts, second texts, parameters, and what the refusal says: the field and the reason.
CASES: list[tuple[str, list[str], list[str] | None, dict[str, Any], tuple[str, str]]] = [
    ("reader", [""], [CONTEXT], {}, ("question", "it is empty")),
    ("reader", ["was it"], [""], {}, ("context", "it is empty")),
    ("reader", ["was it", "is it"], [CONTEXT, " \n"], {}, ("context 1", "it is empty")),
    ("reader", ["was it"], None, {}, ("text_pair", "send a second one")),
    ("reader", ["was it"], [CONTEXT], {"top_k": 51}, ("parameters.top_k", "50 at most")),
    ("reader", ["was it"], [CONTEXT], {"top_k": 0}, ("top_k", ">= 1")),
    ("reader", ["was it"], [CONTEXT], {"max_answer_len": 65}, ("max_answer_len", "64 at most")),
    ("topics", ["soup"], None, {}, ("parameters.candidate_labels", "no label")),
    ("topics", ["soup"], None, {"candidate_labels": []}, ("candidate_labels", "no label")),
    ("topics", ["a"], None, {"candidate_labels": ["b", " "]}, ("candidate_labels[1]", "empty")),
    ("topics", ["a"], None, {"candidate_labels": ["b", "b"]}, ("candidate_labels[1]", "twice")),
    ("topics", ["a"], None, {"candidate_labels": 3}, ("candidate_labels", "expected")),
    ("topics", ["a"], None, {**LABELS, "hypothesis_template": "x"}, ("hypothesis_template", "{}")),
    ("topics", ["soup"], ["rain"], LABELS, ("text_pair", "candidate_labels")),
    ("reranker", ["was it"], None, {}, ("text_pair", "reads two texts")),
    ("entities", ["soup"], ["rain"], {}, ("text_pair", "one text at a time")),
    ("m3", ["soup"], ["rain"], {}, ("text_pair", "one text at a time")),
    ("m3", ["soup"], None, {"kinds": []}, ("kinds", "name some of")),
    ("m3", ["soup"], None, {"kinds": ["colours"]}, ("parameters", "colours")),
    ("minilm", ["soup"], None, {"dimensions": 5}, ("dimensions", "gives 4")),
    ("minilm", ["soup"], None, {"dimensions": 0}, ("dimensions", ">= 1")),
    ("minilm", ["soup"], None, {"prompt_name": "no"}, ("prompt_name", "no prompt 'no'")),
    ("splade", ["soup"], None, {"prompt_name": "no"}, ("prompt_name", "name none")),
]


@pytest.mark.parametrize("ask", DIALECTS, ids=lambda ask: ask.__name__)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}, {case[4][0]}, {case[3]}")
def test_what_a_task_can_not_be_done_with_is_refused_by_field(
    fronts: Served, ask: Ask, case: tuple[Any, ...]
) -> None:
    endpoint, texts, pairs, parameters, words = case
    before = len(fronts.predictor.calls)
    status, message = ask(fronts, endpoint, texts, pairs, parameters)
    assert status in {400, 422}, message
    for word in words:
        assert word in message
    assert len(fronts.predictor.calls) == before


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/v1/rerank", {"model": "reranker", "query": " ", "documents": ["a"]}, "query: it is em"),
        ("/v1/rerank", {"model": "reranker", "query": "a", "documents": []}, "documents: "),
        ("/v1/rerank", {"model": "minilm", "query": "a", "documents": ["a"]}, "model: minilm does"),
        ("/endpoints/reranker/rerank", {"query": "", "texts": ["a"]}, "query: it is empty"),
        ("/endpoints/reranker/rerank", {"query": "a", "texts": []}, "texts: "),
        ("/endpoints/reader/rerank", {"query": "a", "texts": ["a"]}, "endpoint: reader does"),
        ("/endpoints/minilm/embed", {"inputs": []}, "inputs: "),
        ("/endpoints/minilm/embed", {"inputs": "a", "dimensions": 5}, "dimensions: minilm gives 4"),
        ("/endpoints/topics/embed_sparse", {"inputs": "a"}, "endpoint: topics does"),
        ("/endpoints/minilm/embed_all", {"inputs": "a"}, "endpoint: minilm does"),
        ("/v1/embeddings", {"model": "reader", "input": "a"}, "model: reader does"),
        ("/v1/embeddings", {"model": "minilm", "input": []}, "input: "),
    ],
)
def test_routes_of_one_task_refuse_by_field_too(
    fronts: Served, path: str, body: dict[str, Any], words: str
) -> None:
    status, message = posted(fronts, path, body)
    assert (status in {400, 422}, words in message) == (True, True), message


@pytest.mark.parametrize("ask", [huggingface, kserve_v1, oip_http])
@pytest.mark.parametrize("endpoint", ["sentiment", *TASKS])
def test_no_text_at_all_is_refused_by_field(fronts: Served, ask: Ask, endpoint: str) -> None:
    status, message = ask(fronts, endpoint, [], None, {})
    assert status in {400, 422}
    assert any(word in message for word in ("inputs: ", "instances: ", "inputs[0].shape")), message
