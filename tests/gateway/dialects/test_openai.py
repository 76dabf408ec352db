"""The unmodified OpenAI client, and what it never sends."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import numpy as np
import pytest
from front_fakes import Behind, client_of, vector
from front_server import Served

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

    with pytest.raises(openai.NotFoundError, match="no endpoint 'nobody'"):
        await client.embeddings.create(model="nobody", input="a")
    with pytest.raises(openai.UnprocessableEntityError, match="minilm gives 4") as refusal:
        await client.embeddings.create(model="minilm", input="a", dimensions=5)
    assert refusal.value.code == "invalid_input"
    with pytest.raises(openai.UnprocessableEntityError, match="text-classification"):
        await client.embeddings.create(model="sentiment", input="a")
    with pytest.raises(openai.UnprocessableEntityError, match="arrays of tokens"):
        await client.embeddings.create(model="minilm", input=[[1, 2], [3]])
    with pytest.raises(openai.BadRequestError, match="input"):
        await client.embeddings.create(model="minilm", input=[])


async def test_a_key_is_the_clients_api_key(keyed_fronts: Served) -> None:
    import openai

    url = f"{keyed_fronts.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError):
            await client.embeddings.create(model="minilm", input="a")
    async with openai.AsyncOpenAI(base_url=url, api_key="good", max_retries=0) as client:
        with pytest.raises(openai.PermissionDeniedError):
            await client.embeddings.create(model="minilm", input="a")


async def test_a_refusal_is_recorded_for_the_endpoint_that_the_body_names() -> None:
    behind = Behind()
    async with client_of(behind) as client:
        body = {"model": "minilm", "input": [1, 2]}
        assert (await client.post("/v1/embeddings", json=body)).status_code == 422
        assert (await client.post("/v1/embeddings", json={"input": "a"})).status_code == 400
    assert behind.recorder.refusals == [("minilm", 422, "invalid_input")]
