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


async def test_inputs_stands_for_instances() -> None:
    behind = Behind()
    path = "/v1/models/sentiment:predict"
    plain = await asked(behind, "POST", path, json={"instances": ["good", "bad"]})
    other = await asked(behind, "POST", path, json={"inputs": ["good", "bad"]})
    assert other.json() == plain.json()
    both = await asked(behind, "POST", path, json={"inputs": ["a"], "instances": ["good", "bad"]})
    assert both.json() == plain.json()
    empties: list[dict[str, object]] = [{"inputs": []}, {"inputs": None}, {"instances": None}]
    for empty in empties:
        assert (await asked(behind, "POST", path, json=empty)).status_code == 400


async def test_a_key_that_means_nothing_and_is_no_utf_8_is_refused() -> None:
    body = b'{"instances": [{"text": "good", "id": "\xde"}]}'
    answer = await asked(Behind(), "POST", "/v1/models/sentiment:predict", content=body)
    assert answer.status_code == 400


async def test_keys_of_an_instance_that_mean_nothing_are_named_or_under_strict_refused() -> None:
    body = {"instances": [{"text": "good", "id": 7, "a\nb": 1}, "bad", {"text": "x", "id": 8}]}
    path = "/v1/models/sentiment:predict"
    answer = await asked(Behind(), "POST", path, json=body)
    plain = await asked(Behind(), "POST", path, json={"instances": ["good", "bad", "x"]})
    assert answer.json() == plain.json()
    assert answer.headers["x-headrace-ignored"] == "id,a?b"
    assert "x-headrace-ignored" not in plain.headers
    strict = {"x-headrace-strict": "true"}
    refused = await asked(Behind(), "POST", path, json=body, headers=strict)
    assert (refused.status_code, "unknown field" in refused.text) == (400, True)
    no_text = await asked(Behind(), "POST", path, json={"instances": [{"txt": "a"}]})
    assert (no_text.status_code, "instances[0]" in no_text.text) == (422, True)


async def test_explain_says_that_no_explainer_is_offered() -> None:
    answer = await asked(
        Behind(), "POST", "/v1/models/sentiment:explain", json={"instances": ["a"]}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (501, "unsupported")
    assert "/v1/models/sentiment:predict" in answer.json()["error"]["message"]


async def test_models_are_listed_for_both_of_the_routes_owners() -> None:
    async with client_of(Behind()) as client:
        listing = (await client.get("/v1/models")).json()
        model = (await client.get("/v1/models/minilm")).json()
    assert listing["models"] == ["sentiment", "minilm", "reranker"]
    assert [one["id"] for one in listing["data"]] == ["sentiment", "minilm", "reranker"]
    assert (model["name"], model["ready"], model["id"]) == ("minilm", True, "minilm")
