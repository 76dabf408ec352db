"""Entities by the labels that a request names, in every dialect that can name them."""

import json
from typing import Any

import pytest
from front_fakes import Behind, FakePredictor, asked, guard, view

from contracts.tasks import Task

PII = "/endpoints/pii"
TEXT = "the soup was cold"
LABELS = ["food", "phrase"]
SOUP = {"entity_group": "food", "score": 0.9, "word": "soup", "start": 4, "end": 8}
COLD = {"entity_group": "phrase", "score": 0.6, "word": "was cold", "start": 9, "end": 17}


def behind() -> Behind:
    made = Behind(FakePredictor.with_endpoints())
    made.predictor.views["pii"] = view("pii", Task.ENTITY_RECOGNITION)
    return made


async def answer_to(path: str, **body: Any) -> Any:
    found = await asked(behind(), "POST", path, json=body)
    assert found.status_code == 200, found.text
    return found.json()


def rounded(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**each, "score": round(each["score"], 3)} for each in found]


async def test_the_best_spans_that_do_not_overlap_are_found() -> None:
    found = await answer_to(PII, inputs=TEXT, parameters={"labels": LABELS})
    assert rounded(found) == [SOUP, COLD]
    found = await answer_to(PII, inputs=[TEXT, ""], parameters={"labels": LABELS, "threshold": 0.8})
    assert [rounded(each) for each in found] == [[SOUP], []]


async def test_other_dialects_take_the_labels_too() -> None:
    parameters = {"labels": LABELS, "threshold": 0.8}
    kserve = await answer_to("/v1/models/pii:predict", instances=[TEXT], parameters=parameters)
    assert [rounded(each) for each in kserve["predictions"]] == [[SOUP]]
    tensor = {"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": [TEXT]}
    oip = await answer_to(
        "/v2/models/pii/infer",
        inputs=[tensor],
        parameters={**parameters, "labels": json.dumps(LABELS)},
    )
    assert rounded(json.loads(oip["outputs"][0]["data"][0])) == [SOUP]


async def test_guardrails_look_for_the_labels_that_the_endpoint_names() -> None:
    made = Behind(FakePredictor.with_endpoints())
    rules: dict[str, Any] = {"labels": {"food": 0.9, "phrase": 0.7}}
    made.predictor.views["guard"] = guard(Task.ENTITY_RECOGNITION, **rules)
    long = f"{TEXT}. " * 2 + "x" * 300
    path = "/endpoints/guard/beta/litellm_basic_guardrail_api"
    body = {"input_type": "request", "texts": [TEXT, "the rain"]}
    found = (await asked(made, "POST", path, json=body)).json()
    assert found == {
        "action": "GUARDRAIL_INTERVENED", "texts": ["the [food] was cold", "the rain"]
    }  # fmt: skip
    path = "/endpoints/guard/api/v1/text/contents"
    found = (await asked(made, "POST", path, json={"contents": [long]})).json()
    assert [(each["start"], each["text"]) for each in found[0]] == [(4, "soup"), (23, "soup")]


BAD: list[tuple[dict[str, Any], int, str]] = [
    ({}, 422, "parameters.labels: no label was sent"),
    ({"labels": []}, 422, "parameters.labels: no label was sent"),
    ({"labels": ["a", " "]}, 422, "parameters.labels[1]: the label is empty"),
    ({"labels": ["a", "a"]}, 422, "parameters.labels[1]: 'a' is there twice"),
    ({"labels": [str(at) for at in range(65)]}, 422, "parameters.labels: there are 65; 64"),
    ({"labels": ["a" * 9000]}, 422, "parameters.labels: they have 9000 characters"),
    ({"labels": ["a"], "threshold": 2}, 400, "parameters.threshold"),
    ({"candidate_labels": ["a"]}, 422, "parameters.candidate_labels: pii does"),
]


@pytest.mark.parametrize(("parameters", "status", "words"), BAD)
async def test_what_is_asked_wrongly_is_named(
    parameters: dict[str, Any], status: int, words: str
) -> None:
    answer = await asked(behind(), "POST", PII, json={"inputs": TEXT, "parameters": parameters})
    assert answer.status_code == status, answer.text
    assert words in answer.text
