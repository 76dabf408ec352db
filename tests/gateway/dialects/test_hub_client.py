"""Unmodified ``InferenceClient`` of huggingface_hub: an address is all that it is given.

Every method that fits a task. The client takes the address of an endpoint as its model.
"""

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from front_fakes import LABELS, Behind, asked, scores, vector, view
from front_server import Served, serving
from huggingface_hub import AsyncInferenceClient, InferenceClient
from huggingface_hub.errors import HfHubHTTPError

from contracts.tasks import Task

TASKS = {
    "entities": Task.TOKEN_CLASSIFICATION,
    "topics": Task.ZERO_SHOT_CLASSIFICATION,
    "reader": Task.QUESTION_ANSWERING,
    "m3": Task.HYBRID_EMBEDDING,
}
TEXT = "good soup"
CONTEXT = "the soup was warm and the rain cold"


def with_all_tasks(behind: Behind) -> None:
    behind.predictor.views |= {name: view(name, task) for name, task in TASKS.items()}


@pytest.fixture(scope="module")
def fronts() -> Iterator[Served]:
    made = Served()
    with_all_tasks(made)
    with serving(made) as served:
        yield served


def at(fronts: Served, endpoint: str) -> InferenceClient:
    return InferenceClient(f"{fronts.url}/endpoints/{endpoint}")


def ranked(text: str) -> list[tuple[str, Any]]:
    both = sorted(zip(scores(text), LABELS, strict=True), reverse=True)
    return [(label, pytest.approx(score)) for score, label in both]


def test_text_classification_gives_all_labels_best_first(fronts: Served) -> None:
    client = at(fronts, "sentiment")
    found = [(each.label, each.score) for each in client.text_classification(TEXT)]
    assert found == ranked(TEXT)
    best = client.text_classification(TEXT, top_k=2, function_to_apply="softmax")
    assert [(each.label, each.score) for each in best] == ranked(TEXT)[:2]
    with pytest.raises(HfHubHTTPError, match="softmax"):
        client.text_classification(TEXT, function_to_apply="sigmoid")


async def test_the_client_that_awaits_gives_all_labels_too(fronts: Served) -> None:
    async with AsyncInferenceClient(f"{fronts.url}/endpoints/sentiment") as client:
        found = await client.text_classification(TEXT)
    assert [(each.label, each.score) for each in found] == ranked(TEXT)


def test_token_classification_gives_entities(fronts: Served) -> None:
    client = at(fronts, "entities")
    (entity,) = client.token_classification("good soup")
    assert (entity.entity_group, entity.word, entity.start, entity.end) == ("FOOD", "soup", 5, 9)
    # The stride is the gateway's own, and said to have been ignored.
    tokens = client.token_classification(
        "good soup", aggregation_strategy="none", ignore_labels=[], stride=2
    )
    assert [each["entity"] for each in tokens] == ["O", "B-FOOD"]


def test_zero_shot_classification_gives_candidate_labels_best_first(fronts: Served) -> None:
    client = at(fronts, "topics")
    found = client.zero_shot_classification(TEXT, ["rain", "soup"])
    assert [each.label for each in found] == ["soup", "rain"]
    assert sum(each.score for each in found) == pytest.approx(1)
    alone = client.zero_shot_classification(
        TEXT, ["rain", "soup"], multi_label=True, hypothesis_template="{}."
    )
    assert [each.label for each in alone] == ["soup", "rain"]


def test_question_answering_gives_the_answer_and_its_place(fronts: Served) -> None:
    client = at(fronts, "reader")
    found: Any = client.question_answering("was it warm", CONTEXT)
    assert (found.answer, found.start, found.end) == ("soup", 4, 8)
    several: Any = client.question_answering(
        "was it warm",
        CONTEXT,
        top_k=2,
        max_answer_len=1,
        handle_impossible_answer=False,
        align_to_words=True,
        doc_stride=8,
        max_seq_len=32,
        max_question_len=8,
    )
    assert [each.answer for each in several] == ["soup", "rain"]


def test_feature_extraction_gives_vectors_in_the_form_asked_for(fronts: Served) -> None:
    client = at(fronts, "minilm")
    np.testing.assert_allclose(client.feature_extraction("abc"), vector("abc"), rtol=1e-6)
    many = client.feature_extraction(["abc", "e"])
    np.testing.assert_allclose(many, [vector("abc"), vector("e")], rtol=1e-6)
    asked_for = client.feature_extraction(
        "abc",
        normalize=True,
        prompt_name="query",
        truncate=True,
        truncation_direction="right",
        dimensions=2,
        encoding_format="float",
    )
    cut = np.array(vector("query: abc")[:2])
    np.testing.assert_allclose(asked_for, cut / np.linalg.norm(cut), rtol=1e-6)
    with pytest.raises(HfHubHTTPError, match="no prompt 'passage'"):
        client.feature_extraction("abc", prompt_name="passage")
    with pytest.raises(HfHubHTTPError, match="truncation_direction"):
        client.feature_extraction("abc", truncation_direction="left")


def test_sentence_similarity_gives_a_cosine_for_each_sentence(fronts: Served) -> None:
    others = ["abc", "eeee", ""]
    cosines = [float(np.dot(vector("abc"), vector(other))) for other in others]
    found = at(fronts, "minilm").sentence_similarity("abc", other_sentences=others)
    assert found == pytest.approx(cosines)
    assert found[0] == pytest.approx(1)
    of_several_kinds = at(fronts, "m3").sentence_similarity("abc", other_sentences=others)
    assert len(of_several_kinds) == 3
    with pytest.raises(HfHubHTTPError, match="sentiment does text-classification"):
        at(fronts, "sentiment").sentence_similarity("abc", other_sentences=others)


