"""LlamaIndex: clients of OpenAI's, TEI's and Jina's forms with nothing but an address."""

import json

import numpy as np
import pytest
from client_programs import Client
from front_fakes import logit, vector

pytestmark = pytest.mark.slow  # starts the client's own Python

TEXTS = ["soup is warm", "the rain was cold", "good soup was warm and cold"]
QUERY = "was soup warm"


def test_embeddings_and_ranks_are_those_of_the_texts(client: Client) -> None:
    found = client("use_llama_index", json.dumps(TEXTS), QUERY)
    expected = [vector(text) for text in TEXTS]
    for kind in ("openai", "tei"):
        np.testing.assert_allclose(found[kind], expected, rtol=1e-5)
        np.testing.assert_allclose(found[f"{kind} query"], expected[0], rtol=1e-5)
    best = sorted(TEXTS, key=lambda text: -logit(QUERY, text))[:2]
    assert found["tei rerank"] == found["jina rerank"] == best
    assert found["jina refusal"] == "There is no endpoint 'nobody'."
