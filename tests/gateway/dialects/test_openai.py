"""The unmodified OpenAI client, and what it never sends."""

import base64
import hashlib
import tracemalloc
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest
from front_fakes import (
    MAX_CHARACTERS,
    WORDS,
    Behind,
    FakePredictor,
    asked,
    client_of,
    vector,
    view,
)
from front_server import Served

from contracts.tasks import Task
from gateway.calls import Answer, Call
from gateway.dialects import cl100k
from gateway.dialects.reading import MOST_IDS

if TYPE_CHECKING:
    import openai  # takes most of a second, of each process that collects tests

pytestmark = pytest.mark.slow  # imports openai

TEXTS = ["a", "", "naïve 🎬"]


@pytest.fixture
async def client(fronts: Served) -> AsyncIterator["openai.AsyncOpenAI"]:
    import openai

    url = f"{fronts.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="any", max_retries=0) as client:
        yield client


async def test_the_client_gets_vectors_in_order(client: "openai.AsyncOpenAI") -> None:
    answer = await client.embeddings.create(model="minilm", input=TEXTS)
    found = [one.embedding for one in answer.data]
    np.testing.assert_allclose(found, [vector(text) for text in TEXTS], rtol=1e-6)
    assert [one.index for one in answer.data] == [0, 1, 2]
    assert answer.usage.total_tokens == 3 + 2 + 4
    assert answer.model == "minilm"


async def test_the_client_gets_floats_where_it_asks_for_them(client: "openai.AsyncOpenAI") -> None:
    answer = await client.embeddings.create(
        model="minilm", input="a", encoding_format="float", dimensions=4
    )
    assert answer.data[0].embedding == vector("a")


async def test_the_client_lists_models(client: "openai.AsyncOpenAI") -> None:
    assert [model.id async for model in client.models.list()] == ["sentiment", "minilm", "reranker"]
    assert (await client.models.retrieve("minilm")).owned_by == "headrace"


async def test_the_client_raises_its_own_errors(client: "openai.AsyncOpenAI") -> None:
    import openai

    with pytest.raises(openai.NotFoundError, match="no endpoint 'nobody'") as unknown:
        await client.embeddings.create(model="nobody", input="a")
    assert (unknown.value.type, unknown.value.param) == ("invalid_request_error", "model")
    with pytest.raises(openai.UnprocessableEntityError, match="minilm gives 4") as refusal:
        await client.embeddings.create(model="minilm", input="a", dimensions=5)
    assert (refusal.value.code, refusal.value.param) == ("invalid_input", "dimensions")
    assert refusal.value.type == "invalid_request_error"
    with pytest.raises(openai.UnprocessableEntityError, match="text-classification"):
        await client.embeddings.create(model="sentiment", input="a")
    with pytest.raises(openai.BadRequestError, match="input"):
        await client.embeddings.create(model="minilm", input=[])


async def test_a_key_is_the_clients_api_key(keyed_fronts: Served) -> None:
    import openai

    url = f"{keyed_fronts.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError) as refusal:
            await client.embeddings.create(model="minilm", input="a")
        assert refusal.value.type == "authentication_error"
    async with openai.AsyncOpenAI(base_url=url, api_key="good", max_retries=0) as client:
        with pytest.raises(openai.PermissionDeniedError):
            await client.embeddings.create(model="minilm", input="a")


async def embeddings(behind: Behind, **body: object) -> httpx.Response:
    return await asked(behind, "POST", "/v1/embeddings", json={"model": "minilm", **body})


async def test_a_chunk_of_more_texts_than_the_endpoint_takes_is_answered_in_parts() -> None:
    behind = Behind()
    most = behind.predictor.views["minilm"].max_texts
    texts = [f"{'a' * (number % 50)} {number}" for number in range(2 * most + 5)]
    answer = await embeddings(behind, input=texts)
    found = [one["embedding"] for one in answer.json()["data"]]
    np.testing.assert_allclose(found, [vector(text) for text in texts], rtol=1e-6)
    assert [one["index"] for one in answer.json()["data"]] == list(range(len(texts)))
    assert answer.json()["usage"]["total_tokens"] == sum(len(text.split()) + 2 for text in texts)
    calls = behind.predictor.calls
    assert [len(call.texts) for call in calls] == [most, most, 5]
    # Each is an event of its own, and all go to one version, whose rate counts them once.
    name = answer.headers["x-request-id"]
    assert [call.request_id for call in calls] == [name, f"{name}.1", f"{name}.2"]
    assert {call.sticky_key or call.request_id for call in calls} == {name}
    assert [call.part for call in calls] == [0, 1, 2]
    assert "x-headrace-receipt" not in answer.headers


async def test_texts_that_are_cut_are_counted_over_all_parts() -> None:
    behind = Behind()
    texts = ["a"] * 130
    for long in (2, 129):
        texts[long] = "a" * (MAX_CHARACTERS + 1)
    answer = await embeddings(behind, input=texts)
    assert answer.headers["x-headrace-truncated"] == "2,129"


async def test_parts_that_different_versions_answer_are_refused_together() -> None:
    behind = Behind()

    class Moving(FakePredictor):
        async def predict(self, call: Call) -> Answer:
            answer = await super().predict(call)
            self.views["minilm"] = view("minilm", Task.TEXT_EMBEDDING, ("4", "3"))
            return answer

    behind.predictor = Moving(behind.predictor.views)
    answer = await embeddings(behind, input=["a"] * 65)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "send it again" in answer.json()["error"]["message"]


