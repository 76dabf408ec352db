"""Text Embeddings Inference's routes below an endpoint's address."""

from typing import Any

import httpx
import numpy as np
import pytest
from front_fakes import (
    LABELS,
    PROMPTS,
    WORDS,
    Behind,
    FakeKeys,
    asked,
    logit,
    scores,
    space_of,
    vector,
    view,
)
from front_server import Served

from contracts.tasks import Task


def behind_all() -> Behind:
    behind = Behind()
    behind.predictor.views |= {
        "m3": view("m3", Task.HYBRID_EMBEDDING),
        "splade": view("splade", Task.SPARSE_EMBEDDING),
        "entities": view("entities", Task.TOKEN_CLASSIFICATION),
    }
    return behind


async def ask(endpoint: str, route: str, body: object, behind: Behind | None = None) -> Any:
    answer = await asked(
        behind or behind_all(), "POST", f"/endpoints/{endpoint}/{route}", json=body
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def best_first(text: str, pair: str = "") -> list[tuple[str, Any]]:
    found = sorted(zip(scores(text, pair), LABELS, strict=True), reverse=True)
    return [(label, pytest.approx(score)) for score, label in found]


def as_pairs(labels: list[dict[str, Any]]) -> list[tuple[str, float]]:
    return [(one["label"], one["score"]) for one in labels]


async def test_predict_gives_all_labels_best_first_and_nests_batches() -> None:
    for one in ("good soup", ["good soup"]):
        found = await ask("sentiment", "predict", {"inputs": one})
        assert as_pairs(found) == best_first("good soup")
    many = await ask("sentiment", "predict", {"inputs": [["good soup"], ["bad"]]})
    assert [as_pairs(each) for each in many] == [best_first("good soup"), best_first("bad")]


async def test_two_strings_are_a_pair_to_predict() -> None:
    found = await ask("sentiment", "predict", {"inputs": ["qq", "good answer"]})
    assert as_pairs(found) == best_first("qq", "good answer")
    batch = await ask("sentiment", "predict", {"inputs": [["qq", "ab"], ["qq", "good answer"]]})
    assert [as_pairs(each) for each in batch] == [
        best_first("qq", "ab"),
        best_first("qq", "good answer"),
    ]


async def test_predict_scores_pairs_of_a_reranker_raw_where_asked_for() -> None:
    body = {"inputs": ["a b", "b c"], "raw_scores": True}
    (found,) = await ask("reranker", "predict", body)
    assert found == {"label": LABELS[-1], "score": pytest.approx(logit("a b", "b c"))}


async def test_similarity_is_the_cosine_with_each_sentence() -> None:
    others = ["abc", "eeee", ""]
    body = {"inputs": {"source_sentence": "abc", "sentences": others}}
    found = await ask("minilm", "similarity", body)
    assert found == pytest.approx([float(np.dot(vector("abc"), vector(one))) for one in others])
    prompted = await ask("minilm", "similarity", body | {"parameters": {"prompt_name": "query"}})
    query = [vector(PROMPTS["query"] + text) for text in ("abc", *others)]
    assert prompted == pytest.approx([float(np.dot(query[0], other)) for other in query[1:]])


async def test_tokens_say_where_they_are_in_the_text() -> None:
    text = "the soup was xyzzy"
    (found,) = await ask("minilm", "tokenize", {"inputs": text})
    (bare,) = await ask("minilm", "tokenize", {"inputs": [text], "add_special_tokens": False})
    assert [one for one in found if not one["special"]] == bare
    assert [one["text"] for one in found if one["special"]] == ["[CLS]", "[SEP]"]
    assert {(one["start"], one["stop"]) for one in found if one["special"]} == {(None, None)}
    assert [one["text"] for one in bare] == text.split()
    assert all(text[one["start"] : one["stop"]] == one["text"] for one in bare)
    ids = WORDS.tokenizer.encode_batch([text], add_special_tokens=False)[0].ids
    assert [one["id"] for one in bare] == ids


async def test_ids_become_text_again() -> None:
    texts = ["the soup was good", "rain"]
    tokens = await ask("minilm", "tokenize", {"inputs": texts, "add_special_tokens": False})
    ids = [[one["id"] for one in each] for each in tokens]
    assert await ask("minilm", "decode", {"ids": ids}) == texts
    assert await ask("minilm", "decode", {"ids": ids[0]}) == texts[:1]
    body = {"inputs": ids, "normalize": False}
    np.testing.assert_allclose(
        await ask("minilm", "embed", body), [vector(text) for text in texts], rtol=1e-6
    )


@pytest.mark.parametrize(
    ("endpoint", "route", "body", "status", "says"),
    [
        ("sentiment", "predict", {"inputs": ["a", "b", "c"]}, 422, "a pair of texts"),
        ("sentiment", "predict", {"inputs": ["a", ["b"]]}, 422, "list of lists"),
        ("sentiment", "predict", {"inputs": [["a"], ["b", "c"]]}, 422, "second one"),
        ("sentiment", "predict", {"inputs": [["a", "b", "c"]]}, 400, "inputs[0]"),
        ("sentiment", "predict", {"inputs": "a", "raw_scores": True}, 422, "made by softmax"),
        ("minilm", "predict", {"inputs": "a"}, 422, "minilm does text-embedding"),
        ("entities", "predict", {"inputs": "a"}, 422, "entities does token-classification"),
        (
            "sentiment",
            "similarity",
            {"inputs": {"source_sentence": "a", "sentences": ["b"]}},
            422,
            "similarity needs",
        ),
        ("minilm", "decode", {"ids": [9999]}, 422, "9999, which is no token"),
        ("minilm", "decode", {"ids": [[1], 2]}, 422, "ids"),
        ("minilm", "decode", {"ids": [2**32]}, 400, "ids"),
        ("minilm", "tokenize", {"inputs": "a", "prompt_name": "no"}, 422, "no prompt 'no'"),
        ("minilm", "embed", {"inputs": [1, "a"]}, 422, "inputs: expected texts alone"),
        ("nobody", "tokenize", {"inputs": "a"}, 404, "no endpoint"),
    ],
)
async def test_what_can_not_be_done_is_refused_in_teis_form(
    endpoint: str, route: str, body: object, status: int, says: str
) -> None:
    behind = behind_all()
    answer = await asked(behind, "POST", f"/endpoints/{endpoint}/{route}", json=body)
    assert (answer.status_code, says in answer.json()["error"]) == (status, True), answer.text
    assert answer.json()["error_type"] == "Validation"
    assert behind.predictor.calls == []


async def test_info_says_what_an_endpoint_is() -> None:
    async def info(endpoint: str) -> Any:
        return (await asked(behind_all(), "GET", f"/endpoints/{endpoint}/info")).json()

    found = await info("minilm")
    assert (found["model_id"], found["max_input_length"]) == ("minilm", 128)
    assert found["model_space"] == space_of("3")
    assert (await info("sentiment"))["model_space"] is None
    assert found["max_client_batch_size"] == 64
    assert list(found["model_type"]) == ["embedding"]
    classifier = (await info("sentiment"))["model_type"]["classifier"]
    assert classifier["label2id"] == {label: index for index, label in enumerate(LABELS)}
    assert classifier["id2label"] == {str(index): label for index, label in enumerate(LABELS)}
    assert list((await info("reranker"))["model_type"]) == ["reranker"]


async def test_health_follows_the_endpoint_and_asks_for_a_key() -> None:
    behind = behind_all()
    path = "/endpoints/minilm/health"
    assert (await asked(behind, "GET", path)).status_code == 200
    gone = view("minilm", Task.TEXT_EMBEDDING)
    behind.predictor.views["minilm"] = type(gone)(
        **{name: getattr(gone, name) for name in gone.__slots__} | {"ready": False}
    )
    assert (await asked(behind, "GET", path)).status_code == 503
    keyed = Behind(keys=FakeKeys({"good": {"sentiment"}}))
    for route in ("health", "info", "metrics"):
        assert (await asked(keyed, "GET", f"/endpoints/minilm/{route}")).status_code == 401


def test_every_route_of_tei_is_answered_over_sockets(fronts: Served) -> None:
    with httpx.Client(base_url=f"{fronts.url}/endpoints/minilm", timeout=60) as tei:
        bodies: dict[str, object] = {
            "embed": {"inputs": "a"},
            "similarity": {"inputs": {"source_sentence": "a", "sentences": ["b"]}},
            "tokenize": {"inputs": "a"},
            "decode": {"ids": [4]},
            "embeddings": {"input": "a"},
            "v1/embeddings": {"input": "a", "model": "x"},
        }
        for route, body in bodies.items():
            assert tei.post(f"/{route}", json=body).status_code == 200, route
        for route in ("info", "health", "metrics"):
            assert tei.get(f"/{route}").status_code == 200, route
        assert tei.get("/metrics").headers["content-type"].startswith("text/plain")