@pytest.mark.parametrize(
    ("agent", "nested"),
    [
        ("unknown/None; hf_hub/2.4.0; python/3.11.9", True),
        ("@huggingface/inference/4.13.0", True),
        ("python-httpx/0.28.1", False),
        ("", False),
    ],
)
async def test_only_the_hubs_clients_read_one_text_from_a_list_in_a_list(
    agent: str, nested: bool
) -> None:
    answer = await asked(
        Behind(),
        "POST",
        "/endpoints/sentiment",
        json={"inputs": TEXT, "parameters": {}},
        headers={"user-agent": agent},
    )
    found = answer.json()
    assert [each["label"] for each in (found[0] if nested else found)] == [
        label for label, _ in ranked(TEXT)
    ][: 3 if nested else 1]


async def test_many_texts_are_answered_alike_to_all_clients() -> None:
    bodies = ({"inputs": [TEXT]}, {"inputs": [TEXT, "b"], "parameters": {"top_k": 2}})
    for body in bodies:
        answers = [
            await asked(Behind(), "POST", "/endpoints/sentiment", json=body, headers=headers)
            for headers in ({}, {"user-agent": "hf_hub/2.4.0"})
        ]
        assert answers[0].json() == answers[1].json()


IGNORED = [
    (
        {"parameters": {"max_length": 128, "padding": True}},
        "parameters.max_length,parameters.padding",
    ),
    ({"model": "a", "parameters": {"top_k": 1}}, "model"),
    ({"wait_for_model\r\nset-cookie: a": 1}, "wait_for_model??set-cookie??a"),
    ({"x" * 99: 1}, "x" * 40),
    ({str(number): 1 for number in range(21)}, ",".join([*map(str, range(20)), "..."])),
]


@pytest.mark.parametrize(("fields", "named"), IGNORED)
async def test_fields_that_mean_nothing_are_named_or_under_strict_refused(
    fields: dict[str, Any], named: str
) -> None:
    body = {"inputs": TEXT, **fields}
    answer = await asked(Behind(), "POST", "/endpoints/sentiment", json=body)
    assert (answer.status_code, answer.headers.get("x-headrace-ignored")) == (200, named)
    strict = {"x-headrace-strict": "true"}
    refused = await asked(Behind(), "POST", "/endpoints/sentiment", json=body, headers=strict)
    assert (refused.status_code, "unknown field" in refused.text) == (400, True), refused.text


async def test_what_means_something_is_not_named() -> None:
    body = {"inputs": TEXT, "parameters": None, "options": {"use_cache": False}}
    answer = await asked(
        Behind(), "POST", "/endpoints/sentiment", json=body, headers={"x-headrace-strict": "true"}
    )
    assert answer.status_code == 200
    assert "x-headrace-ignored" not in answer.headers


async def test_a_field_that_is_unknown_hides_no_other_fault() -> None:
    body = {"inputs": TEXT, "parameters": {"max_length": 9, "top_k": 0}}
    answer = await asked(Behind(), "POST", "/endpoints/sentiment", json=body)
    assert (answer.status_code, "parameters.top_k" in answer.text) == (400, True), answer.text


async def test_return_all_scores_is_the_older_name_of_all_labels() -> None:
    async def ask(inputs: object, **parameters: object) -> Any:
        body = {"inputs": inputs, "parameters": parameters}
        return (await asked(Behind(), "POST", "/endpoints/sentiment", json=body)).json()

    labels = [label for label, _ in ranked(TEXT)]
    # In a list of one, as the older pipelines gave it for one text, too.
    for inputs in (TEXT, [TEXT]):
        found = await ask(inputs, return_all_scores=True)
        assert [each["label"] for each in found[0]] == labels
    assert await ask(TEXT, return_all_scores=False) == await ask(TEXT)
    assert len((await ask([TEXT], return_all_scores=True, top_k=2))[0]) == 2


@pytest.mark.parametrize(
    ("endpoint", "inputs", "parameters", "says"),
    [
        ("minilm", {"source_sentence": "a"}, {}, "source_sentence and sentences"),
        ("minilm", {"sentences": ["a"]}, {}, "source_sentence and sentences"),
        ("minilm", {"source_sentence": "a", "sentences": ["a"], "text": "b"}, {}, "nothing else"),
        ("minilm", {"source_sentence": "a", "sentences": []}, {}, "sentences"),
        (
            "minilm",
            {"source_sentence": "a", "sentences": ["b"]},
            {"precision": "int8"},
            "precision",
        ),
        ("m3", {"source_sentence": "a", "sentences": ["b"]}, {"kinds": ["dense"]}, "kinds"),
        ("reranker", {"source_sentence": "a", "sentences": ["b"]}, {}, "does text-ranking"),
    ],
)
async def test_sentences_that_can_not_be_compared_are_refused_by_field(
    endpoint: str, inputs: object, parameters: dict[str, object], says: str
) -> None:
    behind = Behind()
    with_all_tasks(behind)
    answer: httpx.Response = await asked(
        behind,
        "POST",
        f"/endpoints/{endpoint}",
        json={"inputs": inputs, "parameters": parameters},
    )
    assert (answer.status_code in {400, 422}, says in answer.text) == (True, True), answer.text
    assert behind.predictor.calls == []
