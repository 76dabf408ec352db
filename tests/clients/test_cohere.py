"""Cohere: the rerankers of both of its APIs with nothing but an address."""

import json
import math

import pytest
from client_programs import Client
from front_fakes import logit

pytestmark = pytest.mark.slow  # starts the client's own Python

TEXTS = ["soup is warm", "the rain was cold", "good soup was warm and cold"]
QUERY = "was soup warm"


def test_ranks_are_those_of_the_texts(client: Client) -> None:
    found = client("use_cohere", json.dumps(TEXTS), QUERY)
    best = sorted(range(3), key=lambda index: -logit(QUERY, TEXTS[index]))[:2]
    expected = [
        [index, pytest.approx(1 / (1 + math.exp(-logit(QUERY, TEXTS[index]))))] for index in best
    ]
    assert found["v1"] == found["v2"] == expected
    assert found["refusal"] == "There is no endpoint 'nobody'."
