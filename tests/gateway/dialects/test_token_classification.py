"""Entities come with their places in the text, the same in every dialect."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
from front_fakes import Behind, FakePredictor, asked, view
from front_server import Served, serving

from contracts.tasks import Task

TEXT = "the soup was warm and the rain cold"
SOUP = {"entity_group": "FOOD", "word": "soup", "start": 4, "end": 8}
RAIN = {"entity_group": "WEATHER", "word": "rain", "start": 26, "end": 30}


def with_entities(predictor: FakePredictor) -> FakePredictor:
    predictor.views["entities"] = view("entities", Task.TOKEN_CLASSIFICATION)
    return predictor


@pytest.fixture
def behind() -> Behind:
    return Behind(with_entities(FakePredictor.with_endpoints()))


def unscored(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    assert all(0.5 < entity["score"] <= 1 for entity in found)
    return [{k: v for k, v in entity.items() if k != "score"} for entity in found]


async def ask(behind: Behind, inputs: object, **parameters: object) -> httpx.Response:
    body = {"inputs": inputs, "parameters": parameters}
    return await asked(behind, "POST", "/endpoints/entities", json=body)


async def test_one_text_gets_its_entities_and_a_list_a_list_of_them(behind: Behind) -> None:
    one = (await ask(behind, TEXT)).json()
    assert unscored(one) == [SOUP, RAIN]
    many = (await ask(behind, [TEXT, "no"])).json()
    assert many == [one, []]
    assert (await ask(behind, [TEXT])).json() == [one]


async def test_the_strategy_and_the_labels_to_ignore_are_the_callers(behind: Behind) -> None:
    tokens = (await ask(behind, TEXT, aggregation_strategy="none")).json()
    first = {"entity": "B-FOOD", "index": 2, "word": "soup", "start": 4, "end": 8}
    assert unscored(tokens)[0] == first
    assert len(tokens) == 2
    every = (await ask(behind, TEXT, aggregation_strategy="none", ignore_labels=[])).json()
    assert [TEXT[each["start"] : each["end"]] for each in every] == TEXT.split()
    for strategy in ("simple", "first", "average", "max"):
        found = (await ask(behind, TEXT, aggregation_strategy=strategy)).json()
        assert unscored(found) == [SOUP, RAIN]
    assert unscored((await ask(behind, TEXT, ignore_labels=["O", "FOOD"])).json()) == [RAIN]


@pytest.mark.parametrize(
    ("endpoint", "body", "status", "says"),
    [
        ("entities", {"inputs": {"text": "a", "text_pair": "b"}}, 422, "text_pair"),
        ("entities", {"inputs": []}, 400, "inputs"),
        ("entities", {"inputs": 1}, 400, "inputs"),
        ("entities", {"inputs": "a", "parameters": {"top_k": 1}}, 422, "parameters.top_k"),
        (
            "entities",
            {"inputs": "a", "parameters": {"aggregation_strategy": "best"}},
            400,
            "aggregation_strategy",
        ),
        ("entities", {"inputs": "a", "parameters": {"ignore_labels": "O"}}, 400, "ignore_labels"),
        (
            "sentiment",
            {"inputs": "a", "parameters": {"aggregation_strategy": "simple"}},
            422,
            "parameters.aggregation_strategy",
        ),
        (
            "sentiment",
            {"inputs": "a", "parameters": {"ignore_labels": ["O"]}},
            422,
            "parameters.ignore_labels",
        ),
    ],
)
async def test_what_can_not_be_answered_is_refused_by_field(
    behind: Behind, endpoint: str, body: dict[str, Any], status: int, says: str
) -> None:
    answer = await asked(behind, "POST", f"/endpoints/{endpoint}", json=body)
    assert (answer.status_code, says in answer.text) == (status, True), answer.text
    assert behind.predictor.calls == []


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/rerank"])
async def test_the_routes_of_other_tasks_refuse_it(behind: Behind, path: str) -> None:
    body = {"model": "entities", "input": "a", "query": "a", "documents": ["b"]}
    answer = await asked(behind, "POST", path, json=body)
    assert answer.status_code == 422
    assert "token-classification" in answer.text


@pytest.fixture(scope="module")
def fronts() -> Iterator[Served]:
    made = Served()
    with_entities(made.predictor)
    with serving(made) as served:
        yield served


def test_all_dialects_agree_on_entities(fronts: Served) -> None:
    texts = [TEXT, "", "no 🎬 soup", "no " * 30 + "rain"]
    tensor = {"name": "TEXT", "shape": [len(texts)], "datatype": "BYTES", "data": texts}
    with httpx.Client(base_url=fronts.url, timeout=60) as http:
        hf = http.post("/endpoints/entities", json={"inputs": texts}).json()
        kserve = http.post("/v1/models/entities:predict", json={"instances": texts}).json()
        oip = http.post("/v2/models/entities/infer", json={"inputs": [tensor]}).json()
        metadata = http.get("/v2/models/entities").json()
    assert [len(each) for each in hf] == [2, 0, 1, 1]
    assert texts[2][hf[2][0]["start"] : hf[2][0]["end"]] == "soup"
    assert hf[3][0]["end"] == len(texts[3])
    assert kserve["predictions"] == hf
    (output,) = oip["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("ENTITIES", "BYTES", [4])
    assert [json.loads(each) for each in output["data"]] == hf
    assert metadata["outputs"] == [{"name": "ENTITIES", "datatype": "BYTES", "shape": [-1]}]
    query = triton_grpc.InferInput("TEXT", [len(texts)], "BYTES")
    query.set_data_from_numpy(np.array([text.encode() for text in texts], np.object_))
    with triton_grpc.InferenceServerClient(fronts.grpc_address) as client:
        found = client.infer("entities", [query]).as_numpy("ENTITIES")
    assert [json.loads(each) for each in found] == hf
