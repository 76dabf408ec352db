"""KServe's first protocol."""

import pytest
from front_fakes import LABELS, Behind, asked, client_of, scores, vector


async def test_each_instance_gets_its_prediction() -> None:
    async with client_of(Behind()) as client:
        body = {"instances": ["good", {"text": "bad"}], "signature_name": "x"}
        answer = await client.post("/v1/models/sentiment:predict", json=body)
        vectors = await client.post("/v1/models/minilm:predict", json={"instances": ["abc"]})
    first, second = answer.json()["predictions"]
    assert first["scores"] == dict(zip(LABELS, scores("good"), strict=True))
    assert first["score"] == max(scores("good"))
    assert second["label"] == LABELS[scores("bad").index(max(scores("bad")))]
    assert vectors.json() == {"predictions": [vector("abc")]}


@pytest.mark.parametrize(
    ("body", "field"),
    [({}, "instances"), ({"instances": "a"}, "instances"), ({"instances": []}, "instances")],
)
async def test_what_is_no_list_of_texts_is_refused(body: object, field: str) -> None:
    answer = await asked(Behind(), "POST", "/v1/models/sentiment:predict", json=body)
    assert answer.status_code == 400
    assert field in answer.json()["error"]["message"]


async def test_models_are_listed_for_both_of_the_routes_owners() -> None:
    async with client_of(Behind()) as client:
        listing = (await client.get("/v1/models")).json()
        model = (await client.get("/v1/models/minilm")).json()
    assert listing["models"] == ["sentiment", "minilm", "reranker"]
    assert [one["id"] for one in listing["data"]] == ["sentiment", "minilm", "reranker"]
    assert (model["name"], model["ready"], model["id"]) == ("minilm", True, "minilm")
