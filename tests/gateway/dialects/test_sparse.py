"""Sparse vectors are the same weights in every dialect."""

import json
from typing import Any

import pytest
from front_fakes import Behind, FakePredictor, asked, sparse, view

from contracts.tasks import Task

TEXTS = ["a good film", "", "naïve 🎬"]
WANTED = [
    [{"index": at, "value": value} for at, value in enumerate(sparse(text)) if value]
    for text in TEXTS
]
TEI = "/endpoints/splade/embed_sparse"


def behind() -> Behind:
    made = Behind(FakePredictor.with_endpoints())
    made.predictor.views["splade"] = view("splade", Task.SPARSE_EMBEDDING)
    return made


async def answer_to(path: str, **body: Any) -> Any:
    found = await asked(behind(), "POST", path, json=body)
    assert found.status_code == 200, found.text
    assert found.headers["x-headrace-version"] == "3"
    return found.json()


async def test_all_dialects_tell_the_same_weights() -> None:
    assert any(WANTED)
    assert await answer_to(TEI, inputs=TEXTS) == WANTED
    assert await answer_to("/endpoints/splade", inputs=TEXTS) == WANTED
    kserve = await answer_to("/v1/models/splade:predict", instances=TEXTS)
    assert kserve["predictions"] == WANTED
    tensor = {"name": "TEXT", "shape": [3], "datatype": "BYTES", "data": TEXTS}
    oip = await answer_to("/v2/models/splade/infer", inputs=[tensor])
    (output,) = oip["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("SPARSE", "BYTES", [3])
    assert [json.loads(each) for each in output["data"]] == WANTED


async def test_one_text_is_a_list_of_one_as_text_embeddings_inference_has_it() -> None:
    assert await answer_to(TEI, inputs=TEXTS[0]) == WANTED[:1]
    assert await answer_to("/endpoints/splade", inputs=TEXTS[0]) == WANTED[0]


BAD: list[tuple[str, dict[str, Any], int, str]] = [
    (TEI, {"inputs": []}, 400, "inputs"),
    (TEI, {"inputs": 3}, 400, "inputs"),
    (TEI, {"inputs": "a", "normalize": True}, 400, "normalize"),
    (TEI, {"inputs": "a", "prompt_name": "query"}, 422, "prompt_name: splade has no prompt"),
    ("/endpoints/minilm/embed_sparse", {"inputs": "a"}, 422, "minilm does text-embedding"),
    ("/endpoints/splade/embed", {"inputs": "a"}, 422, "splade does sparse-embedding"),
    ("/v1/embeddings", {"model": "splade", "input": "a"}, 422, "splade does sparse-embedding"),
    ("/endpoints/splade", {"inputs": "a", "dimensions": 2}, 422, "dimensions: splade does"),
]


@pytest.mark.parametrize(("path", "body", "status", "words"), BAD)
async def test_what_is_asked_wrongly_is_named(
    path: str, body: dict[str, Any], status: int, words: str
) -> None:
    answer = await asked(behind(), "POST", path, json=body)
    assert answer.status_code == status, answer.text
    assert words in answer.text
