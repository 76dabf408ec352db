"""One endpoint answers with the kinds of vectors that a request asks for."""

import json
from typing import Any

import numpy as np
import pytest
from front_fakes import WORDS, Behind, FakePredictor, asked, rows_of_tokens, view

from contracts.tasks import Task
from preprocess.vectors import unit

TEXTS = ["the soup was cold", "", "good good film"]
ENCODED = WORDS.encode(TEXTS)
ROWS = np.array(rows_of_tokens(ENCODED), np.float32)
ENDS = np.cumsum(ENCODED.tokens)
OF_TEXTS = [ROWS[end - count : end] for end, count in zip(ENDS, ENCODED.tokens, strict=True)]
DENSE = np.stack([rows[0, :-1] for rows in OF_TEXTS])
TOKENS = [rows[1:, :-1].tolist() for rows in OF_TEXTS]
SPARSE = [
    [
        {"index": token, "value": float(token % 3)}
        for token in sorted(set(ids))
        if token > 3 and token % 3
    ]
    for ids in ENCODED.ids
]
M3 = "/endpoints/m3"


def behind() -> Behind:
    made = Behind(FakePredictor.with_endpoints())
    made.predictor.views["m3"] = view("m3", Task.HYBRID_EMBEDDING)
    return made


async def answer_to(path: str, **body: Any) -> Any:
    found = await asked(behind(), "POST", path, json=body)
    assert found.status_code == 200, found.text
    return found.json()


async def test_each_route_of_text_embeddings_inference_gives_its_kind() -> None:
    np.testing.assert_allclose(await answer_to(f"{M3}/embed", inputs=TEXTS), unit(DENSE))
    assert await answer_to(f"{M3}/embed_sparse", inputs=TEXTS) == SPARSE
    assert await answer_to(f"{M3}/embed_all", inputs=TEXTS) == TOKENS


async def test_openais_clients_get_the_dense_vectors() -> None:
    found = await answer_to("/v1/embeddings", model="m3", input=TEXTS)
    np.testing.assert_array_equal([one["embedding"] for one in found["data"]], DENSE)
    bits = await answer_to("/v1/embeddings", model="m3", input=TEXTS, precision="ubinary")
    assert [one["embedding"] for one in bits["data"]] == [[0b11010000]] * 3


async def test_the_other_forms_give_the_kinds_that_are_named() -> None:
    assert await answer_to(M3, inputs=TEXTS) == DENSE.tolist()
    kinds = {"kinds": ["dense", "sparse", "tokens"]}
    wanted = [
        {"dense": dense, "sparse": sparse, "tokens": tokens}
        for dense, sparse, tokens in zip(DENSE.tolist(), SPARSE, TOKENS, strict=True)
    ]
    assert await answer_to(M3, inputs=TEXTS, parameters=kinds) == wanted
    assert await answer_to(M3, inputs=TEXTS[0], parameters=kinds) == wanted[0]
    kserve = await answer_to("/v1/models/m3:predict", instances=TEXTS, parameters=kinds)
    assert kserve["predictions"] == wanted


async def test_the_open_inference_protocol_gives_the_outputs_that_are_named() -> None:
    tensor = {"name": "TEXT", "shape": [3], "datatype": "BYTES", "data": TEXTS}
    names = ["TOKEN_VECTORS", "SPARSE"]
    oip = await answer_to(
        "/v2/models/m3/infer", inputs=[tensor], outputs=[{"name": name} for name in names]
    )
    tokens, sparse = oip["outputs"]
    assert [tokens["name"], sparse["name"]] == names
    padded = np.array(tokens["data"]).reshape(tokens["shape"])
    for vectors, row in zip(TOKENS, padded, strict=True):
        np.testing.assert_array_equal(row[: len(vectors)], vectors)
        assert not row[len(vectors) :].any()
    assert [json.loads(each) for each in sparse["data"]] == SPARSE


BAD: list[tuple[str, dict[str, Any], int, str]] = [
    (M3, {"inputs": "a", "parameters": {"kinds": []}}, 422, "kinds: name some of dense"),
    (M3, {"inputs": "a", "parameters": {"kinds": ["colbert"]}}, 400, "parameters.kinds[0]"),
    (M3, {"inputs": "a", "parameters": {"dimensions": 5}}, 422, "dimensions: m3 gives 4"),
    (M3, {"inputs": {"text": "a", "text_pair": "b"}}, 422, "reads one text at a time"),
    ("/v1/embeddings", {"model": "m3", "input": "a", "precision": "int8"}, 422, "has no int8"),
    ("/endpoints/minilm", {"inputs": "a", "parameters": {"kinds": ["dense"]}}, 422, "kinds"),
    ("/endpoints/minilm/embed_all", {"inputs": "a"}, 422, "an endpoint of hybrid-embedding"),
    ("/endpoints/sentiment/embed", {"inputs": "a"}, 422, "text-embedding or hybrid-embedding"),
]


@pytest.mark.parametrize(("path", "body", "status", "words"), BAD)
async def test_what_is_asked_wrongly_is_named(
    path: str, body: dict[str, Any], status: int, words: str
) -> None:
    answer = await asked(behind(), "POST", path, json=body)
    assert answer.status_code == status, answer.text
    assert words in answer.text
