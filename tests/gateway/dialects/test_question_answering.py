"""Questions are answered from their contexts alike in every dialect, and refused by field."""

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

QUESTION = "was it warm"
CONTEXTS = ["the soup was warm and the rain cold", "rain", "no", "no 🎬 soup", "no " * 30 + "rain"]
SOUP = {"start": 4, "end": 8, "answer": "soup"}


def with_reader(predictor: FakePredictor) -> FakePredictor:
    predictor.views["reader"] = view("reader", Task.QUESTION_ANSWERING)
    return predictor


@pytest.fixture
def behind() -> Behind:
    return Behind(with_reader(FakePredictor.with_endpoints()))


async def ask(behind: Behind, inputs: object, **parameters: object) -> httpx.Response:
    body = {"inputs": inputs, "parameters": parameters}
    return await asked(behind, "POST", "/endpoints/reader", json=body)


def pair(context: str | list[str] = CONTEXTS[0]) -> dict[str, Any]:
    return {"question": QUESTION, "context": context}


async def test_one_question_gets_its_answer_and_a_list_a_list(behind: Behind) -> None:
    # What InferenceClient.question_answering of huggingface_hub 2.4 sends and reads.
    one = (await ask(behind, pair())).json()
    assert one.pop("score") > 0.9
    assert one == SOUP
    many = (await ask(behind, [pair(), pair("rain")])).json()
    assert [each["answer"] for each in many] == ["soup", "rain"]
    (call, _) = behind.predictor.calls
    assert (call.texts, call.pairs) == ([QUESTION], [CONTEXTS[0]])
    same = (await ask(behind, {"text": QUESTION, "text_pair": CONTEXTS[0]})).json()
    assert same["answer"] == "soup"


async def test_one_question_may_have_many_contexts(behind: Behind) -> None:
    many = (await ask(behind, pair(CONTEXTS))).json()
    assert [each["answer"] for each in many[:2]] == ["soup", "rain"]
    assert many[3]["start"] == 5
    call = behind.predictor.calls[0]
    assert (call.texts, call.pairs) == ([QUESTION] * 5, CONTEXTS)
    assert len((await ask(behind, pair([CONTEXTS[0]]))).json()) == 1


async def test_how_many_answers_and_whether_none_is_one_are_the_callers(behind: Behind) -> None:
    found = (await ask(behind, pair(), top_k=2, max_answer_len=1)).json()
    assert [each["answer"] for each in found] == ["soup", "rain"]
    none = (await ask(behind, pair("no"), handle_impossible_answer=True)).json()
    assert (none["answer"], none["start"], none["end"]) == ("", 0, 0)


@pytest.mark.parametrize(
    ("endpoint", "body", "status", "says"),
    [
        ("reader", {"inputs": "a"}, 422, "second one"),
        ("reader", {"inputs": {"question": "a"}}, 422, "inputs[0]: expected text"),
        ("reader", {"inputs": {"context": "a"}}, 422, "inputs[0]: expected text"),
        ("reader", {"inputs": {}}, 422, "inputs[0]: expected text"),
        ("reader", {"inputs": {**pair(), "text": "a"}}, 422, "inputs[0]: expected text"),
        ("reader", {"inputs": {"question": " ", "context": "a"}}, 422, "question: it is empty"),
        ("reader", {"inputs": pair("")}, 422, "context: it is empty"),
        ("reader", {"inputs": pair(["a", ""])}, 422, "context 1: it is empty"),
        ("reader", {"inputs": [pair(), pair("\n")]}, 422, "context 1: it is empty"),
        ("reader", {"inputs": pair([])}, 422, "list of contexts is empty"),
        ("reader", {"inputs": [pair(), pair(["a"])]}, 422, "inputs: a list of contexts"),
        ("reader", {"inputs": {"question": 1, "context": "a"}}, 400, "question"),
        ("reader", {"inputs": pair(), "parameters": {"top_k": 0}}, 400, "top_k"),
        ("reader", {"inputs": pair(), "parameters": {"top_k": 51}}, 422, "parameters.top_k"),
        ("reader", {"inputs": pair(), "parameters": {"max_answer_len": 0}}, 400, "max_answer_len"),
        ("sentiment", {"inputs": "a", "parameters": {"max_answer_len": 3}}, 422, "max_answer_len"),
    ],
)
async def test_what_can_not_be_answered_is_refused_by_field(
    behind: Behind, endpoint: str, body: dict[str, Any], status: int, says: str
) -> None:
    answer = await asked(behind, "POST", f"/endpoints/{endpoint}", json=body)
    assert (answer.status_code, says in answer.text) == (status, True), answer.text
    assert behind.predictor.calls == []


async def test_an_instance_of_kserve_has_one_context(behind: Behind) -> None:
    body = {"instances": [pair(["a", "b"])]}
    answer = await asked(behind, "POST", "/v1/models/reader:predict", json=body)
    assert (answer.status_code, "instances" in answer.text) == (422, True), answer.text


@pytest.fixture(scope="module")
def fronts() -> Iterator[Served]:
    made = Served()
    with_reader(made.predictor)
    with serving(made) as served:
        yield served


def test_all_dialects_agree_on_answers(fronts: Served) -> None:
    parameters = {"handle_impossible_answer": True, "top_k": 2, "max_answer_len": 1}
    count = len(CONTEXTS)
    tensors = [
        {"name": name, "shape": [count], "datatype": "BYTES", "data": data}
        for name, data in (("TEXT", [QUESTION] * count), ("TEXT_PAIR", CONTEXTS))
    ]
    with httpx.Client(base_url=fronts.url, timeout=60) as http:
        body: dict[str, Any] = {"inputs": [pair(one) for one in CONTEXTS], "parameters": parameters}
        hf = http.post("/endpoints/reader", json=body).json()
        body = {"instances": [pair(one) for one in CONTEXTS], "parameters": parameters}
        kserve = http.post("/v1/models/reader:predict", json=body).json()["predictions"]
        body = {"inputs": tensors, "parameters": parameters}
        oip = http.post("/v2/models/reader/infer", json=body).json()["outputs"]
    assert [each[0]["answer"] for each in hf] == ["soup", "rain", "", "soup", "rain"]
    assert hf[4][0]["end"] == len(CONTEXTS[4])  # found in the last window
    assert kserve == hf
    named = {one["name"]: one["data"] for one in oip}
    assert [json.loads(each) for each in named["ANSWERS"]] == hf
    assert named["ANSWER"] == [each[0]["answer"] for each in hf]
    queries = []
    for name, data in (("TEXT", [QUESTION] * count), ("TEXT_PAIR", CONTEXTS)):
        query = triton_grpc.InferInput(name, [count], "BYTES")
        query.set_data_from_numpy(np.array([text.encode() for text in data], np.object_))
        queries.append(query)
    with triton_grpc.InferenceServerClient(fronts.grpc_address) as client:
        found = client.infer("reader", queries, parameters=parameters)
    assert [json.loads(each) for each in found.as_numpy("ANSWERS")] == hf
    scores = [each[0]["score"] for each in hf]
    np.testing.assert_allclose(found.as_numpy("SCORE"), scores, rtol=1e-6)
