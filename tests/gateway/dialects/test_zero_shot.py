"""Labels of the caller's own are scored alike in every dialect, and refused by field."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from front_fakes import Behind, FakePredictor, asked, view
from front_server import Served, serving

from contracts.tasks import Task

TEXTS = ["some soup was cold", "rain and rain on the train"]
LABELS = ["soup", "the train", "rain"]


def with_zero_shot(predictor: FakePredictor) -> FakePredictor:
    predictor.views["topics"] = view("topics", Task.ZERO_SHOT_CLASSIFICATION)
    return predictor


@pytest.fixture
def behind() -> Behind:
    return Behind(with_zero_shot(FakePredictor.with_endpoints()))


async def ask(behind: Behind, inputs: object, **parameters: object) -> httpx.Response:
    body = {"inputs": inputs, "parameters": parameters}
    return await asked(behind, "POST", "/endpoints/topics", json=body)


async def test_one_text_gets_its_labels_and_a_list_a_list_of_them(behind: Behind) -> None:
    # What InferenceClient.zero_shot_classification of huggingface_hub 2.4 sends and reads.
    one = (await ask(behind, TEXTS[0], candidate_labels=LABELS, multi_label=False)).json()
    assert one[0]["label"] == "soup"
    assert sum(each["score"] for each in one) == pytest.approx(1)
    many = (await ask(behind, TEXTS, candidate_labels=LABELS)).json()
    assert many[0] == one
    assert many[1][0]["label"] == "the train"
    (call, again) = behind.predictor.calls
    assert call.texts == [TEXTS[0]] * 3
    assert call.pairs == [f"This example is {label}." for label in LABELS]
    assert len(again.texts) == 6


async def test_the_template_and_labels_on_their_own_are_the_callers(behind: Behind) -> None:
    text = "rain on the train and soup"
    answer = await ask(
        behind, text, candidate_labels=LABELS, multi_label=True, hypothesis_template="{}."
    )
    assert sum(each["score"] for each in answer.json()) > 1
    assert behind.predictor.calls[0].pairs == [f"{label}." for label in LABELS]


async def test_a_cut_text_is_told_by_its_own_place(behind: Behind) -> None:
    long = "soup " * 300
    answer = await ask(behind, ["a", long, "b", long], candidate_labels=LABELS)
    assert answer.headers["x-headrace-truncated"] == "1,3"


async def test_more_rows_than_the_endpoint_takes_are_refused_before_they_are_made(
    behind: Behind,
) -> None:
    labels = [f"label {number}" for number in range(33)]
    assert (await ask(behind, "a", candidate_labels=labels)).status_code == 200
    answer = await ask(behind, ["a", "b"], candidate_labels=labels)
    assert (answer.status_code, "66 together" in answer.text) == (413, True), answer.text
    assert len(behind.predictor.calls) == 1


WHOLE = {"inputs": "a", "parameters": {"candidate_labels": ["b"]}}


@pytest.mark.parametrize(
    ("endpoint", "body", "status", "says"),
    [
        ("topics", {"inputs": "a"}, 422, "parameters.candidate_labels: "),
        ("topics", {"inputs": "a", "parameters": {"candidate_labels": []}}, 422, "no label"),
        (
            "topics",
            {"inputs": "a", "parameters": {"candidate_labels": ["b", ""]}},
            422,
            "parameters.candidate_labels[1]: the label is empty",
        ),
        (
            "topics",
            {"inputs": "a", "parameters": {"candidate_labels": ["b", "b"]}},
            422,
            "parameters.candidate_labels[1]: 'b' is there twice",
        ),
        (
            "topics",
            {"inputs": "a", "parameters": {"candidate_labels": ["b"], "hypothesis_template": "c"}},
            422,
            "parameters.hypothesis_template: ",
        ),
        ("topics", {"inputs": "a", "parameters": {"candidate_labels": "b"}}, 400, "labels"),
        ("topics", {"inputs": "a", "parameters": {"candidate_labels": [1]}}, 400, "labels[0]"),
        ("topics", {**WHOLE, "inputs": []}, 400, "inputs"),
        ("topics", {**WHOLE, "inputs": {"text": "a", "text_pair": "c"}}, 422, "text_pair"),
        ("topics", {"inputs": "a", "parameters": {"top_k": 1}}, 422, "parameters.top_k"),
        ("sentiment", WHOLE, 422, "parameters.candidate_labels: sentiment does text-class"),
    ],
)
async def test_what_can_not_be_answered_is_refused_by_field(
    behind: Behind, endpoint: str, body: dict[str, Any], status: int, says: str
) -> None:
    answer = await asked(behind, "POST", f"/endpoints/{endpoint}", json=body)
    assert (answer.status_code, says in answer.text) == (status, True), answer.text
    assert behind.predictor.calls == []


@pytest.mark.parametrize(
    ("parameters", "status", "says"),
    [
        ({}, 422, "parameters.candidate_labels: no label"),
        ({"candidate_labels": "soup"}, 400, "parameters.candidate_labels: expected a list"),
        ({"candidate_labels": "[1]"}, 400, "parameters.candidate_labels[0]: expected `str`"),
        ({"candidate_labels": ["a"], "multi_label": 1}, 400, "parameters.multi_label: expected"),
        ({"candidate_labels": ["a"], "hypothesis_template": "b"}, 422, "hypothesis_template"),
    ],
)
async def test_the_other_dialects_refuse_the_same(
    behind: Behind, parameters: dict[str, Any], status: int, says: str
) -> None:
    tensor = {"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["a"]}
    for path, body in (
        ("/v1/models/topics:predict", {"instances": ["a"]}),
        ("/v2/models/topics/infer", {"inputs": [tensor]}),
    ):
        answer = await asked(behind, "POST", path, json={**body, "parameters": parameters})
        assert (answer.status_code, says in answer.text) == (status, True), answer.text
    assert behind.predictor.calls == []


async def test_other_tasks_ignore_parameters_where_they_did_before(behind: Behind) -> None:
    body = {"instances": ["a"], "parameters": {"candidate_labels": 3, "probability": True}}
    answer = await asked(behind, "POST", "/v1/models/sentiment:predict", json=body)
    assert answer.status_code == 200


@pytest.fixture(scope="module")
def fronts() -> Iterator[Served]:
    made = Served()
    with_zero_shot(made.predictor)
    with serving(made) as served:
        yield served


def test_all_dialects_agree_on_the_scores_of_callers_labels(fronts: Served) -> None:
    tensor = {"name": "TEXT", "shape": [2], "datatype": "BYTES", "data": TEXTS}
    parameters = {"candidate_labels": LABELS}
    with httpx.Client(base_url=fronts.url, timeout=60) as http:
        asked_alike = {"inputs": TEXTS, "parameters": parameters}
        hf = http.post("/endpoints/topics", json=asked_alike).json()
        instances = {"instances": TEXTS, "parameters": parameters}
        kserve = http.post("/v1/models/topics:predict", json=instances).json()["predictions"]
        tensors = {"inputs": [tensor], "parameters": parameters}
        oip = http.post("/v2/models/topics/infer", json=tensors).json()["outputs"]
        metadata = http.get("/v2/models/topics").json()
    by_label = [{one["label"]: one["score"] for one in row} for row in hf]
    reference = [[row[label] for label in LABELS] for row in by_label]
    assert [dict(zip(row["labels"], row["scores"], strict=True)) for row in kserve] == by_label
    named = {one["name"]: one for one in oip}
    assert named["LABEL"]["data"] == ["soup", "the train"]
    assert named["SCORES"]["shape"] == [2, 3]
    np.testing.assert_array_equal(np.reshape(named["SCORES"]["data"], (2, 3)), reference)
    assert metadata["outputs"][2]["shape"] == [-1, -1]

    as_text = {"candidate_labels": json.dumps(LABELS)}
    for client, url in ((triton_grpc, fronts.grpc_address), (triton_http, fronts.address)):
        query = client.InferInput("TEXT", [2], "BYTES")
        query.set_data_from_numpy(np.array([text.encode() for text in TEXTS], np.object_))
        with client.InferenceServerClient(url) as triton:
            found = triton.infer("topics", [query], parameters=as_text)
        np.testing.assert_array_equal(found.as_numpy("SCORES"), np.array(reference, np.float32))


async def test_labels_as_json_that_is_nested_too_deeply_are_refused(behind: Behind) -> None:
    body = {"instances": ["a"], "parameters": {"candidate_labels": "[" * 100_000}}
    answer = await asked(behind, "POST", "/v1/models/topics:predict", json=body)
    assert answer.status_code == 400
    assert "candidate_labels" in answer.json()["error"]["message"]
