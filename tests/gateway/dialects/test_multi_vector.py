"""An endpoint of late interaction gives vectors of tokens, and ranks documents by them."""

from typing import Any

import httpx
import numpy as np
import pytest
from front_fakes import SIDES, Behind, FakePredictor, asked, vectors_of_tokens, view

from contracts.tasks import Task
from gateway.admission.byte_budget import ByteBudget
from preprocess.late_interaction import answered_vectors, maxsim

TEXTS = ["the soup was cold", "", "good good film"]
QUERY, DOCUMENTS = "was the soup good", ["a film", "the good soup was cold", "rain", "a film"]
COLBERT = "/endpoints/colbert"


async def ask(path: str, **body: Any) -> httpx.Response:
    behind = Behind(FakePredictor.with_endpoints())
    behind.predictor.views["colbert"] = view("colbert", Task.MULTI_VECTOR_EMBEDDING)
    return await asked(behind, "POST", path, json=body)


def rows(texts: list[str], prompt_name: str | None = None) -> list[Any]:
    encoded = SIDES.encode_prompted(texts, prompt_name=prompt_name)
    return answered_vectors(encoded, np.array(vectors_of_tokens(encoded), np.float32))


def scores() -> list[float]:
    (query,) = rows([QUERY], "query")
    return [maxsim(query, each) for each in rows(DOCUMENTS)]


ORDER = sorted(range(len(DOCUMENTS)), key=lambda at: -scores()[at])


@pytest.mark.parametrize("prompt_name", [None, "document", "query"])
async def test_a_prompt_says_whether_texts_are_queries_or_documents(
    prompt_name: str | None,
) -> None:
    found = await ask(f"{COLBERT}/embed_all", inputs=TEXTS, prompt_name=prompt_name)
    assert found.json() == [each.tolist() for each in rows(TEXTS, prompt_name)]
    lengths = [len(each) for each in found.json()]
    assert lengths == ([8, 8, 8] if prompt_name == "query" else [5, 2, 5])


async def test_other_dialects_give_the_same_vectors_of_documents() -> None:
    wanted = [each.tolist() for each in rows(TEXTS)]
    assert (await ask(COLBERT, inputs=TEXTS)).json() == wanted
    assert (await ask(COLBERT, inputs=TEXTS[0])).json() == wanted[0]
    kserve = await ask("/v1/models/colbert:predict", instances=TEXTS)
    assert kserve.json()["predictions"] == wanted
    tensor = {"name": "TEXT", "shape": [3], "datatype": "BYTES", "data": TEXTS}
    (output,) = (await ask("/v2/models/colbert/infer", inputs=[tensor])).json()["outputs"]
    assert (output["name"], output["shape"]) == ("TOKEN_VECTORS", [3, 5, 4])
    filled = np.array(output["data"]).reshape(3, 5, 4)
    assert filled[1, :2].tolist() == wanted[1]
    assert not filled[1, 2:].any()


@pytest.mark.parametrize("task", [Task.MULTI_VECTOR_EMBEDDING, Task.HYBRID_EMBEDDING])
async def test_what_fills_shorter_texts_up_is_counted_before_it_is_made(task: Task) -> None:
    behind = Behind(FakePredictor.with_endpoints(), held=ByteBudget(600_000))
    behind.predictor.views["colbert"] = view("colbert", task)
    texts = ["good " * 200, *["a"] * 63]  # as long as the longest 64 times: 0.9 MB as JSON
    tensor = {"name": "TEXT", "shape": [64], "datatype": "BYTES", "data": texts}
    path = "/v2/models/colbert/infer"
    refused = await asked(behind, "POST", path, json={"inputs": [tensor]})
    assert (refused.status_code, behind.held.held) == (503, 0)
    whole = await asked(behind, "POST", f"{COLBERT}/embed_all", json={"inputs": texts})
    assert whole.status_code == 200
    few = {**tensor, "shape": [4], "data": texts[:4]}
    found = await asked(behind, "POST", path, json={"inputs": [few]})
    assert (found.status_code, behind.held.held) == (200, 0)


async def test_documents_are_ranked_by_the_score_of_late_interaction() -> None:
    found = await ask("/v1/rerank", model="colbert", query=QUERY, documents=DOCUMENTS)
    results = found.json()["results"]
    assert [each["index"] for each in results] == ORDER
    assert ORDER.index(0) < ORDER.index(3), "equal ones keep their order"
    wanted = [scores()[at] for at in ORDER]
    assert [each["relevance_score"] for each in results] == pytest.approx(wanted, rel=1e-6)
    by_tei = await ask(f"{COLBERT}/rerank", query=QUERY, texts=DOCUMENTS, raw_scores=True)
    assert [(each["index"], each["score"]) for each in by_tei.json()] == [
        (at, pytest.approx(scores()[at], rel=1e-6)) for at in ORDER
    ]


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        (COLBERT, {"inputs": {"text": "a", "text_pair": "b"}}, "one text at a time"),
        (f"{COLBERT}/embed", {"inputs": "a"}, "embeddings need an endpoint of"),
        (f"{COLBERT}/predict", {"inputs": [["a", "b"]]}, "/predict needs an endpoint of"),
        (f"{COLBERT}/embed_all", {"inputs": "a", "prompt_name": "x"}, "has no prompt"),
        ("/endpoints/sentiment/rerank", {"query": "a", "texts": ["b"]},
         "text-ranking or multi-vector-embedding"),
    ],
)  # fmt: skip
async def test_what_late_interaction_does_not_do_is_refused(
    path: str, body: dict[str, Any], words: str
) -> None:
    found = await ask(path, **body)
    assert found.status_code in {400, 422}
    assert words in found.text