async def test_more_texts_than_openai_takes_are_refused_whole() -> None:
    behind = Behind()
    answer = await embeddings(behind, input=["a"] * 2049)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
    assert behind.predictor.calls == []


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ([32, 4632, 13], ["A film."]),
        ([[32, 4632, 13], [32, 11775, 13]], ["A film.", "A novel."]),
        ([[32, 4632, 13, 100257]], ["A film.<|endoftext|>"]),
        # A client that cuts a long text does it between tokens, now and then within a character.
        ([[9468, 236, 105]], ["🎬"]),
        ([[9468, 236]], ["\ufffd"]),
    ],
)
async def test_token_ids_are_those_of_cl100k(given: object, texts: list[str]) -> None:
    behind = Behind()
    answer = await embeddings(behind, input=given)
    assert answer.headers["x-headrace-token-ids"] == "cl100k_base"
    found = [one["embedding"] for one in answer.json()["data"]]
    np.testing.assert_allclose(found, [vector(text) for text in texts], rtol=1e-6)
    assert [call.texts for call in behind.predictor.calls] == [texts]


async def test_token_ids_of_the_model_are_taken_where_the_request_says_so() -> None:
    behind = Behind()
    encodings = WORDS.tokenizer.encode_batch(
        ["the soup was good", "rain"], add_special_tokens=False
    )
    ids = [encoding.ids for encoding in encodings]
    answer = await embeddings(behind, input=ids, tokenizer="model")
    assert answer.headers["x-headrace-token-ids"] == "model"
    assert [call.texts for call in behind.predictor.calls] == [["the soup was good", "rain"]]


@pytest.mark.parametrize(
    ("given", "status", "says"),
    [
        ({"input": [[1], [100300]]}, 422, "100300 is no token of cl100k_base"),
        ({"input": [100300]}, 422, "check_embedding_ctx_length=False"),
        ({"input": [[9999]], "tokenizer": "model"}, 422, "9999, which is no token"),
        ({"input": [1, "a"]}, 422, "texts alone"),
        ({"input": [[1], 2]}, 422, "texts alone"),
        ({"input": [[]]}, 400, "input[0]"),
        ({"input": [-1]}, 400, "input[0]"),
        ({"input": [2**32]}, 400, "input[0]"),
        ({"input": [1], "tokenizer": "gpt2"}, 400, "tokenizer"),
    ],
)
async def test_ids_that_are_no_tokens_are_refused(
    given: dict[str, object], status: int, says: str
) -> None:
    behind = Behind()
    answer = await embeddings(behind, **given)
    error = answer.json()["error"]
    assert (answer.status_code, says in error["message"]) == (status, True), error
    assert error["type"] == "invalid_request_error"
    assert behind.predictor.calls == []


async def test_ids_of_far_more_text_than_ids_have_are_refused_before_it_is_made() -> None:
    behind = Behind()
    assert (await embeddings(behind, input=[0])).status_code == 200  # the vocabulary is read
    longest = max(range(len(cl100k.tokens())), key=lambda one: len(cl100k.tokens()[one]))
    ids = [[longest] * 10_000, [0]]
    tracemalloc.start()
    answer = await embeddings(behind, input=ids)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert answer.status_code == 413
    assert "more than 1128584 bytes of text" in answer.json()["error"]["message"]
    assert peak < 10_000 * len(cl100k.tokens()[longest])
    assert len(behind.predictor.calls) == 1


def test_the_size_of_text_is_known_before_it_is_made() -> None:
    for one, token in enumerate(cl100k.tokens()):
        assert cl100k.size_of([one]) == len(token)
    assert cl100k.size_of([0, 100257, 100276]) == 1 + len("<|endoftext|>") + len("<|endofprompt|>")
    with pytest.raises(cl100k.UnknownTokenError, match="100277 is no token"):
        cl100k.size_of([0, 100277])


@pytest.mark.parametrize("route", ["v1/embeddings", "embeddings"])
async def test_the_address_of_an_endpoint_names_the_model(route: str) -> None:
    behind = Behind()
    for body in ({"input": "a"}, {"input": "a", "model": "text-embedding-3-small"}):
        answer = await asked(behind, "POST", f"/endpoints/minilm/{route}", json=body)
        assert (answer.status_code, answer.json()["model"]) == (200, "minilm")
        assert answer.json()["data"][0]["embedding"] == vector("a")


def test_the_vocabulary_is_the_published_one() -> None:
    lines = (b"%b %d\n" % (base64.b64encode(one), at) for at, one in enumerate(cl100k.tokens()))
    published = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
    assert hashlib.sha256(b"".join(lines)).hexdigest() == published


async def test_a_refusal_is_recorded_for_the_endpoint_that_the_body_names() -> None:
    behind = Behind()
    async with client_of(behind) as client:
        body = {"model": "minilm", "input": [1, "a"]}
        assert (await client.post("/v1/embeddings", json=body)).status_code == 422
        assert (await client.post("/v1/embeddings", json={"input": "a"})).status_code == 400
    assert behind.recorder.refusals == [("minilm", 422, "invalid_input")]


async def test_more_ids_than_a_request_may_have_are_refused_before_they_are_made() -> None:
    behind = Behind()
    most = MOST_IDS + 36_865  # and what a request of texts may have
    answer = await embeddings(behind, input=[257] * (2 * MOST_IDS))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
    assert f"more than {most - 1} values" in answer.json()["error"]["message"]
    assert (await embeddings(behind, input=[257] * MOST_IDS)).status_code == 200
