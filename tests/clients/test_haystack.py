"""Haystack: OpenAI's embedders with nothing but an address."""

import json

import numpy as np
import pytest
from client_programs import Client
from front_fakes import vector

pytestmark = pytest.mark.slow  # starts the client's own Python

TEXTS = [f"good soup number {n}" for n in range(40)]


def test_embeddings_are_those_of_the_texts(client: Client) -> None:
    found = client("use_haystack", json.dumps(TEXTS))
    np.testing.assert_allclose(found["documents"], [vector(text) for text in TEXTS], rtol=1e-5)
    np.testing.assert_allclose(found["query"], vector(TEXTS[0]), rtol=1e-5)
