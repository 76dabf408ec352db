"""Documents come back in the order of their logits, each with its own place and text."""

import math
from typing import Any

import httpx
import pytest
from front_fakes import Behind, asked, logit
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import (
    GatewayError,
    InvalidInputError,
    ModelFailedError,
    ModelUnavailableError,
    OverloadedError,
    RateLimitedError,
    TooLargeError,
)

QUERY = "who wrote emma"
DOCUMENTS = ["a name", "austen wrote emma", "who wrote it", "a name"]
SHARED = Behind()  # making an application takes longer than asking it
_texts = st.text(st.sampled_from("ab "), max_size=12)


@pytest.fixture
def behind() -> Behind:
    return Behind()


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


async def reranked(behind: Behind, **body: Any) -> httpx.Response:
    usual = {"model": "reranker", "query": QUERY, "documents": DOCUMENTS}
    return await asked(behind, "POST", "/v1/rerank", json=usual | body)


async def reranked_by_tei(behind: Behind, **body: Any) -> httpx.Response:
    usual = {"query": QUERY, "texts": DOCUMENTS}
    return await asked(behind, "POST", "/endpoints/reranker/rerank", json=usual | body)


@pytest.mark.parametrize("documents", [DOCUMENTS, [{"text": text} for text in DOCUMENTS]])
async def test_documents_come_best_first_and_equal_ones_in_their_order(
    behind: Behind, documents: list[Any]
) -> None:
    answer = await reranked(behind, documents=documents)
    found = answer.json()
    assert [each["index"] for each in found["results"]] == [1, 2, 0, 3]
    expected = [sigmoid(logit(QUERY, DOCUMENTS[index])) for index in (1, 2, 0, 3)]
    scores = [each["relevance_score"] for each in found["results"]]
    assert scores == pytest.approx(expected, rel=1e-6)
    assert "document" not in found["results"][0]
    assert found["model"] == "reranker"
    assert found["usage"] == {"prompt_tokens": 20, "total_tokens": 20}
    assert found["id"] == answer.headers["x-request-id"]
    assert answer.headers["x-headrace-version"] == "3"


async def test_top_n_and_documents_are_given_where_they_are_asked_for(behind: Behind) -> None:
    found = (await reranked(behind, top_n=1, return_documents=True)).json()["results"]
    assert [(each["index"], each["document"]) for each in found] == [(1, {"text": DOCUMENTS[1]})]
    many = (await reranked(behind, top_n=9)).json()["results"]
    assert len(many) == len(DOCUMENTS)


async def test_the_form_of_text_embeddings_inference_gives_the_same_order(behind: Behind) -> None:
    found = (await reranked_by_tei(behind)).json()
    assert [each["index"] for each in found] == [1, 2, 0, 3]
    best = logit(QUERY, DOCUMENTS[1])
    assert found[0]["score"] == pytest.approx(sigmoid(best), rel=1e-6)
    raw = (await reranked_by_tei(behind, raw_scores=True, return_text=True)).json()
    assert raw[0] == {"index": 1, "score": pytest.approx(best), "text": DOCUMENTS[1]}


async def test_tei_s_truncate_is_passed_on_and_its_clients_get_its_errors(behind: Behind) -> None:
    for truncate in (None, True, False):
        await reranked_by_tei(behind, truncate=truncate)
    assert [call.truncate for call in behind.predictor.calls] == [True, True, False]
    too_long = TooLargeError("Text 1 is too long.")
    with behind.predictor.failing(too_long):
        answer = await reranked_by_tei(behind, truncate=False)
    assert answer.status_code == 413
    found = answer.json()
    assert (found["error"], found["error_type"]) == ("Text 1 is too long.", "Validation")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OverloadedError("x"), "Overloaded"),
        (RateLimitedError("x"), "Overloaded"),
        (ModelUnavailableError("x"), "Unhealthy"),
        (ModelFailedError("x"), "Backend"),
        (InvalidInputError("x"), "Validation"),
    ],
)
async def test_an_error_has_the_type_that_tei_gives_it(
    behind: Behind, error: GatewayError, kind: str
) -> None:
    with behind.predictor.failing(error):
        assert (await reranked_by_tei(behind)).json()["error_type"] == kind


@settings(max_examples=30, deadline=None)
@given(_texts.filter(str.strip), st.lists(_texts, min_size=1, max_size=8))
async def test_any_documents_are_answered_each_once_by_its_own_score(
    query: str, documents: list[str]
) -> None:
    found = (await reranked(SHARED, query=query, documents=documents)).json()["results"]
    scores = [each["relevance_score"] for each in found]
    assert sorted(each["index"] for each in found) == list(range(len(documents)))
    assert scores == sorted(scores, reverse=True)
    for each in found:
        own = sigmoid(logit(query, documents[each["index"]]))
        assert each["relevance_score"] == pytest.approx(own, rel=1e-5)


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"query": " \n"}, 422, "query: it is empty"),
        ({"documents": []}, 400, "documents"),
        ({"documents": [{"title": "x"}]}, 400, "documents[0]"),
        ({"documents": "a"}, 400, "documents"),
        ({"documents": [1]}, 400, "documents[0]"),
        ({"query": 1}, 400, "query"),
        ({"top_n": 0}, 400, "top_n"),
        ({"model": "minilm"}, 422, "model: minilm does text-embedding"),
        ({"model": "nothing"}, 404, "nothing"),
    ],
)
async def test_what_can_not_be_reranked_is_refused_by_field(
    behind: Behind, body: dict[str, Any], status: int, says: str
) -> None:
    answer = await reranked(behind, **body)
    assert (answer.status_code, says in answer.text) == (status, True), answer.text
    assert behind.predictor.calls == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/endpoints/reranker", {"inputs": "a text alone"}),
        ("/v1/models/reranker:predict", {"instances": ["a text alone"]}),
        (
            "/v2/models/reranker/infer",
            {"inputs": [{"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["a"]}]},
        ),
    ],
)
async def test_a_text_without_a_second_one_is_refused(
    behind: Behind, path: str, body: dict[str, Any]
) -> None:
    answer = await asked(behind, "POST", path, json=body)
    assert answer.status_code == 422
    assert "text_pair" in answer.text


async def test_every_dialect_answers_a_pair_with_the_same_score(behind: Behind) -> None:
    pair = {"text": QUERY, "text_pair": DOCUMENTS[1]}
    expected = (await reranked(behind, top_n=1)).json()["results"][0]["relevance_score"]
    hf = await asked(behind, "POST", "/endpoints/reranker", json={"inputs": pair})
    assert hf.json() == [{"label": "positive", "score": expected}]
    raw = await asked(
        behind,
        "POST",
        "/endpoints/reranker",
        json={"inputs": [pair], "parameters": {"function_to_apply": "none", "top_k": None}},
    )
    score = logit(QUERY, DOCUMENTS[1])
    assert raw.json() == [[{"label": "positive", "score": score}]]
    kserve = await asked(behind, "POST", "/v1/models/reranker:predict", json={"instances": [pair]})
    assert kserve.json() == {"predictions": [{"score": expected, "logit": score}]}
    tensors = [
        {"name": name, "shape": [1], "datatype": "BYTES", "data": [text]}
        for name, text in (("TEXT", QUERY), ("TEXT_PAIR", DOCUMENTS[1]))
    ]
    oip = await asked(behind, "POST", "/v2/models/reranker/infer", json={"inputs": tensors})
    found = {each["name"]: (each["shape"], each["data"]) for each in oip.json()["outputs"]}
    assert found == {"SCORE": ([1], [expected]), "LOGIT": ([1], [score])}
