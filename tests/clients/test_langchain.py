"""LangChain: ``OpenAIEmbeddings`` with nothing but an address, which sends token ids in chunks."""

import json

import numpy as np
import pytest
from client_programs import Client
from front_fakes import vector
from front_server import Served

pytestmark = pytest.mark.slow  # starts the client's own Python

# More than one chunk of 1,000, and several times what the endpoint takes at once.
TEXTS = ["the naïve café 🎬", "a", "soup", *(f"good soup number {n}" for n in range(1100))]


def test_embeddings_are_those_of_the_texts(client: Client, fronts: Served) -> None:
    found = client("use_langchain", json.dumps(TEXTS))
    expected = [vector(text) for text in TEXTS]
    for kind in ("documents", "documents as text"):
        np.testing.assert_allclose(found[kind], expected, rtol=1e-5)
    np.testing.assert_allclose(found["query"], expected[0], rtol=1e-5)
    assert max(len(call.texts) for call in fronts.predictor.calls) == 64
